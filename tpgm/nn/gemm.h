// The GEMMs (matrix multiplications) of models, in the fastest library for their type and size:
//   - in bf16 on GPUs of Hopper or later, cuBLASLt (kernels/gemm.h). Large GEMMs choose the algorithm by timing
//     if convolutions do, too: with `benchmarkCuDNN` and without `deterministicAlgorithms` in LibTorch's context;
//   - in fp32 on some CPUs, oneDNN for large GEMMs (one_dnn.h);
//   - otherwise ATen.
#pragma once

#include <ATen/core/Tensor.h>

namespace tpgm {

/// x [..., n] as a matrix [rows, n].
inline at::Tensor as_rows(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

/// a [rows, inner] · b [inner, cols], plus `bias` [cols] if it is defined; all have one type. Not
/// differentiable.
at::Tensor gemm(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias = {});

/// Writes a · b into `out` [rows, cols], or adds it to `out`. Not differentiable.
void gemm_into(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, bool add = false);

/// The differentiable x [..., in] · weightᵀ [in, out], plus `bias` [out] if it is defined. Operands of
/// different types go to at::linear, where autocast can cast them.
at::Tensor linear_gemm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});

}  // namespace tpgm
