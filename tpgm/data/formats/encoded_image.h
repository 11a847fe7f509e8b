// Decodes an image or a part of it, in any format of format.cpp, recognized by its content.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "tpgm/data/image.h"

namespace tpgm {

class ImageDecoder;

/// Pillow's limit, above which it refuses an image as a decompression bomb.
inline constexpr int64_t kMaxPixels = 178'956'970;

/// Pixels are those of Pillow's Image.open(file).convert("RGB"):
///   - gray is repeated, alpha is dropped, palettes are looked up, and CMYK is read as Adobe's inverted CMYK;
///   - of 16 bits per color the upper 8 are kept, while 16-bit gray is clipped at 255;
///   - the EXIF orientation is ignored.
/// As in Pillow, a file that ends before its last row is an error, and wrong bits inside a JPEG are not.
///
/// Throws Malformed (base/untrusted.h), to which the caller adds the name of the file. Not thread-safe: use
/// one object per thread.
class EncodedImage {
 public:
  /// Reads only the header. `encoded` must outlive the object. An image of more than `max_pixels` is refused
  /// before any memory is allocated for it.
  explicit EncodedImage(std::string_view encoded, int64_t max_pixels = kMaxPixels);
  /// An image of 3 channels that is already decoded.
  explicit EncodedImage(std::shared_ptr<const Image> decoded);
  ~EncodedImage();
  EncodedImage(const EncodedImage&) = delete;
  EncodedImage& operator=(const EncodedImage&) = delete;

  int64_t width() const;
  int64_t height() const;

  /// The whole image.
  Image decode();
  /// The pixels of `box`, exactly as in decode(). If the format allows it, the rest of the image is not
  /// decoded, and damage there goes unnoticed.
  Image decode(const Box& box);
  /// Approximately the pixels of `box`, for resizing to `width` × `height`. A JPEG is decoded at 1/2, 1/4 or
  /// 1/8 of its size if that leaves enough pixels, and with libjpeg's faster upsampling of colors. The
  /// result covers `box` up to one pixel of the result.
  Image decode_fast(const Box& box, int64_t width, int64_t height);

 private:
  std::unique_ptr<ImageDecoder> format_;
};

}  // namespace tpgm
