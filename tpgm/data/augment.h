// Random augmentation of training images: torchvision's RandomAffine, ColorJitter and RandAugment, with Pillow's
// arithmetic.
#pragma once

#include <torch/arg.h>

#include <cstdint>
#include <vector>

#include "tpgm/data/image.h"
#include "tpgm/data/random.h"

namespace tpgm {

/// torchvision's RandomAffine without a shear, with bilinear sampling and black around the image. An angle is uniform in
/// [-degrees, degrees], a shift in each direction in that share of the width or height, and the scale in
/// [1 - scale, 1 + scale].
struct AffineOptions {
  TORCH_ARG(double, degrees) = 0;
  TORCH_ARG(double, translate) = 0;
  TORCH_ARG(double, scale) = 0;
};

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

/// Change the image in place. They throw for options out of range and for images without 3 channels. Without any
/// strength random_affine() leaves the image and the random stream as they are.
void random_affine(Image& image, const AffineOptions& options, Random& random);
void color_jitter(Image& image, const ColorJitterOptions& options, Random& random);
void rand_augment(Image& image, const RandAugmentOptions& options, Random& random);

/// Each of the three first draws its random choices and then applies them (image_ops.h). Tests call the steps
/// apart.

struct AffineChange {
  double degrees = 0;  ///< clockwise
  int64_t right = 0, down = 0;
  double scale = 1;
};
AffineChange draw_affine(const AffineOptions& options, int64_t width, int64_t height, Random& random);
void apply(Image& image, const AffineChange& change);

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
