// An encoded image, of which all or a part can be had: JPEG (libjpeg-turbo) and PNG (libpng), told apart by
// their content.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "tpgm/data/image.h"

namespace tpgm {

class ImageDecoder;

/// Pillow's limit, above which it takes an image for a decompression bomb.
inline constexpr int64_t kMaxPixels = 178'956'970;

/// Pixels are those of Pillow's Image.open(file).convert("RGB"): grey is repeated, alpha dropped, CMYK taken
/// for Adobe's inverted one, palettes looked up, of 16 bits a colour the upper 8 kept and grey beyond 255
/// clipped, and nothing turned by EXIF. As in Pillow, a file that ends before its last row is an error, and
/// wrong bits inside a JPEG are not. Not thread-safe; use one object per thread.
///
/// Throws Malformed (io/untrusted.h), whose reader knows the file's name.
class EncodedImage {
 public:
  /// Reads no more than the header. `encoded` must outlive the object. More than `max_pixels` are refused
  /// before anything is allocated for them.
  explicit EncodedImage(std::string_view encoded, int64_t max_pixels = kMaxPixels);
  /// One that is decoded already; of 3 channels.
  explicit EncodedImage(std::shared_ptr<const Image> decoded);
  ~EncodedImage();
  EncodedImage(const EncodedImage&) = delete;
  EncodedImage& operator=(const EncodedImage&) = delete;

  int64_t width() const;
  int64_t height() const;

  /// All of it.
  Image decode();
  /// The pixels of `box`, exactly those of decode(). What lies outside is not decoded where the format
  /// allows, so damage there may go unnoticed.
  Image decode(const Box& box);
  /// Roughly the pixels of `box`, which are then scaled down to `width` × `height`: of a JPEG at 1/2, 1/4 or
  /// 1/8 where that leaves no fewer than asked for, with the quicker of libjpeg's two ways to interpolate
  /// colours. The result covers `box` up to a pixel of its own.
  Image decode_fast(const Box& box, int64_t width, int64_t height);

 private:
  std::unique_ptr<ImageDecoder> format_;
};

}  // namespace tpgm
