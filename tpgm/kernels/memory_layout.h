// Questions about the memory layout of a tensor, answered from sizes and strides. The answers decide which
// tensors the kernels use in place and in which order they sum a row, so every binding needs the same ones.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <vector>

#include "tpgm/kernels/norm.h"

namespace tpgm::kernels {

using Sizes = std::span<const int64_t>;

inline int64_t elements_of(Sizes sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

/// The number of rows that a norm divides a tensor into. An empty tensor is one row.
inline int64_t rows_of(Sizes sizes, Norm norm) {
  return !traits(norm).by_row || sizes.size() < 2 || elements_of(sizes) == 0 ? 1 : sizes[0];
}

/// Whether two tensors of one shape have the same strides, apart from those of dimensions of size 1.
inline bool same_order(Sizes sizes, Sizes strides, Sizes other) {
  for (size_t d = 0; d < sizes.size(); ++d)
    if (sizes[d] > 1 && strides[d] != other[d]) return false;
  return true;
}

/// Whether the elements of the tensor fill a block of memory without gaps or overlaps, in any order.
inline bool is_dense(Sizes sizes, Sizes strides) {
  if (elements_of(sizes) == 0) return true;
  std::vector<size_t> dims(sizes.size());
  std::iota(dims.begin(), dims.end(), size_t{0});
  std::erase_if(dims, [&](size_t d) { return sizes[d] == 1; });
  std::sort(dims.begin(), dims.end(), [&](size_t a, size_t b) { return strides[a] < strides[b]; });
  int64_t stride = 1;
  for (const size_t d : dims) {
    if (strides[d] != stride) return false;
    stride *= sizes[d];
  }
  return true;
}

/// Whether the tensor is dense with its rows one after the other, as kernels need it. Within a row the order
/// does not matter.
inline bool rows_are_dense(Sizes sizes, Sizes strides, Norm norm) {
  const int64_t rows = rows_of(sizes, norm);
  return is_dense(sizes, strides) && (rows == 1 || strides[0] == elements_of(sizes) / rows);
}

}  // namespace tpgm::kernels
