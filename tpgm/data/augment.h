// Random augmentation of training images: torchvision's ColorJitter and RandAugment, with Pillow's
// arithmetic.
#pragma once

#include <torch/arg.h>

#include <cstdint>
#include <vector>

#include "tpgm/data/image.h"
#include "tpgm/data/random.h"

namespace tpgm {

/// torchvision's ColorJitter, in a random order: factors are uniform in [max(0, 1 - x), 1 + x], and the hue
/// is shifted by up to `hue` turns either way. 0 leaves a property as it is.
struct ColorJitterOptions {
  TORCH_ARG(double, brightness) = 0;
  TORCH_ARG(double, contrast) = 0;
  TORCH_ARG(double, saturation) = 0;
  TORCH_ARG(double, hue) = 0;
};

/// torchvision's RandAugment with 31 magnitude bins. 0 operations leave the image as it is.
struct RandAugmentOptions {
  TORCH_ARG(int64_t, num_ops) = 0;
  TORCH_ARG(int64_t, magnitude) = 9;
};

/// Change the image in place. They throw for options out of range and for images without 3 channels.
void color_jitter(Image& image, const ColorJitterOptions& options, Random& random);
void rand_augment(Image& image, const RandAugmentOptions& options, Random& random);

/// Each of the two first draws its random choices and then applies them (image_ops.h). Tests call the steps
/// apart.

enum class ColorProperty { kBrightness, kContrast, kSaturation, kHue };
struct ColorChange {
  ColorProperty property;
  double factor;  ///< for kHue the shift in turns
};
std::vector<ColorChange> draw_color_jitter(const ColorJitterOptions& options, Random& random);
void apply(Image& image, const ColorChange& change);

/// In torchvision's order.
enum class RandAugmentOp {
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

/// The argument of the operation for a magnitude: the tangent of a shear, pixels, degrees, a factor minus 1,
/// bits, or a threshold.
double rand_augment_amount(RandAugmentOp op, int64_t magnitude, int64_t width, int64_t height);
/// Whether the amount gets a random sign.
bool has_sign(RandAugmentOp op);

}  // namespace tpgm
