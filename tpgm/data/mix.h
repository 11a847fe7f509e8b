// Batches mixed with themselves, mixup and cutmix, and the targets that belong to them: timm's Mixup.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/arg.h>

#include <cstdint>

#include "tpgm/data/random.h"

namespace tpgm {

/// timm's words, with its mode "batch" and correct_lam.
struct MixOptions {
  /// Of Beta(alpha, alpha), from which mixup has its share; 0: no mixup.
  TORCH_ARG(double, mixup) = 0;
  /// The same for the area that cutmix leaves; 0: no cutmix.
  TORCH_ARG(double, cutmix) = 0;
  /// Probability that a batch is mixed at all.
  TORCH_ARG(double, prob) = 1;
  /// Probability of cutmix where both are wanted.
  TORCH_ARG(double, switch_prob) = 0.5;
  /// Of labels: this much of each is spread over all classes.
  TORCH_ARG(double, smoothing) = 0;
};

/// Throws for options out of range.
void check_options(const MixOptions& options);

/// What is done to one batch: each image is mixed with the one that the reversed batch has in its place.
struct Mix {
  bool cutmix = false;
  /// How much of an image stays its own; 1: nothing is done. Of cutmix 1 - the box's area / the image's.
  double lambda = 1;
  /// cutmix's box, in pixels; bottom and right are past it.
  int64_t top = 0, bottom = 0, left = 0, right = 0;
};

/// For images of this size. Throws as check_options does.
Mix draw_mix(const MixOptions& options, int64_t height, int64_t width, Random& random);

/// A new tensor in the memory format and dtype of `images` [n, channels, height, width], on their device and
/// without waiting for it; `images` itself where there is nothing to do. timm takes even batches only. Here
/// the middle one of an odd batch stays as it is, which is what its target says, too.
at::Tensor mix_images(const at::Tensor& images, const Mix& mix);

/// float [n, num_classes] for `labels` [n] (int64): smoothing / num_classes everywhere, and the rest where
/// the label and the one that was mixed in are, in the shares of `mix`. Throws for labels out of range on a
/// CPU; on CUDA they are CUDA's error, later.
at::Tensor mix_targets(const at::Tensor& labels, int64_t num_classes, const Mix& mix, double smoothing = 0);

}  // namespace tpgm
