// The transforms from an encoded image to the square input of a model, as in torchvision and timm.
#pragma once

#include <torch/arg.h>

#include <array>
#include <utility>

#include "tpgm/base/text.h"
#include "tpgm/data/augment.h"
#include "tpgm/data/formats/encoded_image.h"
#include "tpgm/data/random.h"
#include "tpgm/data/resize.h"

namespace tpgm {

enum class Decode {
  kExact,  // Pillow's pixels
  kFast,   // EncodedImage::decode_fast()
};

template <>
struct Keywords<Decode> {
  static constexpr std::pair<Decode, const char*> all[] = {{Decode::kExact, "exact"},
                                                           {Decode::kFast, "fast"}};
};

/// torchvision's Resize(floor(image_size / crop_pct)) of the shorter side and CenterCrop(image_size).
struct EvalViewOptions {
  TORCH_ARG(int64_t, image_size) = 224;
  /// As in timm: the share of the resized image's shorter side that is kept. 1 for CLIP.
  TORCH_ARG(double, crop_pct) = 0.875;
  TORCH_ARG(Interpolation, interpolation) = Interpolation::kBicubic;
  TORCH_ARG(Decode, decode) = Decode::kExact;
};

/// torchvision's RandomResizedCrop and RandomHorizontalFlip, then RandomAffine, ColorJitter and RandAugment
/// (augment.h).
struct TrainViewOptions {
  using Range = std::array<double, 2>;
  TORCH_ARG(int64_t, image_size) = 224;
  /// Area of the crop / area of the image.
  TORCH_ARG(Range, scale) = { 0.08, 1 };
  /// Width / height of the crop; its logarithm is uniform.
  TORCH_ARG(Range, ratio) = { 3.0 / 4, 4.0 / 3 };
  /// Probability of a horizontal flip.
  TORCH_ARG(double, hflip) = 0.5;
  TORCH_ARG(AffineOptions, affine);
  TORCH_ARG(ColorJitterOptions, color_jitter);
  TORCH_ARG(RandAugmentOptions, rand_augment);
  TORCH_ARG(Interpolation, interpolation) = Interpolation::kBicubic;
  TORCH_ARG(Decode, decode) = Decode::kFast;
};

/// Return image_size × image_size × 3 pixels. eval_view() pads an image that is smaller than the crop with
/// black.
Image eval_view(EncodedImage& encoded, const EvalViewOptions& options);
Image train_view(EncodedImage& encoded, const TrainViewOptions& options, Random& random);

/// The crop of RandomResizedCrop: the first of ten random boxes that fits, else the largest central one
/// within `ratio`.
Box random_crop(int64_t width, int64_t height, const TrainViewOptions& options, Random& random);

}  // namespace tpgm
