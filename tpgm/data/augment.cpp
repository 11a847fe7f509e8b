// Draws the changes of RandomAffine, ColorJitter and RandAugment, and applies them.
#include "tpgm/data/augment.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>

#include "tpgm/data/image_ops.h"

namespace tpgm {

AffineChange draw_affine(const AffineOptions& options, int64_t width, int64_t height, Random& random) {
  const double degrees = options.degrees(), translate = options.translate(), scale = options.scale();
  TORCH_CHECK(degrees >= 0 && std::isfinite(degrees), "[random_affine] degrees is ", degrees,
              "; choose 0 or more");
  TORCH_CHECK(translate >= 0 && translate <= 1, "[random_affine] translate is ", translate,
              "; choose from 0 to 1 of the image");
  TORCH_CHECK(scale >= 0 && scale < 1, "[random_affine] scale is ", scale, "; choose 0 or more, and below 1");
  AffineChange change;
  change.degrees = random.uniform(-degrees, degrees);
  const auto shift = [&](int64_t size) {
    const double most = translate * static_cast<double>(size);
    return static_cast<int64_t>(std::nearbyint(random.uniform(-most, most)));
  };
  change.right = shift(width);
  change.down = shift(height);
  change.scale = random.uniform(1 - scale, 1 + scale);
  return change;
}

void apply(Image& image, const AffineChange& change) {
  affine(image, change.degrees, change.right, change.down, change.scale);
}

void random_affine(Image& image, const AffineOptions& options, Random& random) {
  if (options.degrees() == 0 && options.translate() == 0 && options.scale() == 0) return;
  apply(image, draw_affine(options, image.width, image.height, random));
}

std::vector<ColorChange> draw_color_jitter(const ColorJitterOptions& options, Random& random) {
  std::vector<ColorChange> changes;
  const auto draw = [&](ColorProperty property, const char* name, double extent) {
    TORCH_CHECK(extent >= 0 && std::isfinite(extent), "[color_jitter] ", name, " is ", extent,
                "; choose 0 or more");
    if (extent > 0) changes.push_back({property, random.uniform(std::max(0.0, 1 - extent), 1 + extent)});
  };
  draw(ColorProperty::kBrightness, "brightness", options.brightness());
  draw(ColorProperty::kContrast, "contrast", options.contrast());
  draw(ColorProperty::kSaturation, "saturation", options.saturation());
  const double hue = options.hue();
  TORCH_CHECK(hue >= 0 && hue <= 0.5, "[color_jitter] hue is ", hue, "; choose from 0 to 0.5 of a turn");
  if (hue > 0) changes.push_back({ColorProperty::kHue, random.uniform(-hue, hue)});
  random.shuffle(changes);
  return changes;
}

void apply(Image& image, const ColorChange& change) {
  using enum ColorProperty;
  switch (change.property) {
    case kBrightness:
      return adjust_brightness(image, change.factor);
    case kContrast:
      return adjust_contrast(image, change.factor);
    case kSaturation:
      return adjust_saturation(image, change.factor);
    case kHue:
      return adjust_hue(image, change.factor);
  }
}

void color_jitter(Image& image, const ColorJitterOptions& options, Random& random) {
  for (const ColorChange& change : draw_color_jitter(options, random)) apply(image, change);
}

bool has_sign(RandAugmentOp op) { return op >= RandAugmentOp::kShearX && op <= RandAugmentOp::kSharpness; }

double rand_augment_amount(RandAugmentOp op, int64_t magnitude, int64_t width, int64_t height) {
  // torch.linspace(0, end, 31) to the bit: it counts from both ends, and rounds once on machines with FMA.
  const auto up_to = [&](double end) {
    constexpr int64_t kLast = kRandAugmentMagnitudes - 1;
    const auto last = static_cast<float>(end), step = last / static_cast<float>(kLast);
    return magnitude < kLast / 2 ? step * static_cast<float>(magnitude)
                                 : std::fma(-step, static_cast<float>(kLast - magnitude), last);
  };
  using enum RandAugmentOp;
  switch (op) {
    case kShearX:
    case kShearY:
      return up_to(0.3);
    case kTranslateX:
      return up_to(150.0 / 331.0 * static_cast<double>(width));
    case kTranslateY:
      return up_to(150.0 / 331.0 * static_cast<double>(height));
    case kRotate:
      return up_to(30);
    case kBrightness:
    case kColor:
    case kContrast:
    case kSharpness:
      return up_to(0.9);
    case kPosterize:
      return 8 - std::round(static_cast<double>(magnitude) / 7.5);
    case kSolarize:
      return 255 - up_to(255);
    case kIdentity:
    case kAutoContrast:
    case kEqualize:
      break;
  }
  return 0;
}

std::vector<RandAugmentChange> draw_rand_augment(const RandAugmentOptions& options, Random& random) {
  TORCH_CHECK(options.num_ops() >= 0, "[rand_augment] num_ops is ", options.num_ops(), "; choose 0 or more");
  TORCH_CHECK(options.magnitude() >= 0 && options.magnitude() < kRandAugmentMagnitudes,
              "[rand_augment] the magnitude is ", options.magnitude(), "; choose from 0 to ",
              kRandAugmentMagnitudes - 1);
  std::vector<RandAugmentChange> changes;
  for (int64_t i = 0; i < options.num_ops(); ++i) {
    const auto op = static_cast<RandAugmentOp>(random.integer(kRandAugmentOps));
    changes.push_back({op, options.magnitude(), has_sign(op) && random.integer(2) == 1});
  }
  return changes;
}

void apply(Image& image, const RandAugmentChange& change) {
  double amount = rand_augment_amount(change.op, change.magnitude, image.width, image.height);
  if (change.negative) amount = -amount;
  using enum RandAugmentOp;
  switch (change.op) {
    case kIdentity:
      return;
    case kShearX:
      return shear_x(image, amount);
    case kShearY:
      return shear_y(image, amount);
    case kTranslateX:
      return translate(image, static_cast<int64_t>(amount), 0);
    case kTranslateY:
      return translate(image, 0, static_cast<int64_t>(amount));
    case kRotate:
      return rotate(image, amount);
    case kBrightness:
      return adjust_brightness(image, 1 + amount);
    case kColor:
      return adjust_saturation(image, 1 + amount);
    case kContrast:
      return adjust_contrast(image, 1 + amount);
    case kSharpness:
      return adjust_sharpness(image, 1 + amount);
    case kPosterize:
      return posterize(image, static_cast<int64_t>(amount));
    case kSolarize:
      return solarize(image, amount);
    case kAutoContrast:
      return autocontrast(image);
    case kEqualize:
      return equalize(image);
  }
}

void rand_augment(Image& image, const RandAugmentOptions& options, Random& random) {
  for (const RandAugmentChange& change : draw_rand_augment(options, random)) apply(image, change);
}

}  // namespace tpgm
