// Image formats: the interface of a decoder, and the table of the formats that can be read. A new format is a
// file with its decoder and a row in format.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tpgm/data/image.h"

namespace tpgm {

/// The decoder of one encoded image. Its methods do what those of EncodedImage with the same names do, and
/// may be called more than once.
class ImageDecoder {
 public:
  virtual ~ImageDecoder() = default;
  virtual Image decode() = 0;
  virtual Image decode(const Box& box) = 0;
  virtual Image decode_fast(const Box& box, int64_t width, int64_t height) = 0;

  int64_t width = 0, height = 0;  ///< set by `open`, which reads the header
};

struct ImageFormat {
  const char* name;                                ///< "JPEG"
  bool (*is_signature)(std::string_view encoded);  ///< whether a file that begins so has this format
  std::vector<std::string_view> suffixes;          ///< ".jpg", ".jpeg"; new files take the first
  /// Makes the decoder, and reads only the header for that. Throws Malformed.
  std::unique_ptr<ImageDecoder> (*open)(std::string_view encoded, int64_t max_pixels);
};

const std::vector<ImageFormat>& image_formats();
/// The format of these bytes, by their signature; null if they have none of the formats.
const ImageFormat* format_of(std::string_view encoded);
/// Whether the name ends in a suffix of any format; case does not matter.
bool has_image_suffix(std::string_view name);

/// The suffix in lower case if it is that of an image format that is not in the table (".gif"); else empty.
std::string unread_suffix(std::string_view name);
/// Files that are left out because of such a suffix: how many, by suffix.
using UnreadFiles = std::map<std::string, int64_t>;
/// "2 files of 'photos' are not read: 1 .gif, 1 .bmp (JPEG and PNG are)"; empty if there are none.
std::string unread_text(const UnreadFiles& unread, const std::string& where);

/// All names, for messages: "JPEG and PNG".
std::string format_names();
/// All suffixes, for messages: ".jpg, .jpeg, .png".
std::string format_suffixes();

/// Throws Malformed unless both are positive and their product is at most `max_pixels`.
void check_size(int64_t width, int64_t height, int64_t max_pixels);

std::unique_ptr<ImageDecoder> open_jpeg(std::string_view encoded, int64_t max_pixels);
std::unique_ptr<ImageDecoder> open_png(std::string_view encoded, int64_t max_pixels);

}  // namespace tpgm
