// The table of image formats.
#include "tpgm/data/formats/format.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "tpgm/base/names.h"
#include "tpgm/base/numbers.h"
#include "tpgm/base/untrusted.h"

namespace tpgm {
namespace {

// In the order of messages.
constexpr std::string_view kUnreadSuffixes[] = {".webp", ".gif", ".bmp",  ".tif", ".tiff",
                                                ".ppm",  ".pgm", ".avif", ".jp2", ".heic"};

// ".jpg" of "a/B.JPG"; empty if there is none.
std::string suffix_of(std::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return "";
  return lower(std::string(name.substr(dot)));
}

}  // namespace

const std::vector<ImageFormat>& image_formats() {
  static const std::vector<ImageFormat> kFormats{
      {"JPEG",
       [](std::string_view encoded) { return encoded.starts_with("\xff\xd8\xff"); },
       {".jpg", ".jpeg"},
       open_jpeg},
      {"PNG",
       [](std::string_view encoded) { return encoded.starts_with("\x89PNG\r\n\x1a\n"); },
       {".png"},
       open_png}};
  return kFormats;
}

const ImageFormat* format_of(std::string_view encoded) {
  for (const auto& format : image_formats()) {
    if (format.is_signature(encoded)) return &format;
  }
  return nullptr;
}

bool has_image_suffix(std::string_view name) {
  const std::string ending = suffix_of(name);
  return std::any_of(image_formats().begin(), image_formats().end(), [&](const ImageFormat& format) {
    return std::find(format.suffixes.begin(), format.suffixes.end(), ending) != format.suffixes.end();
  });
}

std::string unread_suffix(std::string_view name) {
  std::string ending = suffix_of(name);
  const bool known =
      std::find(std::begin(kUnreadSuffixes), std::end(kUnreadSuffixes), ending) != std::end(kUnreadSuffixes);
  return known ? ending : "";
}

std::string unread_text(const UnreadFiles& unread, const std::string& where) {
  std::vector<std::string> counts;
  int64_t all = 0;
  for (const auto suffix : kUnreadSuffixes) {
    const auto found = unread.find(std::string(suffix));
    if (found == unread.end()) continue;
    counts.push_back(fmt::format("{} {}", grouped(found->second), suffix));
    all += found->second;
  }
  if (all == 0) return "";
  return fmt::format("{} of '{}' {} not read: {} ({} are)", counted(all, "file"), where,
                     all == 1 ? "is" : "are", fmt::join(counts, ", "), format_names());
}

std::string format_names() {
  std::vector<std::string> names;
  for (const auto& format : image_formats()) names.emplace_back(format.name);
  const std::string last = names.back();
  names.pop_back();
  return fmt::format("{} and {}", fmt::join(names, ", "), last);
}

std::string format_suffixes() {
  std::vector<std::string_view> suffixes;
  for (const auto& format : image_formats())
    suffixes.insert(suffixes.end(), format.suffixes.begin(), format.suffixes.end());
  return fmt::format("{}", fmt::join(suffixes, ", "));
}

void check_size(int64_t width, int64_t height, int64_t max_pixels) {
  require(width > 0 && height > 0, "it claims {} x {} pixels", width, height);
  if (width > max_pixels / height) {
    throw Malformed{
        fmt::format("it claims {} x {} pixels, more than the {} that are allowed", width, height, max_pixels),
        "if it is what it should be, raise `max-pixels`"};
  }
}

}  // namespace tpgm
