// An image of any format: all of it, then parts of it, exactly and roughly.
#include <zlib.h>

#include "tests/fuzz/support.h"
#include "tpgm/data/formats/encoded_image.h"
#include "tpgm/data/random.h"

using namespace tpgm;

namespace {

constexpr int64_t kPixels = int64_t{1} << 20;

// Empty where it is refused.
template <typename Decode>
Image image_or_refusal(size_t file_size, const Decode& decode) {
  Image image;
  fuzz::parse_or_refuse(file_size, [&] { image = decode(); });
  const auto size = static_cast<size_t>(image.width * image.height * 3);
  fuzz::demand(image.channels == 3 && image.pixels.size() == size, "an image has as many pixels as it says");
  return image;
}

// 4 bytes, the highest first.
uint32_t number(const uint8_t* at) {
  return uint32_t{at[0]} << 24 | uint32_t{at[1]} << 16 | uint32_t{at[2]} << 8 | at[3];
}

}  // namespace

FUZZ(bytes) {
  std::unique_ptr<EncodedImage> encoded;
  fuzz::parse_or_refuse(bytes.size(), [&] { encoded = std::make_unique<EncodedImage>(bytes, kPixels); });
  if (!encoded) return;
  const int64_t width = encoded->width(), height = encoded->height();
  fuzz::demand(width > 0 && height > 0 && width <= kPixels / height, "a size is within the limit");
  const Image whole = image_or_refusal(bytes.size(), [&] { return encoded->decode(); });
  const bool sound = whole.width > 0;
  fuzz::demand(!sound || (whole.width == width && whole.height == height),
               "all of an image is as large as it");

  Random random(std::hash<std::string_view>()(bytes), 0, 0);
  for (int i = 0; i < 2; ++i) {
    Box box{0, 0, 1 + random.integer(width), 1 + random.integer(height)};
    box.left = random.integer(width - box.width + 1);
    box.top = random.integer(height - box.height + 1);
    const Image part = image_or_refusal(bytes.size(), [&] { return encoded->decode(box); });
    fuzz::demand(part.width == 0 ? !sound : part.width == box.width && part.height == box.height,
                 "a part of an image is as large as its box");
    for (int64_t y = 0; y < part.height && sound; ++y) {
      fuzz::demand(std::memcmp(part.row(y), whole.row(box.top + y) + 3 * box.left,
                               static_cast<size_t>(3 * box.width)) == 0,
                   "a part has the pixels of the whole");
    }
    const int64_t least_width = 1 + random.integer(box.width), least_height = 1 + random.integer(box.height);
    const Image rough =
        image_or_refusal(bytes.size(), [&] { return encoded->decode_fast(box, least_width, least_height); });
    fuzz::demand(rough.width == 0 ? !sound : rough.width >= least_width && rough.height >= least_height,
                 "a rough part is as large as asked for");
    fuzz::demand(rough.width <= box.width && rough.height <= box.height, "and no larger than its box");
  }
}

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t limit);

// What is inside a PNG's chunks would be refused for their checksums: most are put right.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t limit, unsigned seed) {
  size = LLVMFuzzerMutate(data, size, limit);
  if (seed % 8 == 0 || size < 8 || data[0] != 0x89) return size;
  for (size_t at = 8; size - at >= 12;) {
    const size_t length = number(data + at);
    if (length > size - at - 12) break;
    const auto sum = crc32(0, data + at + 4, static_cast<uInt>(length + 4));
    for (int i = 0; i < 4; ++i) data[at + 8 + length + i] = static_cast<uint8_t>(sum >> (24 - 8 * i));
    at += length + 12;
  }
  return size;
}
