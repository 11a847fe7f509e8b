// Image formats: what an EncodedImage asks of one, and the table of those that are read. A new one is a file
// and a row in format.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tpgm/data/image.h"

namespace tpgm {

/// One encoded image; the methods are EncodedImage's, and may each be called more than once.
class ImageDecoder {
 public:
  virtual ~ImageDecoder() = default;
  virtual Image decode() = 0;
  virtual Image decode(const Box& box) = 0;
  virtual Image decode_fast(const Box& box, int64_t width, int64_t height) = 0;

  int64_t width = 0, height = 0;  // set by whoever reads the header
};

struct ImageFormat {
  const char* name;                        ///< "JPEG"
  std::string_view magic;                  ///< what its files begin with
  std::vector<std::string_view> suffixes;  ///< ".jpg", ".jpeg"; new files take the first
  /// Reads no more than the header; throws Malformed.
  std::unique_ptr<ImageDecoder> (*open)(std::string_view encoded, int64_t max_pixels);
};

const std::vector<ImageFormat>& image_formats();
/// By content; null for what is none of them.
const ImageFormat* format_of(std::string_view encoded);
/// By name, in any case of letters.
bool has_image_suffix(std::string_view name);

/// For messages: "JPEG and PNG".
std::string format_names();
/// ".jpg, .jpeg, .png".
std::string format_suffixes();

/// Throws Malformed unless both are positive and their product is at most `max_pixels`.
void check_size(int64_t width, int64_t height, int64_t max_pixels);

std::unique_ptr<ImageDecoder> open_jpeg(std::string_view encoded, int64_t max_pixels);
std::unique_ptr<ImageDecoder> open_png(std::string_view encoded, int64_t max_pixels);

}  // namespace tpgm
