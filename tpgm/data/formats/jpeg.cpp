// JPEG, through libjpeg-turbo, whole or in part.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <vector>

// It uses FILE and size_t without declaring them.
#include <jpeglib.h>

#include "tpgm/base/untrusted.h"
#include "tpgm/data/formats/format.h"

namespace tpgm {
namespace {

constexpr int kMostScans = 500;  // of a progressive file; each costs a pass over the whole image

[[noreturn]] void throw_message(j_common_ptr info) {
  char message[JMSG_LENGTH_MAX];
  info->err->format_message(info, message);
  throw Malformed{message};  // through libjpeg's frames, which hold nothing that ~Jpeg does not release
}

// What is missing after the last row Pillow does not miss.
boolean ended(j_decompress_ptr info) {
  require(info->client_data != nullptr, "it ends early");
  return FALSE;
}

void skip(j_decompress_ptr info, long count) {
  if (count <= 0) return;
  if (static_cast<size_t>(count) > info->src->bytes_in_buffer) {
    ended(info);
    count = static_cast<long>(info->src->bytes_in_buffer);
  }
  info->src->next_input_byte += count;
  info->src->bytes_in_buffer -= static_cast<size_t>(count);
}

void watch(j_common_ptr info) {
  require(reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMostScans,
          "it has more than {} scans", kMostScans);
}

// Adobe's files, which all others follow, hold 255 - ink.
void cmyk_to_rgb(const uint8_t* from, uint8_t* to, int64_t pixels) {
  const auto ink = [](int paper, int key) {  // Pillow's rounding of a product of bytes
    const int product = (255 - paper) * key + 128;
    return static_cast<uint8_t>(std::clamp(key - ((product + (product >> 8)) >> 8), 0, 255));
  };
  for (; pixels > 0; --pixels, from += 4, to += 3) {
    for (int c = 0; c < 3; ++c) to[c] = ink(from[c], from[3]);
  }
}

class Jpeg : public ImageDecoder {
 public:
  Jpeg(std::string_view encoded, int64_t max_pixels) : encoded_(encoded) {
    info_.err = jpeg_std_error(&errors_);
    errors_.error_exit = throw_message;
    errors_.emit_message = [](j_common_ptr, int) {};  // warnings: Pillow is silent about them
    progress_.progress_monitor = watch;
    source_.init_source = [](j_decompress_ptr) {};
    source_.fill_input_buffer = ended;
    source_.skip_input_data = skip;
    source_.resync_to_restart = jpeg_resync_to_restart;
    source_.term_source = [](j_decompress_ptr) {};
    jpeg_create_decompress(&info_);
    try {
      read_header();
      check_size(info_.image_width, info_.image_height, max_pixels);
      require(info_.num_components == 1 || info_.num_components == 3 || info_.num_components == 4,
              "it has {} color components", info_.num_components);
    } catch (...) {
      jpeg_destroy_decompress(&info_);
      throw;
    }
    width = info_.image_width;
    height = info_.image_height;
  }
  ~Jpeg() override { jpeg_destroy_decompress(&info_); }
  Jpeg(const Jpeg&) = delete;
  Jpeg& operator=(const Jpeg&) = delete;

  Image decode() override {
    start(1, /*smooth=*/true);
    Image image = read({0, 0, width, height});
    info_.client_data = this;
    jpeg_finish_decompress(&info_);  // FALSE where the end is missing
    return image;
  }

  Image decode(const Box& box) override {
    start(1, /*smooth=*/true);
    return read(box);
  }

  Image decode_fast(const Box& box, int64_t min_width, int64_t min_height) override {
    int64_t scale = 8;
    while (scale > 1 && (box.width / scale < min_width || box.height / scale < min_height)) scale /= 2;
    start(scale, /*smooth=*/false);
    const int64_t left = box.left / scale, top = box.top / scale;
    const int64_t right = std::min<int64_t>((box.left + box.width + scale - 1) / scale, info_.output_width);
    const int64_t bottom = std::min<int64_t>((box.top + box.height + scale - 1) / scale, info_.output_height);
    return read({left, top, right - left, bottom - top});
  }

 private:
  void read_header() {
    info_.progress = &progress_;
    info_.src = &source_;
    info_.client_data = nullptr;
    source_.next_input_byte = reinterpret_cast<const JOCTET*>(encoded_.data());
    source_.bytes_in_buffer = encoded_.size();
    jpeg_read_header(&info_, TRUE);
    fresh_ = true;
  }

  void start(int64_t scale, bool smooth) {
    if (!fresh_) {
      jpeg_destroy_decompress(&info_);  // abort would keep the tables that came after the header
      jpeg_create_decompress(&info_);
      read_header();
    }
    fresh_ = false;
    info_.client_data = nullptr;
    info_.out_color_space = info_.num_components == 4 ? JCS_CMYK : JCS_RGB;  // gray is repeated
    info_.scale_num = 1;
    info_.scale_denom = static_cast<unsigned>(scale);
    info_.do_fancy_upsampling = smooth ? TRUE : FALSE;
    jpeg_start_decompress(&info_);
  }

  // Reads a part of the image that start() began to decode. libjpeg skips the blocks outside of the part and
  // smooths colors next to them as at the edge of an image; a margin keeps that out of the result.
  Image read(const Box& box) {
    constexpr int64_t kMargin = 2;
    JDIMENSION left = 0, row_width = info_.output_width;
    // In a progressive file with missing scans, blocks are smoothed from two blocks away.
    if (!info_.progressive_mode && box.width < row_width) {
      left = static_cast<JDIMENSION>(std::max<int64_t>(box.left - kMargin, 0));
      row_width =
          static_cast<JDIMENSION>(std::min<int64_t>(box.left + box.width + kMargin, row_width)) - left;
      if (row_width < info_.output_width) jpeg_crop_scanline(&info_, &left, &row_width);
    }
    const int64_t top = std::max<int64_t>(box.top - kMargin, 0);
    if (top > 0) jpeg_skip_scanlines(&info_, static_cast<JDIMENSION>(top));

    // libjpeg writes rows that begin at a multiple of 32 bytes past the caches, from where we would have to
    // fetch them again at once; these begin at one more. Several rows at a time spare it a copy of every
    // second.
    constexpr size_t kRows = 4, kAlignment = 32;
    const auto row_size = static_cast<size_t>(row_width) * static_cast<size_t>(info_.output_components);
    const size_t stride = (row_size + kAlignment - 1) / kAlignment * kAlignment;
    std::vector<uint8_t> memory(kRows * stride + kAlignment);
    uint8_t* first = memory.data() + 1 +
                     (kAlignment - reinterpret_cast<uintptr_t>(memory.data()) % kAlignment) % kAlignment;
    JSAMPROW rows[kRows];
    for (size_t i = 0; i < kRows; ++i) rows[i] = first + i * stride;

    Image image(box.width, box.height);
    const int64_t offset = (box.left - left) * info_.output_components;
    for (int64_t y = top; y < box.top + box.height;) {
      const auto wanted = static_cast<JDIMENSION>(std::min<int64_t>(kRows, box.top + box.height - y));
      const JDIMENSION count = jpeg_read_scanlines(&info_, rows, wanted);
      require(count > 0, "it ends early");
      for (JDIMENSION i = 0; i < count; ++i, ++y) {
        if (y < box.top) continue;
        if (info_.output_components == 4) {
          cmyk_to_rgb(rows[i] + offset, image.row(y - box.top), box.width);
        } else {
          std::copy_n(rows[i] + offset, 3 * box.width, image.row(y - box.top));
        }
      }
    }
    return image;
  }

  std::string_view encoded_;
  jpeg_decompress_struct info_{};
  jpeg_error_mgr errors_{};
  jpeg_source_mgr source_{};
  jpeg_progress_mgr progress_{};
  bool fresh_ = false;  // the header is read and nothing after it
};

}  // namespace

std::unique_ptr<ImageDecoder> open_jpeg(std::string_view encoded, int64_t max_pixels) {
  return std::make_unique<Jpeg>(encoded, max_pixels);
}

}  // namespace tpgm
