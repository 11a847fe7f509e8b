// Helpers for tensors as operands of kernels, which the autograd functions of this room share.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/MemoryFormat.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <optional>

namespace tpgm {

/// An undefined tensor as nothing: autograd functions and ATen take an optional argument that way.
inline std::optional<at::Tensor> if_defined(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

/// Whether the data begin at a multiple of 16 bytes, as vector loads of kernels need it.
inline bool is_aligned(const at::Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 16 == 0;
}

/// `tensor` in this memory format and aligned: itself if it already is, else a copy.
inline at::Tensor dense(const at::Tensor& tensor, at::MemoryFormat format = at::MemoryFormat::Contiguous) {
  const at::Tensor result = tensor.contiguous(format);
  return is_aligned(result) ? result : result.clone(format);
}

/// For the backward pass of a function without a second derivative: throws if autograd builds a graph of it.
inline void check_first_derivative(const char* function) {
  TORCH_CHECK(!at::GradMode::is_enabled(), function, " cannot be differentiated twice (create_graph)");
}

}  // namespace tpgm
