// Whether glyphs have the same shape, whatever their size.
#pragma once

#include <vector>

#include "tpgm/data/image.h"

namespace tpgm {

/// The smallest box around what is bright enough to see. Throws for an image with nothing in it.
Box ink_box(const Image& image);

/// Correlation of two glyphs, each stretched to the same box: 1 for the same shape.
double likeness(const Image& a, const Image& b);

/// Of the images of 0-9 A-Z a-z: whether most small letters have the shape of their capitals, as in fonts
/// of capitals or small capitals, and in those that draw a box for what they lack.
bool draws_capitals_only(const std::vector<Image>& images);

}  // namespace tpgm
