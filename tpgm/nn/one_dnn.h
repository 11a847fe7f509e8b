// What runs in oneDNN, which is faster than MKL at large fp32 GEMMs on CPUs with AVX-512 that are not
// Intel's. All that depends on the CPU's vendor asks one_dnn_multiplies(); elsewhere it is always false.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>

namespace tpgm {

/// Whether the product [rows, inner] · [inner, cols] of `a` and a tensor of type `other` runs in oneDNN if
/// both are dense.
bool one_dnn_multiplies(const at::Tensor& a, at::ScalarType other, int64_t rows, int64_t cols, int64_t inner);
/// The same of x [..., in] · weightᵀ [in, out].
bool one_dnn_multiplies(const at::Tensor& x, const at::Tensor& weight);

/// a · b + bias as product() has it; nothing where oneDNN does not run, or would copy an `a` that is not
/// dense.
std::optional<at::Tensor> one_dnn_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias);

/// dyᵀ · x, of dy [rows, out] and x [rows, in]: the gradient of weights [out, in]. Takes no gradient itself.
at::Tensor weight_gradient(const at::Tensor& dy, const at::Tensor& x);

/// Whether a convolution of few pixels is worth computing as a product: in channels-last, where that runs in
/// oneDNN. oneDNN's convolutions lay their weights out anew in every call, and their gradients back, which
/// takes as long for a few pixels as for many; products take both as they lie.
bool multiplies_pixels(const at::Tensor& x, const at::Tensor& weight, int64_t stride);

/// x [batch, in, height, width] with weight [out, in, side, side], whose side is odd, padded by half of it,
/// plus `bias` [out] where it is defined; for autograd.
at::Tensor conv_gemm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, int64_t stride);

}  // namespace tpgm
