// PNG, through libpng.
#include <png.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <vector>

#include "tpgm/base/untrusted.h"
#include "tpgm/data/formats/format.h"

namespace tpgm {
namespace {

[[noreturn]] void throw_malformed(png_structp, png_const_charp message) { throw Malformed{message}; }

// libpng's state from the first byte to the last row that is wanted.
class Reader {
 public:
  explicit Reader(std::string_view encoded)
      : left_(encoded),
        png_(png_create_read_struct(PNG_LIBPNG_VER_STRING, nullptr, throw_malformed,
                                    [](png_structp, png_const_charp) {})),
        info_(png_ != nullptr ? png_create_info_struct(png_) : nullptr) {
    if (info_ == nullptr) throw std::bad_alloc();
    png_set_read_fn(png_, this, [](png_structp png, png_bytep to, size_t size) {
      auto& left = static_cast<Reader*>(png_get_io_ptr(png))->left_;
      require(size <= left.size(), "it ends early");
      std::memcpy(to, left.data(), size);
      left.remove_prefix(size);
    });
    // As Pillow: any damage before the pixels is an error; checksums of the pixels are not looked at.
    png_set_crc_action(png_, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
    png_set_user_limits(png_, 0x7fffffff, 0x7fffffff);  // check_size() is the limit
    // None of these matters here, and any may claim to be large.
    static const char kSkipped[] =
        "bKGD\0cHRM\0eXIf\0gAMA\0hIST\0iCCP\0iTXt\0oFFs\0pCAL\0pHYs\0sBIT\0sCAL\0sPLT\0sRGB\0sTER\0tEXt\0tIME"
        "\0tRNS\0zTXt";
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER,
                                reinterpret_cast<const unsigned char*>(kSkipped), sizeof(kSkipped) / 5);
    try {
      png_read_info(png_, info_);
    } catch (...) {
      png_destroy_read_struct(&png_, &info_, nullptr);
      throw;
    }
    png_set_crc_action(png_, PNG_CRC_QUIET_USE, PNG_CRC_QUIET_USE);
  }
  ~Reader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  int64_t width() const { return png_get_image_width(png_, info_); }
  int64_t height() const { return png_get_image_height(png_, info_); }

  Image read(const Box& box) {
    const auto type = png_get_color_type(png_, info_);
    const bool palette = type == PNG_COLOR_TYPE_PALETTE;
    const bool deep_gray = type == PNG_COLOR_TYPE_GRAY && png_get_bit_depth(png_, info_) == 16;
    if (palette) {
      png_set_packing(png_);
    } else if (!deep_gray) {
      png_set_expand_gray_1_2_4_to_8(png_);
      png_set_strip_16(png_);
      png_set_strip_alpha(png_);
      png_set_gray_to_rgb(png_);
    }
    const int passes = png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    const size_t row_size = png_get_rowbytes(png_, info_);

    // An interlaced image is there when its last pass is; any other comes row by row.
    const int64_t kept = passes > 1 ? height() : 1;
    std::vector<uint8_t> rows(row_size * static_cast<size_t>(kept));
    for (int pass = 0; pass + 1 < passes; ++pass) {
      for (int64_t y = 0; y < height(); ++y) png_read_row(png_, rows.data() + row_size * y, nullptr);
    }
    Image image(box.width, box.height);
    const auto colors = palette ? palette_colors() : Colors{};
    for (int64_t y = 0; y < box.top + box.height; ++y) {
      uint8_t* row = rows.data() + row_size * (passes > 1 ? y : 0);
      png_read_row(png_, row, nullptr);
      if (y < box.top) continue;
      uint8_t* to = image.row(y - box.top);
      if (palette) {
        for (int64_t x = 0; x < box.width; ++x) std::copy_n(colors[row[box.left + x]].data(), 3, to + 3 * x);
      } else if (deep_gray) {
        for (int64_t x = 0; x < box.width; ++x) {
          const uint8_t* pixel = row + 2 * (box.left + x);
          std::fill_n(to + 3 * x, 3, pixel[0] > 0 ? 255 : pixel[1]);
        }
      } else {
        std::copy_n(row + 3 * box.left, 3 * box.width, to);
      }
    }
    return image;
  }

 private:
  using Colors = std::array<std::array<uint8_t, 3>, 256>;

  // Indices beyond the palette are black, as in Pillow.
  Colors palette_colors() const {
    Colors colors{};
    png_colorp palette = nullptr;
    int count = 0;
    png_get_PLTE(png_, info_, &palette, &count);
    for (int i = 0; i < std::min(count, 256); ++i)
      colors[i] = {palette[i].red, palette[i].green, palette[i].blue};
    return colors;
  }

  std::string_view left_;
  png_structp png_;
  png_infop info_;
};

class Png : public ImageDecoder {
 public:
  Png(std::string_view encoded, int64_t max_pixels) : encoded_(encoded) {
    // The first chunk is the header, of which libpng would say less when it is wrong.
    Cursor cursor(encoded);
    cursor.take(8, "a PNG's signature");
    const auto chunk = cursor.take(25, "a PNG's header");
    require(chunk.substr(4, 4) == "IHDR", "its first chunk is not the header");
    const auto number = [&](size_t at) {
      uint32_t value = 0;
      for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(chunk[at + i]);
      return static_cast<int64_t>(value);
    };
    check_size(number(8), number(12), max_pixels);
    reader_ = std::make_unique<Reader>(encoded);
    width = reader_->width();
    height = reader_->height();
  }

  Image decode() override { return decode({0, 0, width, height}); }
  Image decode(const Box& box) override {
    // libpng reads a file once.
    const auto reader = reader_ ? std::move(reader_) : std::make_unique<Reader>(encoded_);
    return reader->read(box);
  }
  Image decode_fast(const Box& box, int64_t, int64_t) override { return decode(box); }

 private:
  std::string_view encoded_;
  std::unique_ptr<Reader> reader_;
};

}  // namespace

std::unique_ptr<ImageDecoder> open_png(std::string_view encoded, int64_t max_pixels) {
  return std::make_unique<Png>(encoded, max_pixels);
}

}  // namespace tpgm
