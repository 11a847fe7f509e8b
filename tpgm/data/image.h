// An image in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tpgm {

/// Rows of `width` pixels from the top, `channels` bytes each: 3 (red, green, blue) or 1 (gray).
struct Image {
  int64_t width = 0, height = 0;
  int64_t channels = 3;
  std::vector<uint8_t> pixels;

  Image() = default;
  Image(int64_t width, int64_t height, int64_t channels = 3)
      : width(width),
        height(height),
        channels(channels),
        pixels(static_cast<size_t>(width * height * channels)) {}

  uint8_t* row(int64_t y) { return pixels.data() + y * width * channels; }
  const uint8_t* row(int64_t y) const { return pixels.data() + y * width * channels; }
};

/// The gray value of an RGB pixel, with the weights of Pillow's convert("L").
inline uint8_t grey(const uint8_t* rgb) {
  return static_cast<uint8_t>((19595 * rgb[0] + 38470 * rgb[1] + 7471 * rgb[2] + 0x8000) >> 16);
}

/// A part of an image, in pixels.
struct Box {
  int64_t left = 0, top = 0, width = 0, height = 0;
};

}  // namespace tpgm
