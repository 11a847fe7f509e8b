// Memory order of tensors, for kernels that work on dense memory.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>

#include "tpgm/kernels/memory_layout.h"

namespace tpgm {

/// True if the elements of two tensors of one shape lie in memory in the same order.
inline bool same_order(const at::Tensor& a, const at::Tensor& b) {
  return kernels::same_order(a.sizes(), a.strides(), b.strides());
}

/// An uninitialized tensor of another type with the sizes, strides and device of `like`.
inline at::Tensor empty_in_order_of(const at::Tensor& like, at::ScalarType type) {
  return at::empty_strided(like.sizes(), like.strides(), like.options().dtype(type).requires_grad(false));
}

/// `tensor` in `type` and in the memory order of `like`: itself if it is so already, else a copy.
inline at::Tensor in_order_of(const at::Tensor& tensor, const at::Tensor& like, at::ScalarType type) {
  if (same_order(tensor, like) && tensor.scalar_type() == type) return tensor;
  return empty_in_order_of(like, type).copy_(tensor);
}

}  // namespace tpgm
