// The order in which a tensor's elements lie in memory.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>

#include <cstdint>

namespace tpgm {

/// True if the elements of both, which have one shape, lie in the same order. The stride of a dimension of
/// size 1 says nothing.
inline bool same_order(const at::Tensor& a, const at::Tensor& b) {
  for (int64_t d = 0; d < a.dim(); ++d)
    if (a.size(d) > 1 && a.stride(d) != b.stride(d)) return false;
  return true;
}

inline at::Tensor empty_in_order_of(const at::Tensor& like, at::ScalarType type) {
  return at::empty_strided(like.sizes(), like.strides(), like.options().dtype(type).requires_grad(false));
}

}  // namespace tpgm
