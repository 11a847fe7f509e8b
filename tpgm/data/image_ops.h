// Changes of images' colours and shapes, with Pillow's arithmetic: the bytes are those of torchvision's
// functions of the same names on a PIL image.
#pragma once

#include <cstdint>

#include "tpgm/data/image.h"

namespace tpgm {

/// All change the image in place. They throw for one that has not 3 channels.

/// At a factor of 0 black, grey, grey, or smooth; 1 leaves the image as it is; above, the difference is
/// extrapolated. The grey of adjust_contrast is the mean of the whole image.
void adjust_brightness(Image& image, double factor);
void adjust_contrast(Image& image, double factor);
void adjust_saturation(Image& image, double factor);
void adjust_sharpness(Image& image, double factor);
/// Turns the hue by `turn` ∈ [-0.5, 0.5] of the circle, which torchvision calls hue_factor. Hue, saturation
/// and value are 8 bits each on the way, so that 0 is not quite the identity.
void adjust_hue(Image& image, double turn);

/// Keeps the upper `bits` ∈ [1, 8] of each value.
void posterize(Image& image, int64_t bits);
/// Inverts values from `threshold` on.
void solarize(Image& image, double threshold);
/// Stretches each channel's values to 0..255.
void autocontrast(Image& image);
/// Makes each channel's histogram as flat as a map of values can.
void equalize(Image& image);

/// The nearest pixel, and black from outside. A shear moves by `slope` pixels per row (x, to the left further
/// down) or per column (y, upwards further right), about the top left corner; a rotation is counter-clockwise
/// about the centre.
void shear_x(Image& image, double slope);
void shear_y(Image& image, double slope);
void translate(Image& image, int64_t right, int64_t down);
void rotate(Image& image, double degrees);

}  // namespace tpgm
