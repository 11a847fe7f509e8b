// What Picture asks of a format.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "tpgm/data/image.h"

namespace tpgm {

/// One file; the methods are Picture's, and may each be called more than once.
class PictureFormat {
 public:
  virtual ~PictureFormat() = default;
  virtual Image decode() = 0;
  virtual Image decode(const Box& box) = 0;
  virtual Image decode_fast(const Box& box, int64_t width, int64_t height) = 0;

  int64_t width = 0, height = 0;  // set by whoever reads the header
};

/// Throws Malformed unless both are positive and their product is at most `max_pixels`.
void check_size(int64_t width, int64_t height, int64_t max_pixels);

std::unique_ptr<PictureFormat> open_jpeg(std::string_view encoded, int64_t max_pixels);
std::unique_ptr<PictureFormat> open_png(std::string_view encoded, int64_t max_pixels);

}  // namespace tpgm
