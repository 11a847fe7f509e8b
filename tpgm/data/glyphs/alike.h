// Compares the shapes of glyphs, whatever their size.
#pragma once

#include <vector>

#include "tpgm/data/image.h"

namespace tpgm {

/// The smallest box around all pixels that are bright enough to see. Throws if there are none.
Box ink_box(const Image& image);

/// The correlation of two glyphs, each stretched to the same box: 1 for the same shape.
double likeness(const Image& a, const Image& b);

/// Takes the images of 0-9 A-Z a-z. True if most small letters have the shape of their capitals, as in fonts
/// of capitals or small capitals, and in fonts that draw a box for a missing letter.
bool draws_capitals_only(const std::vector<Image>& images);

}  // namespace tpgm
