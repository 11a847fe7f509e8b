// The image operations of augmentation, with Pillow's arithmetic: they give the same bytes as torchvision's
// functions of the same names on a PIL image.
#pragma once

#include <cstdint>

#include "tpgm/data/image.h"

namespace tpgm {

/// All functions change the image in place, and throw unless it has 3 channels.

/// Blend the image with a degenerate one: black (brightness), the mean gray of the image (contrast), the
/// image in gray (saturation), or smoothed (sharpness). Factor 0 gives the degenerate image, 1 the image
/// itself, and more than 1 extrapolates.
void adjust_brightness(Image& image, double factor);
void adjust_contrast(Image& image, double factor);
void adjust_saturation(Image& image, double factor);
void adjust_sharpness(Image& image, double factor);
/// Shifts the hue by `turn` ∈ [-0.5, 0.5] of the color circle (torchvision's hue_factor). Hue, saturation
/// and value are rounded to 8 bits on the way, so 0 is not quite the identity.
void adjust_hue(Image& image, double turn);

/// Keeps the upper `bits` ∈ [1, 8] of each value.
void posterize(Image& image, int64_t bits);
/// Inverts the values that are at least `threshold`.
void solarize(Image& image, double threshold);
/// Stretches each channel's values to 0..255.
void autocontrast(Image& image);
/// Equalizes the histogram of each channel.
void equalize(Image& image);

/// Move pixels with nearest-neighbor sampling, and fill with black. A shear keeps the top left corner in
/// place: shear_x moves each row `tangent` pixels further to the left than the row above it, shear_y each
/// column `tangent` pixels further up than the column to its left. A rotation is counter-clockwise about the
/// center.
void shear_x(Image& image, double tangent);
void shear_y(Image& image, double tangent);
void translate(Image& image, int64_t right, int64_t down);
void rotate(Image& image, double degrees);
/// torchvision's affine without a shear, with bilinear sampling: scales about the center, rotates clockwise about it,
/// and moves the result. What comes from outside of the image is black.
void affine(Image& image, double degrees, int64_t right, int64_t down, double scale);

}  // namespace tpgm
