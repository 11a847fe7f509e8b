// Encodes with libpng and libjpeg.
#include "tpgm/data/formats/encode.h"

#include <c10/util/Exception.h>
#include <png.h>
// jpeglib.h uses FILE and size_t without declaring them.
#include <cstddef>
#include <cstdio>
#include <cstdlib>

#include <jpeglib.h>

#include "tpgm/base/call.h"

namespace tpgm {
namespace {

void check_complete(const Image& image) {
  TORCH_CHECK((image.channels == 1 || image.channels == 3) && image.width > 0 && image.height > 0 &&
                  image.pixels.size() == static_cast<size_t>(image.width * image.height * image.channels),
              "expected an image of 1 or 3 channels with all its pixels, got ", image.width, "x",
              image.height, "x", image.channels, " and ", image.pixels.size(), " bytes");
}

[[noreturn]] void png_failed(png_structp, png_const_charp message) { TORCH_CHECK(false, message); }

[[noreturn]] void jpeg_failed(j_common_ptr info) {
  char message[JMSG_LENGTH_MAX];
  info->err->format_message(info, message);
  TORCH_CHECK(false, message);
}

}  // namespace

std::string encode_png(const Image& image) try {
  check_complete(image);
  std::string bytes;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, png_failed, nullptr);
  png_infop info = png_create_info_struct(png);
  struct Cleanup {
    png_structp& png;
    png_infop& info;
    ~Cleanup() { png_destroy_write_struct(&png, &info); }
  } cleanup{png, info};
  png_set_write_fn(
      png, &bytes,
      [](png_structp self, png_bytep data, size_t size) {
        static_cast<std::string*>(png_get_io_ptr(self))->append(reinterpret_cast<char*>(data), size);
      },
      nullptr);
  png_set_compression_level(png, 9);
  png_set_IHDR(png, info, static_cast<png_uint_32>(image.width), static_cast<png_uint_32>(image.height), 8,
               image.channels == 1 ? PNG_COLOR_TYPE_GRAY : PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_write_info(png, info);
  for (int64_t y = 0; y < image.height; ++y) png_write_row(png, image.row(y));
  png_write_end(png, info);
  return bytes;
} catch (...) {
  rethrow_from("encode_png");
}

std::string encode_jpeg(const Image& image, int quality) try {
  check_complete(image);
  jpeg_compress_struct jpeg;
  jpeg_error_mgr errors;
  unsigned char* data = nullptr;
  unsigned long size = 0;
  jpeg.err = jpeg_std_error(&errors);
  errors.error_exit = jpeg_failed;
  jpeg_create_compress(&jpeg);
  struct Cleanup {
    jpeg_compress_struct& jpeg;
    unsigned char*& data;
    ~Cleanup() {
      jpeg_destroy_compress(&jpeg);
      std::free(data);
    }
  } cleanup{jpeg, data};
  jpeg_mem_dest(&jpeg, &data, &size);
  jpeg.image_width = static_cast<JDIMENSION>(image.width);
  jpeg.image_height = static_cast<JDIMENSION>(image.height);
  jpeg.input_components = static_cast<int>(image.channels);
  jpeg.in_color_space = image.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, quality, TRUE);
  jpeg_start_compress(&jpeg, TRUE);
  for (int64_t y = 0; y < image.height; ++y) {
    auto* row = const_cast<JSAMPROW>(image.row(y));
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  return {reinterpret_cast<char*>(data), size};
} catch (...) {
  rethrow_from("encode_jpeg");
}

}  // namespace tpgm
