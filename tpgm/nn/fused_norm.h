// Fused operations on feature maps: BatchNorm with the residual addition, ReLU and pooling after it, and
// convolutions of small images by space-to-depth (kernels/batch_norm.h).
#pragma once

#include <ATen/core/Tensor.h>

#include "tpgm/kernels/batch_norm.h"

namespace tpgm {

/// The output of one operation, shared by its two uses (a block and its shortcut): the same tensor twice.
/// Autograd passes both gradients to the kernel that made the tensor, which adds them, and so needs no
/// addition of its own.
struct SharedOutput {
  at::Tensor first, second;
};

/// What follows a norm, in this order.
struct AfterNorm {
  at::Tensor residual{};  ///< is added; undefined: none
  bool relu = true;
  kernels::Pool pool = kernels::Pool::kNone;  ///< must be kNone with a residual
};

/// The tensors of a BatchNorm. If only `bias` is defined, the norm is folded (FoldedNorms) and only the bias
/// is added.
struct NormTensors {
  at::Tensor weight{}, bias{}, running_mean{}, running_var{}, num_batches_tracked{};
};

struct NormOptions {
  bool training = true;  ///< normalize by the statistics of the batch, and update the running ones
  double momentum = 0.1, eps = 1e-5;
};

/// True if fused_norm() takes these tensors and is faster than separate operations: feature maps in bf16 or
/// fp32 and channels-last, on a GPU of Hopper or later, on which it was measured, whose channels fill whole
/// vectors.
bool fuses_norm(const at::Tensor& x, const NormTensors& norm, const AfterNorm& after);

/// Whether a convolution runs by space-to-depth: in bf16, for images with few channels, with a kernel of odd
/// size, stride 2 and half the kernel as padding (the stem of a ResNet). It equals a convolution with stride
/// 1 over feature maps of 16 channels (kernels::SpaceToDepth), which is twice as fast on tensor cores.
bool uses_space_to_depth(const at::Tensor& x, const at::Tensor& weight, int64_t stride);
/// That convolution.
at::Tensor space_to_depth_conv2d(const at::Tensor& x, const at::Tensor& weight);

/// at::avg_pool2d(x, 2). Where it can, it runs in our kernel, because LibTorch's is slow in channels-last.
at::Tensor mean_pool(const at::Tensor& x);

/// Throws if a channel has only one value, and so no variance.
void check_values_per_channel(const at::Tensor& x);

/// pool(relu(norm(x) + residual)). The CPU path is an oracle for tests; it takes channels-last fp32 and fp64.
SharedOutput fused_norm(const at::Tensor& x, const NormTensors& norm, const AfterNorm& after,
                        const NormOptions& options);

}  // namespace tpgm
