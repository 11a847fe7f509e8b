// The memory-bound operations between the GEMMs of a transformer, fused and differentiable
// (kernels/residual.h). They have no second derivative.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "tpgm/kernels/residual.h"

namespace tpgm {

/// The type in which the branches of a residual stream are computed.
at::ScalarType branch_type(const at::Tensor& stream);

/// True if add_layer_norm() takes a residual stream x [..., width] with branches of this type and is faster
/// than separate operations: x in fp32 and branches in bf16 or fp32, on a GPU of Hopper or later, with a
/// width of whole vectors.
bool fuses_stream(const at::Tensor& x, at::ScalarType branches);
/// The same for linear_act() and column_sums() over rows [..., width] of `dtype`.
bool fuses_columns(const at::Tensor& x, at::ScalarType dtype, int64_t width);

struct SumAndNorm {
  at::Tensor sum, normed;
};

/// sum = x + (branch + bias), normed = LayerNorm(sum) in the type `branches`; `branch` and `bias` may be
/// undefined. Without a branch the sum is x again: use it in place of x from then on, so that the kernel adds
/// the gradients of both uses and autograd needs no addition of its own.
SumAndNorm add_layer_norm(const at::Tensor& x, const at::Tensor& branch, const at::Tensor& bias,
                          const at::Tensor& weight, const at::Tensor& shift, double eps,
                          at::ScalarType branches);

/// unit(x Wᵀ + bias). x and weight have one type; the bias may have another.
at::Tensor linear_act(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      kernels::Unit unit);

/// Sums up to three matrices [rows, cols] of one type over their rows, and returns the sums one after the
/// other: [parts · cols] in fp32 (fp64 for fp64). If `beside` [rows, parts · cols] is defined, the matrices
/// are also copied into it, side by side. Not differentiable.
at::Tensor column_sums(at::TensorList parts, const at::Tensor& beside = {});

}  // namespace tpgm
