// The order in which a tensor's elements lie in memory.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>

#include "tpgm/kernels/memory_layout.h"

namespace tpgm {

/// True if the elements of both, which have one shape, lie in the same order.
inline bool same_order(const at::Tensor& a, const at::Tensor& b) {
  return kernels::same_order(a.sizes(), a.strides(), b.strides());
}

inline at::Tensor empty_in_order_of(const at::Tensor& like, at::ScalarType type) {
  return at::empty_strided(like.sizes(), like.strides(), like.options().dtype(type).requires_grad(false));
}

}  // namespace tpgm
