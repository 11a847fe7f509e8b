// GEMMs and convolutions that run in oneDNN: on non-Intel CPUs with AVX-512, large fp32 GEMMs are faster
// there than in MKL. runs_in_one_dnn() decides, and is false on all other machines.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>

namespace tpgm {

/// Whether a [rows, inner] · b [inner, cols] runs in oneDNN, where `b` has the type `other`. Both must be
/// dense.
bool runs_in_one_dnn(const at::Tensor& a, at::ScalarType other, int64_t rows, int64_t cols, int64_t inner);
/// Whether x [..., in] · weightᵀ [in, out] runs in oneDNN.
bool runs_in_one_dnn(const at::Tensor& x, const at::Tensor& weight);

/// a · b + bias, as gemm() (gemm.h). Nothing if it does not run in oneDNN, or if `a` is not dense, as oneDNN
/// would copy it.
std::optional<at::Tensor> one_dnn_gemm(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias);

/// The gradient of weights [out, in]: dyᵀ · x for dy [rows, out] and x [rows, in]. Not differentiable.
at::Tensor weight_gradient(const at::Tensor& dy, const at::Tensor& x);

/// Whether a convolution runs as a GEMM in oneDNN: in channels-last, for few pixels. oneDNN's convolutions
/// reorder weights and their gradients in every call, which takes as long for few pixels as for many; its
/// GEMM takes them as they are.
bool conv_runs_as_gemm(const at::Tensor& x, const at::Tensor& weight, int64_t stride);

/// A differentiable convolution as a GEMM: x [batch, in, height, width], padded by half the side, with weight
/// [out, in, side, side] of odd side, plus `bias` [out] if it is defined.
at::Tensor conv_gemm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, int64_t stride);

}  // namespace tpgm
