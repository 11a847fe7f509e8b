// Colours and shapes of training images changed at random, as torchvision changes them with Pillow.
#pragma once

#include <torch/arg.h>

#include <cstdint>
#include <vector>

#include "tpgm/data/image.h"
#include "tpgm/data/random.h"

namespace tpgm {

/// torchvision's ColorJitter: each factor from [max(0, 1 - x), 1 + x], the hue from [-hue, hue] of a turn, in
/// a random order. 0 leaves a property alone.
struct ColorJitterOptions {
  TORCH_ARG(double, brightness) = 0;
  TORCH_ARG(double, contrast) = 0;
  TORCH_ARG(double, saturation) = 0;
  TORCH_ARG(double, hue) = 0;
};

/// torchvision's RandAugment with its 31 magnitudes. 0 operations leave the image alone.
struct RandAugmentOptions {
  TORCH_ARG(int64_t, num_ops) = 0;
  TORCH_ARG(int64_t, magnitude) = 9;
};

/// Both throw for options out of range. Images have 3 channels.
void color_jitter(Image& image, const ColorJitterOptions& options, Random& random);
void rand_augment(Image& image, const RandAugmentOptions& options, Random& random);

/// What these two are made of: what is drawn, and what that does (image_ops.h).

enum class ColorProperty { kBrightness, kContrast, kSaturation, kHue };
struct ColorChange {
  ColorProperty property;
  double factor;  // of kHue the turn
};
std::vector<ColorChange> draw_color_jitter(const ColorJitterOptions& options, Random& random);
void apply(Image& image, const ColorChange& change);

enum class RandAugmentOp {  // in torchvision's order
  kIdentity,
  kShearX,
  kShearY,
  kTranslateX,
  kTranslateY,
  kRotate,
  kBrightness,
  kColor,
  kContrast,
  kSharpness,
  kPosterize,
  kSolarize,
  kAutoContrast,
  kEqualize,
};
inline constexpr int64_t kRandAugmentOps = 14;
inline constexpr int64_t kRandAugmentMagnitudes = 31;

struct RandAugmentChange {
  RandAugmentOp op;
  int64_t magnitude;
  bool negative;
};
std::vector<RandAugmentChange> draw_rand_augment(const RandAugmentOptions& options, Random& random);
void apply(Image& image, const RandAugmentChange& change);

/// What the magnitude means to the operation: a slope, pixels, degrees, a factor less 1, bits, or a
/// threshold.
double rand_augment_amount(RandAugmentOp op, int64_t magnitude, int64_t width, int64_t height);
/// Whether a random sign goes with the amount.
bool has_sign(RandAugmentOp op);

}  // namespace tpgm
