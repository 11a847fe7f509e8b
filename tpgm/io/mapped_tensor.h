// Tensors that lie in a mapped file: where, and how to get at them without copying.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tpgm/io/file.h"

namespace tpgm {

/// What a file says of one tensor. Parsers hand out only entries that lie within their file.
struct TensorEntry {
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  ///< in elements, none negative; empty for a contiguous tensor
  size_t offset = 0;             ///< of its first element, in bytes from the beginning of the file
  size_t size = 0;               ///< in bytes, from there to the end of its last element in memory

  int64_t numel() const;
  size_t nbytes() const { return static_cast<size_t>(numel()) * c10::elementSize(dtype); }
};

/// The bytes that a tensor of this shape takes, as if sizes of 0 were 1 (so that its strides fit as well), or
/// Malformed if that overflows.
int64_t bytes_of_shape(const std::vector<int64_t>& shape, at::ScalarType dtype);

/// A CPU tensor over the mapping, which it keeps alive; strided like the entry. Writing to it changes what
/// others see of this mapping, never the file. Where the bytes are not aligned to the dtype it is a copy.
/// Throws Malformed on a bool that is neither 0 nor 1, which would be undefined behaviour for a reader.
at::Tensor tensor_at(const std::shared_ptr<const MappedFile>& file, const TensorEntry& entry);

/// Elements [begin, begin + count) of the tensor in row-major order, as a vector; memory is allocated for
/// these alone, and only if they are not contiguous and aligned in the file.
at::Tensor slice_at(const std::shared_ptr<const MappedFile>& file, const TensorEntry& entry, int64_t begin,
                    int64_t count);

}  // namespace tpgm
