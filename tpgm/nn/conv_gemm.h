// Convolutions of few pixels as matrix products, on the CPU.
#pragma once

#include <ATen/core/Tensor.h>

namespace tpgm {

/// Whether that is worth it: in fp32 and channels-last, where oneDNN's products are the faster ones
/// (products.h). Its convolutions lay their weights out anew in every call, and their gradients back, which
/// takes as long for a few pixels as for many; products take both as they lie.
bool multiplies_pixels(const at::Tensor& x, const at::Tensor& weight, int64_t stride);

/// x [batch, in, height, width] with weight [out, in, side, side], whose side is odd, padded by half of it,
/// plus `bias` [out] where it is defined; for autograd.
at::Tensor pixel_products(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                          int64_t stride);

}  // namespace tpgm
