// BatchNorm and what follows it as one operation, and other kernels for feature maps; see
// kernels/batch_norm.h.
#pragma once

#include <ATen/core/Tensor.h>

#include "tpgm/kernels/batch_norm.h"

namespace tpgm {

/// One tensor under two names, for its two readers: their gradients then meet in the kernel that made it, not
/// in an addition before that.
struct Twice {
  at::Tensor first, second;
};

/// What follows a normalisation, in this order.
struct AfterNorm {
  at::Tensor residual{};  ///< to add; undefined: none
  bool relu = true;
  kernels::Pool pool = kernels::Pool::kNone;  ///< not with a residual
};

/// With `bias` alone it adds that, and no more; see FoldedNorms.
struct NormTensors {
  at::Tensor weight{}, bias{}, running_mean{}, running_var{}, num_batches_tracked{};
};

struct NormOptions {
  bool training = true;  ///< with the batch's statistics, which move the running ones
  double momentum = 0.1, eps = 1e-5;
};

/// True where the operation is worth having: maps of bf16 or fp32 in channels-last order on a GPU that it was
/// measured on (Hopper or later), with as many channels as vectors need.
bool fuses_norm(const at::Tensor& x, const NormTensors& norm, const AfterNorm& after);

/// A convolution of images with few channels, of odd side and stride 2, padded by half its side: the same
/// as one of stride 1 over maps of 16 channels (kernels::SpaceToDepth), which tensor cores are twice as fast
/// at. In bf16.
bool folds_stride(const at::Tensor& x, const at::Tensor& weight, int64_t stride);
at::Tensor folded_conv2d(const at::Tensor& x, const at::Tensor& weight);

/// at::avg_pool2d(x, 2), by a kernel of ours where it takes x: LibTorch's is slow on channels-last maps.
at::Tensor mean_pool(const at::Tensor& x);

/// Throws if a channel has one value: a batch has no variance then.
void check_values_per_channel(const at::Tensor& x);

/// pool(relu(norm(x) + residual)). On the CPU, for tests: channels-last too, fp32 and fp64.
Twice fused_norm(const at::Tensor& x, const NormTensors& norm, const AfterNorm& after,
                 const NormOptions& options);

}  // namespace tpgm
