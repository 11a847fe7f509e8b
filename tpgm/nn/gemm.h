// Matrix products of models. In bf16 on a GPU like those that were measured they are kernels/gemm.h's, chosen
// by timing where they are large and convolutions are too (`benchmarkCuDNN` in LibTorch's context, and not
// `deterministicAlgorithms`); in fp32 on some CPUs large ones run in oneDNN (one_dnn.h); elsewhere they are
// ATen's.
#pragma once

#include <ATen/core/Tensor.h>

namespace tpgm {

/// x [..., n] as a matrix [rows, n].
inline at::Tensor as_rows(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

/// a [rows, inner] · b [inner, cols], plus `bias` [cols] where it is defined; all of one type. Takes no
/// gradient.
at::Tensor product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias = {});

/// The same into `out` [rows, cols], or added to what it holds.
void gemm_into(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, bool add = false);

/// x [..., in] · weightᵀ [in, out] for autograd, plus `bias` [out] where it is defined. Operands of
/// several types are left to at::linear, and to autocast.
at::Tensor linear_gemm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});

}  // namespace tpgm
