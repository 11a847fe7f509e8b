// Glyphs stretched to one size and compared.
#include "tpgm/data/glyphs/alike.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace tpgm {
namespace {

constexpr int64_t kSide = 12;
constexpr uint8_t kBright = 64;

using Shape = std::array<double, kSide * kSide>;

// Mean 0, length 1.
Shape shape_of(const Image& image) {
  const Box box = ink_box(image);
  Shape shape{};
  constexpr int64_t kSamples = 4;  // of a cell, each way
  for (int64_t y = 0; y < kSide * kSamples; ++y) {
    const uint8_t* row = image.row(box.top + (2 * y + 1) * box.height / (2 * kSide * kSamples));
    for (int64_t x = 0; x < kSide * kSamples; ++x) {
      shape[y / kSamples * kSide + x / kSamples] +=
          row[box.left + (2 * x + 1) * box.width / (2 * kSide * kSamples)];
    }
  }
  double mean = 0, square = 0;
  for (const double value : shape) mean += value / shape.size();
  for (const double value : shape) square += (value - mean) * (value - mean);
  for (double& value : shape) value = (value - mean) / std::sqrt(std::max(square, 1e-12));
  return shape;
}

}  // namespace

Box ink_box(const Image& image) {
  int64_t left = image.width, top = image.height, right = -1, bottom = -1;
  for (int64_t y = 0; y < image.height; ++y) {
    for (int64_t x = 0; x < image.width; ++x) {
      if (image.row(y)[x] < kBright) continue;
      left = std::min(left, x), right = std::max(right, x);
      top = std::min(top, y), bottom = std::max(bottom, y);
    }
  }
  TORCH_CHECK(right >= 0, "[ink_box] the image is empty");
  return {left, top, right - left + 1, bottom - top + 1};
}

double likeness(const Image& a, const Image& b) {
  const Shape x = shape_of(a), y = shape_of(b);
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

bool draws_capitals_only(const std::vector<Image>& images) {
  // Those whose small form is not a capital's in most fonts.
  constexpr std::string_view kLetters = "abdefghlmnqrty";
  std::vector<double> alike;
  for (const char letter : kLetters) {
    alike.push_back(likeness(images[10 + letter - 'a'], images[36 + letter - 'a']));
  }
  const auto median = alike.begin() + static_cast<int64_t>(alike.size() / 2);
  std::nth_element(alike.begin(), median, alike.end());
  return *median > 0.9;
}

}  // namespace tpgm
