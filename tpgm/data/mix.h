// Mixup and cutmix of batches, and the soft targets that belong to them, as in timm's Mixup.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/arg.h>

#include <cstdint>

#include "tpgm/data/random.h"

namespace tpgm {

/// The names are timm's. Mixing works as with its mode "batch" and correct_lam.
struct MixOptions {
  /// Mixup's alpha: the share of an image is drawn from Beta(alpha, alpha). 0: no mixup.
  TORCH_ARG(double, mixup) = 0;
  /// Cutmix's alpha: the area that stays is drawn from Beta(alpha, alpha). 0: no cutmix.
  TORCH_ARG(double, cutmix) = 0;
  /// Probability that a batch is mixed at all.
  TORCH_ARG(double, prob) = 1;
  /// Probability of cutmix if both are on.
  TORCH_ARG(double, switch_prob) = 0.5;
  /// Label smoothing: the share of a target that is spread over all classes.
  TORCH_ARG(double, smoothing) = 0;
};

/// Throws for options out of range.
void check_options(const MixOptions& options);

/// How one batch is mixed: each image with the image in its place in the reversed batch.
struct Mix {
  bool cutmix = false;
  /// The weight of the image itself; 1: nothing is mixed. For cutmix it is 1 - area of the box / area of the
  /// image.
  double lambda = 1;
  /// The box of cutmix, in pixels; `bottom` and `right` are exclusive.
  int64_t top = 0, bottom = 0, left = 0, right = 0;
};

/// Draws how to mix images of this size. Throws as check_options() does.
Mix draw_mix(const MixOptions& options, int64_t height, int64_t width, Random& random);

/// Returns a new tensor with the memory format, dtype and device of `images` [n, channels, height, width],
/// without waiting for the device; `images` itself if there is nothing to mix. Unlike timm it takes odd
/// batches: their middle image is mixed with itself, and so is its target.
at::Tensor mix_images(const at::Tensor& images, const Mix& mix);

/// The soft targets, float [n, num_classes], of `labels` [n] (int64): smoothing / num_classes everywhere, and
/// the rest shared between the image's label and the label of the image mixed in, with the weights of `mix`.
/// Labels out of range throw on the CPU; on CUDA they are a device-side assertion, later.
at::Tensor mix_targets(const at::Tensor& labels, int64_t num_classes, const Mix& mix, double smoothing = 0);

}  // namespace tpgm
