// A transformer's passes around its matrix products as operations for autograd; see kernels/residual.h.
// None of them can be differentiated twice.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "tpgm/kernels/residual.h"

namespace tpgm {

/// The type that the branches of a residual stream are computed in.
at::ScalarType branch_type(const at::Tensor& stream);

/// True where the operations below are worth having for a residual stream x [..., width] with such branches:
/// fp32 with bf16 or fp32, on a GPU that they were measured on (Hopper or later), as wide as vectors need.
bool fuses_stream(const at::Tensor& x, at::ScalarType branches);
/// The same for activations and column sums over rows [..., width] of `dtype`.
bool fuses_columns(const at::Tensor& x, at::ScalarType dtype, int64_t width);

struct SumAndNorm {
  at::Tensor sum, normed;
};

/// sum = x + (branch + bias), normed = LayerNorm(sum) in the type `branches`. Without a branch the sum is x
/// under another name: who reads x elsewhere should read that, so that its gradients meet in the kernel, not
/// in an addition before it. bias may be undefined.
SumAndNorm add_layer_norm(const at::Tensor& x, const at::Tensor& branch, const at::Tensor& bias,
                          const at::Tensor& weight, const at::Tensor& shift, double eps,
                          at::ScalarType branches);

/// unit(x Wᵀ + bias); x and weight of one type, whatever the bias's.
at::Tensor linear_act(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      kernels::Unit unit);

/// The sums over all rows of up to three matrices [rows, cols] of one type, one after the other: [parts ·
/// cols] in fp32 (fp64 for fp64). `beside` [rows, parts · cols], where it is defined, gets the matrices
/// themselves, one beside the other. Takes no gradient.
at::Tensor column_sums(at::TensorList parts, const at::Tensor& beside = {});

}  // namespace tpgm
