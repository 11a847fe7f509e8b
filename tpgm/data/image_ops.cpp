// Changes the colors and shapes of images as Pillow does, in the same precisions.
#include "tpgm/data/image_ops.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numbers>
#include <utility>

// One binary for all x86 machines. AVX2 without FMA, which would round otherwise than Pillow. The loader chooses between the
// clones before ThreadSanitizer is ready.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define TPGM_FOR_EACH_CPU __attribute__((target_clones("avx2", "default")))
#else
#define TPGM_FOR_EACH_CPU
#endif

namespace tpgm {
namespace {

using Table = std::array<uint8_t, 256>;
using Tables = std::array<Table, 3>;
using Histograms = std::array<std::array<int64_t, 256>, 3>;

void check_rgb(const Image& image, const char* call) {
  TORCH_CHECK(image.channels == 3, "[", call, "] the image has ", image.channels,
              " channels, it takes 3; convert it to RGB");
}

uint8_t clipped(double value) { return static_cast<uint8_t>(value > 0 ? std::min(value, 255.0) : 0); }

uint8_t blend(int from, int to, float factor) {
  const float value = static_cast<float>(from) + factor * static_cast<float>(to - from);
  return static_cast<uint8_t>(static_cast<int>(value > 0 ? std::min(value, 255.0F) : 0.0F));
}

// ITU-R 601, in 16 bits after the point.

template <class Value>
Table table_of(Value&& value) {
  Table table;
  for (int i = 0; i < 256; ++i) table[static_cast<size_t>(i)] = value(i);
  return table;
}

void look_up(Image& image, const Tables& tables) {
  uint8_t* const end = image.pixels.data() + image.pixels.size();
  for (uint8_t* pixel = image.pixels.data(); pixel != end; pixel += 3) {
    for (size_t c = 0; c < 3; ++c) pixel[c] = tables[c][pixel[c]];
  }
}

void look_up(Image& image, const Table& table) { look_up(image, {table, table, table}); }

Histograms histograms(const Image& image) {
  Histograms counts{};
  const uint8_t* const end = image.pixels.data() + image.pixels.size();
  for (const uint8_t* pixel = image.pixels.data(); pixel != end; pixel += 3) {
    for (size_t c = 0; c < 3; ++c) ++counts[c][pixel[c]];
  }
  return counts;
}

Table stretched(const std::array<int64_t, 256>& counts) {
  const auto used = [](int64_t count) { return count > 0; };
  const auto low = std::find_if(counts.begin(), counts.end(), used) - counts.begin();
  const auto high = 255 - (std::find_if(counts.rbegin(), counts.rend(), used) - counts.rbegin());
  if (high <= low) return table_of([](int i) { return static_cast<uint8_t>(i); });
  const double scale = 255.0 / static_cast<double>(high - low);
  const double offset = -static_cast<double>(low) * scale;
  return table_of([&](int i) { return clipped(i * scale + offset); });
}

Table flattened(const std::array<int64_t, 256>& counts) {
  int64_t below = 0, last = 0;  // those before the brightest, and it
  for (const int64_t count : counts) {
    if (count == 0) continue;
    below += last;
    last = count;
  }
  const int64_t step = below / 255;
  if (step == 0) return table_of([](int i) { return static_cast<uint8_t>(i); });
  int64_t sum = step / 2;
  return table_of([&](int i) {
    const int64_t level = sum / step;
    sum += counts[static_cast<size_t>(i)];
    return static_cast<uint8_t>(std::min<int64_t>(level, 255));
  });
}

// Some pixels, channel by channel: so that the compiler makes vectors of them.
struct Block {
  static constexpr size_t kSize = 256;
  std::array<std::array<int, kSize>, 3> channels;
};

// To hue, saturation and value of 8 bits each, and back. On the way back Pillow has fractions, none of which
// is near enough to a half for its roundings to matter.
TPGM_FOR_EACH_CPU void turn_hue(Block& block, int shift) {
  auto& [reds, greens, blues] = block.channels;
  for (size_t i = 0; i < Block::kSize; ++i) {
    const int red = reds[i], green = greens[i], blue = blues[i];
    const int high = std::max(std::max(red, green), blue), low = std::min(std::min(red, green), blue);
    // Red, green and blue form a circle: these are the two after the highest, and where the highest is.
    int next = green == high ? blue : red, last = green == high ? red : green, start = green == high ? 2 : 4;
    next = red == high ? green : next, last = red == high ? blue : last, start = red == high ? 0 : start;

    const auto range = static_cast<float>(std::max(high - low, 1));
    const float more = static_cast<float>(high - last) / range,
                less = static_cast<float>(high - next) / range;
    const auto sixths = static_cast<float>(static_cast<double>(start) + more - less);
    const double turn = sixths / 6.0 + 1.0;
    const auto fraction = static_cast<float>(turn - static_cast<int>(turn));
    const int hue = (static_cast<int>(fraction * 255.0) + shift) & 255;
    const float purity = static_cast<float>(high - low) / static_cast<float>(std::max(high, 1));
    const int saturation = static_cast<int>(purity * 255.0);

    const auto channel = [&](int sixth) __attribute__((always_inline)) {
      int place = 2 * hue + 85 * sixth;  // of 6 * 85
      place = place < 510 ? place : place - 510;
      const int missing = std::max(std::min(std::min(place, 340 - place), 85), 0);
      const auto full = static_cast<float>(255 * 85);
      const float value =
          static_cast<float>(high) * (full - static_cast<float>(saturation) * static_cast<float>(missing));
      return static_cast<int>(value / full + 0.5F);
    };
    reds[i] = channel(5);
    greens[i] = channel(3);
    blues[i] = channel(1);
  }
}

// Each pixel from where `matrix`, of two rows, says that its center comes from.
void warp(Image& image, const std::array<double, 6>& matrix) {
  // 16 bits after the point, as in Pillow.
  const auto fixed = [](double x) { return static_cast<int64_t>(std::floor(x * 65536 + 0.5)); };
  const auto [a, b, c, d, e, f] = matrix;
  const int64_t x_step = fixed(a), y_step = fixed(d), x_row = fixed(b), y_row = fixed(e);
  const int64_t x_first = fixed(c + a * 0.5 + b * 0.5), y_first = fixed(f + d * 0.5 + e * 0.5);
  Image result(image.width, image.height);
  for (int64_t row = 0; row < image.height; ++row) {
    int64_t x = x_first + row * x_row, y = y_first + row * y_row;
    uint8_t* out = result.row(row);
    for (int64_t column = 0; column < image.width; ++column, x += x_step, y += y_step, out += 3) {
      const int64_t from_x = x >> 16, from_y = y >> 16;
      if (from_x < 0 || from_x >= image.width || from_y < 0 || from_y >= image.height) continue;
      std::memcpy(out, image.row(from_y) + 3 * from_x, 3);
    }
  }
  image = std::move(result);
}

// The same with bilinear sampling in doubles, whose results are cut to integers, as in Pillow.
void warp_smoothly(Image& image, const std::array<double, 6>& matrix) {
  const auto [a, b, c, d, e, f] = matrix;
  const auto width = static_cast<double>(image.width), height = static_cast<double>(image.height);
  Image result(image.width, image.height);
  for (int64_t row = 0; row < image.height; ++row) {
    uint8_t* out = result.row(row);
    for (int64_t column = 0; column < image.width; ++column, out += 3) {
      const double to_x = static_cast<double>(column) + 0.5, to_y = static_cast<double>(row) + 0.5;
      const double x = a * to_x + b * to_y + c, y = d * to_x + e * to_y + f;
      if (x < 0 || x >= width || y < 0 || y >= height) continue;
      const double left = std::floor(x - 0.5), top = std::floor(y - 0.5);
      const double right_share = x - 0.5 - left, bottom_share = y - 0.5 - top;
      const auto clamped = [](double at, int64_t size) {
        return std::clamp<int64_t>(static_cast<int64_t>(at), 0, size - 1);
      };
      const uint8_t* const above = image.row(clamped(top, image.height));
      const uint8_t* const below = image.row(clamped(top + 1, image.height));
      const int64_t first = 3 * clamped(left, image.width), second = 3 * clamped(left + 1, image.width);
      for (int64_t k = 0; k < 3; ++k) {
        const auto between = [&](const uint8_t* line) {
          return line[first + k] + (line[second + k] - line[first + k]) * right_share;
        };
        const double upper = between(above);
        out[k] = static_cast<uint8_t>(upper + (between(below) - upper) * bottom_share);
      }
    }
  }
  image = std::move(result);
}

}  // namespace

void adjust_brightness(Image& image, double factor) {
  check_rgb(image, "adjust_brightness");
  look_up(image, table_of([&](int i) { return blend(0, i, static_cast<float>(factor)); }));
}

void adjust_contrast(Image& image, double factor) {
  check_rgb(image, "adjust_contrast");
  int64_t sum = 0;
  const uint8_t* const end = image.pixels.data() + image.pixels.size();
  for (const uint8_t* pixel = image.pixels.data(); pixel != end; pixel += 3) sum += grey(pixel);
  const auto count = static_cast<double>(std::max<int64_t>(image.width * image.height, 1));
  const int mean = static_cast<int>(static_cast<double>(sum) / count + 0.5);
  look_up(image, table_of([&](int i) { return blend(mean, i, static_cast<float>(factor)); }));
}

void adjust_saturation(Image& image, double factor) {
  check_rgb(image, "adjust_saturation");
  uint8_t* const end = image.pixels.data() + image.pixels.size();
  for (uint8_t* pixel = image.pixels.data(); pixel != end; pixel += 3) {
    const int from = grey(pixel);
    for (int c = 0; c < 3; ++c) pixel[c] = blend(from, pixel[c], static_cast<float>(factor));
  }
}

void adjust_sharpness(Image& image, double factor) {
  check_rgb(image, "adjust_sharpness");
  const Image original = image;
  const int64_t last = 3 * (image.width - 1);
  for (int64_t y = 1; y < image.height - 1; ++y) {  // the border stays as it is
    const uint8_t *above = original.row(y - 1), *here = original.row(y), *below = original.row(y + 1);
    uint8_t* const out = image.row(y);
    for (int64_t x = 3; x < last; ++x) {
      const int sum = above[x - 3] + above[x] + above[x + 3] + here[x - 3] + 5 * here[x] + here[x + 3] +
                      below[x - 3] + below[x] + below[x + 3];
      out[x] = blend(static_cast<uint16_t>(sum + 6) / 13, here[x], static_cast<float>(factor));
    }
  }
}

void adjust_hue(Image& image, double turn) {
  check_rgb(image, "adjust_hue");
  TORCH_CHECK(turn >= -0.5 && turn <= 0.5, "[adjust_hue] a turn of ", turn, "; choose one from -0.5 to 0.5");
  const int shift = static_cast<int>(turn * 255);
  const size_t count = image.pixels.size() / 3;
  Block block{};
  for (size_t first = 0; first < count; first += Block::kSize) {
    uint8_t* const pixels = image.pixels.data() + 3 * first;
    const size_t size = std::min(Block::kSize, count - first);
    for (size_t i = 0; i < size; ++i) {
      for (size_t c = 0; c < 3; ++c) block.channels[c][i] = pixels[3 * i + c];
    }
    turn_hue(block, shift);
    for (size_t i = 0; i < size; ++i) {
      for (size_t c = 0; c < 3; ++c) pixels[3 * i + c] = static_cast<uint8_t>(block.channels[c][i]);
    }
  }
}

void posterize(Image& image, int64_t bits) {
  check_rgb(image, "posterize");
  TORCH_CHECK(bits >= 1 && bits <= 8, "[posterize] ", bits, " bits; choose from 1 to 8");
  const int mask = 0xff00 >> bits;
  look_up(image, table_of([&](int i) { return static_cast<uint8_t>(i & mask); }));
}

void solarize(Image& image, double threshold) {
  check_rgb(image, "solarize");
  look_up(image, table_of([&](int i) { return static_cast<uint8_t>(i < threshold ? i : 255 - i); }));
}

void autocontrast(Image& image) {
  check_rgb(image, "autocontrast");
  const Histograms counts = histograms(image);
  look_up(image, {stretched(counts[0]), stretched(counts[1]), stretched(counts[2])});
}

void equalize(Image& image) {
  check_rgb(image, "equalize");
  const Histograms counts = histograms(image);
  look_up(image, {flattened(counts[0]), flattened(counts[1]), flattened(counts[2])});
}

void shear_x(Image& image, double tangent) {
  check_rgb(image, "shear_x");
  warp(image, {1, tangent, 0, 0, 1, 0});
}

void shear_y(Image& image, double tangent) {
  check_rgb(image, "shear_y");
  warp(image, {1, 0, 0, tangent, 1, 0});
}

void translate(Image& image, int64_t right, int64_t down) {
  check_rgb(image, "translate");
  right = std::clamp(right, -image.width, image.width), down = std::clamp(down, -image.height, image.height);
  warp(image, {1, 0, -static_cast<double>(right), 0, 1, -static_cast<double>(down)});
}

void rotate(Image& image, double degrees) {
  check_rgb(image, "rotate");
  // Pillow rounds so that quarter turns are exact.
  const auto rounded = [](double x) { return std::round(x * 1e15) / 1e15; };
  const double angle = degrees / 180 * std::numbers::pi;
  const double cosine = rounded(std::cos(angle)), sine = rounded(std::sin(angle));
  const double x = static_cast<double>(image.width) / 2, y = static_cast<double>(image.height) / 2;
  warp(image, {cosine, -sine, x - cosine * x + sine * y, sine, cosine, y - sine * x - cosine * y});
}

void affine(Image& image, double degrees, int64_t right, int64_t down, double scale) {
  check_rgb(image, "affine");
  TORCH_CHECK(scale > 0 && std::isfinite(scale), "[affine] a scale of ", scale, "; choose one above 0");
  const double angle = degrees / 180 * std::numbers::pi;
  const double a = std::cos(angle) / scale, b = std::sin(angle) / scale;  // of the inverse, [a b; −b a]
  const double center_x = static_cast<double>(image.width) * 0.5,
               center_y = static_cast<double>(image.height) * 0.5;
  const double x = -center_x - static_cast<double>(right), y = -center_y - static_cast<double>(down);
  warp_smoothly(image, {a, b, a * x + b * y + center_x, -b, a, -b * x + a * y + center_y});
}

}  // namespace tpgm
