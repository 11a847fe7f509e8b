// Resizing as Pillow and torchvision do it.
#pragma once

#include <utility>

#include "tpgm/base/text.h"
#include "tpgm/data/image.h"

namespace tpgm {

enum class Interpolation { kBilinear, kBicubic };

template <>
struct Words<Interpolation> {
  static constexpr std::pair<Interpolation, const char*> all[] = {{Interpolation::kBicubic, "bicubic"},
                                                                  {Interpolation::kBilinear, "bilinear"}};
};

/// With antialiasing: within one grey level of Pillow's Image.resize, as long as that works on rows first.
/// Version 13 takes the columns first where that is less work, and then rounds otherwise: a fifth of the
/// values differ by one level, a few by several.
Image resize(const Image& image, int64_t width, int64_t height, Interpolation interpolation);

}  // namespace tpgm
