// Resizes images as Pillow and torchvision do.
#pragma once

#include <utility>

#include "tpgm/base/text.h"
#include "tpgm/data/image.h"

namespace tpgm {

enum class Interpolation { kBilinear, kBicubic };

template <>
struct Keywords<Interpolation> {
  static constexpr std::pair<Interpolation, const char*> all[] = {{Interpolation::kBicubic, "bicubic"},
                                                                  {Interpolation::kBilinear, "bilinear"}};
};

/// Resizes with antialiasing. The result is within one gray level of Pillow's Image.resize if Pillow resizes
/// rows first. Pillow 13 resizes columns first where that is less work, and rounds differently then: a fifth
/// of the values differ by one level, and a few by more.
Image resize(const Image& image, int64_t width, int64_t height, Interpolation interpolation);

}  // namespace tpgm
