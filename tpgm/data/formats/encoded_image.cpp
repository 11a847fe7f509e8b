// Recognizes the format of an image and hands it to the decoder.
#include "tpgm/data/formats/encoded_image.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "tpgm/base/untrusted.h"
#include "tpgm/data/formats/format.h"

namespace tpgm {
namespace {

using namespace std::string_view_literals;

class DecodedImage : public ImageDecoder {
 public:
  explicit DecodedImage(std::shared_ptr<const Image> image) : image_(std::move(image)) {
    width = image_->width;
    height = image_->height;
  }
  Image decode() override { return *image_; }
  Image decode(const Box& box) override {
    Image part(box.width, box.height);
    for (int64_t y = 0; y < box.height; ++y) {
      std::copy_n(image_->row(box.top + y) + 3 * box.left, 3 * box.width, part.row(y));
    }
    return part;
  }
  Image decode_fast(const Box& box, int64_t, int64_t) override { return decode(box); }

 private:
  std::shared_ptr<const Image> image_;
};

// A format that is not read, for errors.
struct Signature {
  std::string_view start;
  const char* name;
};
constexpr Signature kUnread[] = {
    {"GIF8", "a GIF"},           {"BM", "a BMP"},         {"II*\0"sv, "a TIFF"},
    {"MM\0*"sv, "a TIFF"},       {"RIFF", "a WebP"},      {"\0\0\0\x0cjP"sv, "a JPEG 2000"},
    {"%PDF", "a PDF"},           {"<svg", "an SVG"},      {"<?xml", "an SVG or other XML"},
    {"<!DOCTYPE", "a web page"}, {"<html", "a web page"}, {"P6", "a PPM"},
};

std::unique_ptr<ImageDecoder> open(std::string_view encoded, int64_t max_pixels) {
  if (encoded.empty()) throw Malformed{"it is empty"};
  if (const auto* format = format_of(encoded)) return format->open(encoded, max_pixels);
  const auto* known = std::find_if(std::begin(kUnread), std::end(kUnread),
                                   [&](const auto& each) { return encoded.starts_with(each.start); });
  throw Malformed{known == std::end(kUnread) ? "it is not an image" : fmt::format("it is {}", known->name),
                  fmt::format("only {} are read", format_names())};
}

}  // namespace

EncodedImage::EncodedImage(std::string_view encoded, int64_t max_pixels)
    : format_(open(encoded, max_pixels)) {}

EncodedImage::EncodedImage(std::shared_ptr<const Image> decoded) {
  TORCH_CHECK(decoded && decoded->channels == 3, "[EncodedImage] expected an image of 3 channels");
  format_ = std::make_unique<DecodedImage>(std::move(decoded));
}

EncodedImage::~EncodedImage() = default;

int64_t EncodedImage::width() const { return format_->width; }
int64_t EncodedImage::height() const { return format_->height; }

namespace {

void check_box(const Box& box, const ImageDecoder& encoded) {
  TORCH_CHECK(box.left >= 0 && box.top >= 0 && box.width > 0 && box.height > 0 &&
                  box.width <= encoded.width - box.left && box.height <= encoded.height - box.top,
              "[EncodedImage] the box at (", box.left, ", ", box.top, ") of ", box.width, " x ", box.height,
              " is not inside the image of ", encoded.width, " x ", encoded.height);
}

}  // namespace

Image EncodedImage::decode() { return format_->decode(); }

Image EncodedImage::decode(const Box& box) {
  check_box(box, *format_);
  return format_->decode(box);
}

Image EncodedImage::decode_fast(const Box& box, int64_t width, int64_t height) {
  check_box(box, *format_);
  return format_->decode_fast(box, width, height);
}

}  // namespace tpgm
