// Images against Pillow: sound ones, damaged ones, parts of them, and what is not an image at all.
#include "tpgm/data/formats/encoded_image.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <zlib.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>

#include "tests/io/scratch.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/data/formats/encode.h"
#include "tpgm/data/formats/format.h"
#include "tpgm/data/random.h"
#include "tpgm/data/resize.h"
#include "tpgm/io/state_dict.h"

namespace tpgm {
namespace {

using test::read_bytes;

std::filesystem::path folder() {
  return std::filesystem::path(TPGM_TEST_DATA) / "data" / "goldens" / "images";
}

const nlohmann::json& cases() {
  static const auto json = nlohmann::json::parse(std::ifstream(folder() / "cases.json"));
  return json;
}

std::set<std::string> files_named(const std::string& start) {
  std::set<std::string> result;
  for (const auto& item : std::filesystem::directory_iterator(folder())) {
    const auto name = item.path().filename().string();
    if (name.starts_with(start)) result.insert(name);
  }
  return result;
}

struct Outcome {
  std::optional<Image> image;
  std::string reason;  // of a refusal
};

Outcome decoded(const std::string& bytes) {
  try {
    EncodedImage encoded(bytes);
    Image image = encoded.decode();
    EXPECT_EQ(image.width, encoded.width());
    EXPECT_EQ(image.height, encoded.height());
    EXPECT_EQ(image.channels, 3);
    EXPECT_EQ(encoded.decode().pixels, image.pixels) << "once more";
    return {std::move(image), ""};
  } catch (const Malformed& malformed) {
    EXPECT_FALSE(malformed.reason.empty());
    return {std::nullopt, malformed.reason};
  }
}

std::string refusal(const std::string& bytes, int64_t max_pixels = kMaxPixels) {
  try {
    EncodedImage(bytes, max_pixels).decode();
  } catch (const Malformed& malformed) {
    return malformed.reason;
  }
  return "not refused";
}

// Up to `allowed` levels a value.
::testing::AssertionResult equal(const Image& a, const Image& b, int allowed = 0) {
  if (a.width != b.width || a.height != b.height || a.channels != b.channels) {
    return ::testing::AssertionFailure() << a.width << " x " << a.height << " x " << a.channels << " against "
                                         << b.width << " x " << b.height << " x " << b.channels;
  }
  size_t different = 0;
  int largest = 0;
  for (size_t i = 0; i < a.pixels.size(); ++i) {
    different += a.pixels[i] != b.pixels[i];
    largest = std::max(largest, std::abs(a.pixels[i] - b.pixels[i]));
  }
  if (largest <= allowed) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << different << " of " << a.pixels.size() << " values differ, by up to " << largest;
}

Image image_of(const at::Tensor& pixels) {
  Image image(pixels.size(1), pixels.size(0));
  std::memcpy(image.pixels.data(), pixels.contiguous().const_data_ptr(), image.pixels.size());
  return image;
}

Image crop(const Image& image, const Box& box) {
  Image part(box.width, box.height);
  for (int64_t y = 0; y < box.height; ++y) {
    std::copy_n(image.row(box.top + y) + 3 * box.left, 3 * box.width, part.row(y));
  }
  return part;
}

double mean_difference(const Image& a, const Image& b) {
  double sum = 0;
  for (size_t i = 0; i < a.pixels.size(); ++i) sum += std::abs(a.pixels[i] - b.pixels[i]);
  return sum / static_cast<double>(a.pixels.size());
}

// Corners, edges and single pixels first, then anything.
std::vector<Box> boxes(int64_t width, int64_t height, int count, uint64_t seed) {
  std::vector<Box> result{{0, 0, width, height},
                          {0, 0, 1, 1},
                          {width - 1, 0, 1, 1},
                          {0, height - 1, 1, 1},
                          {width - 1, height - 1, 1, 1},
                          {width / 2, height / 2, 1, 1},
                          {width / 2, 0, width - width / 2, height},
                          {0, height / 2, width, height - height / 2},
                          {width / 3, 0, 1, height},
                          {0, height / 3, width, 1}};
  Random random(seed, 0, 0);
  while (static_cast<int>(result.size()) < count) {
    Box box;
    const bool small = random.uniform() < 0.3;
    box.width = 1 + random.integer(small ? std::min<int64_t>(width, 4) : width);
    box.height = 1 + random.integer(small ? std::min<int64_t>(height, 4) : height);
    box.left = random.integer(width - box.width + 1);
    box.top = random.integer(height - box.height + 1);
    result.push_back(box);
  }
  return result;
}

std::string words(const Box& box) {
  return fmt::format("{} x {} at ({}, {})", box.width, box.height, box.left, box.top);
}

// Against the standard, and refused by libpng, but not by Pillow.
const std::set<std::string> kStricter{
    "compression_1.png",     // a method of compression that there is not
    "cut_after_data.png",    // no checksum after the last row
    "empty_palette.png",     //
    "no_adler.png",          // the same inside the data
    "no_palette.png",        //
    "palette_after.png",     // the data
    "twice_ihdr.png",        //
    "uneven_palette.png",    // it has 47 bytes
    "unknown_critical.png",  // a chunk that one must understand
};
// Read all the same: a chunk that pixels do not depend on is too short.
const std::set<std::string> kLooser{"short_gama.png", "short_trns.png"};

TEST(EncodedImage, HasPillowsPixels) {
  for (const auto& item : load_state_dict(folder() / "pixels.safetensors")) {
    SCOPED_TRACE(item.key());
    const auto outcome = decoded(read_bytes(folder() / item.key()));
    EXPECT_NE(outcome.image.has_value(), kStricter.contains(item.key())) << outcome.reason;
    // What is missing libjpeg-turbo 3, Pillow's, smooths over otherwise than 2 does.
    const int largest = item.key() == "progressive_1_scans.jpg" ? 8 : 0;
    if (outcome.image) {
      EXPECT_TRUE(equal(*outcome.image, image_of(item.value()), largest));
    }
  }
}

TEST(EncodedImage, RefusesWhatPillowRefuses) {
  for (const auto& [name, error] : cases().at("refused").items()) {
    SCOPED_TRACE(name + ": " + error.get<std::string>());
    EXPECT_EQ(decoded(read_bytes(folder() / name)).image.has_value(), kLooser.contains(name));
  }
}

TEST(EncodedImage, TakesDamageAsPillowDoes) {
  int refused = 0, taken = 0;
  for (const auto& damage : cases().at("damaged")) {
    SCOPED_TRACE(damage.dump());
    std::string bytes = read_bytes(folder() / damage.at("of").get<std::string>());
    if (damage.contains("cut")) bytes.resize(damage["cut"]);
    if (damage.contains("flip")) {
      for (const auto& [at, bits] : damage["flip"].get<std::vector<std::pair<size_t, int>>>()) {
        bytes[at] = static_cast<char>(bytes[at] ^ bits);
      }
    }
    const auto outcome = decoded(bytes);
    const auto& crc = damage.at("crc");
    EXPECT_EQ(outcome.image.has_value(), !crc.is_null()) << outcome.reason;
    if (!outcome.image || crc.is_null()) {
      ++refused;
      continue;
    }
    ++taken;
    const auto& pixels = outcome.image->pixels;
    EXPECT_EQ(crc32(0, pixels.data(), static_cast<uInt>(pixels.size())), crc.get<uLong>());
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(taken, 100);
}

TEST(Formats, AreKnownByContentAndBySuffix) {
  EXPECT_EQ(format_names(), "JPEG and PNG");
  EXPECT_EQ(format_suffixes(), ".jpg, .jpeg, .png");
  const Image image(2, 2, 3);
  EXPECT_EQ(format_of(encode_jpeg(image, 90))->suffixes.front(), ".jpg");
  EXPECT_EQ(format_of(encode_png(image))->suffixes.front(), ".png");
  EXPECT_EQ(format_of("GIF89a"), nullptr);
  EXPECT_EQ(format_of("\x89PNG"), nullptr);  // its end is missing
  for (const char* name : {"a.jpg", "a.JPEG", "folder.x/a.b.png"})
    EXPECT_TRUE(has_image_suffix(name)) << name;
  for (const char* name : {"", "jpg", "a.jpg.txt", "a.pngx", "a."})
    EXPECT_FALSE(has_image_suffix(name)) << name;
}

TEST(EncodedImage, NamesWhatItIsNot) {
  const auto of = [](const std::string& name) { return refusal(read_bytes(folder() / name)); };
  EXPECT_NE(of("other.gif").find("GIF"), std::string::npos);
  EXPECT_NE(of("other.webp").find("WebP"), std::string::npos);
  EXPECT_NE(of("other.bmp").find("BMP"), std::string::npos);
  EXPECT_NE(of("other.tiff").find("TIFF"), std::string::npos);
  EXPECT_NE(of("other.jp2").find("JPEG 2000"), std::string::npos);
  EXPECT_NE(refusal("").find("empty"), std::string::npos);
  EXPECT_NE(refusal("some text\n"), "not refused");
  EXPECT_NE(refusal("\xff\xd8"), "not refused");
  EXPECT_NE(refusal(std::string(1000, '\0')), "not refused");
}

void patch(std::string& bytes, size_t at, uint32_t value, size_t size) {
  for (size_t i = 0; i < size; ++i) bytes[at + i] = static_cast<char>(value >> (8 * (size - 1 - i)));
}

std::string png_claiming(uint32_t width, uint32_t height) {
  std::string bytes = read_bytes(folder() / "rgb_8.png");
  patch(bytes, 16, width, 4);
  patch(bytes, 20, height, 4);
  const auto* type = reinterpret_cast<const Bytef*>(bytes.data()) + 12;
  patch(bytes, 29, static_cast<uint32_t>(crc32(0, type, 17)), 4);
  return bytes;
}

std::string jpeg_claiming(const std::string& name, uint32_t width, uint32_t height) {
  std::string bytes = read_bytes(folder() / name);
  const size_t frame = std::min(bytes.find("\xff\xc0"), bytes.find("\xff\xc2"));
  patch(bytes, frame + 5, height, 2);
  patch(bytes, frame + 7, width, 2);
  return bytes;
}

// A megabyte a round, in a chunk that no image needs.
std::string png_with_packed_text(int rounds) {
  std::string text = "zTXtk";
  text += std::string(2, '\0');
  const std::string zeros(1 << 20, '\0');
  std::string packed(static_cast<size_t>(rounds) << 12, '\0');
  z_stream stream{};
  deflateInit(&stream, 9);
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  for (int i = 0; i < rounds; ++i) {
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(zeros.data()));
    stream.avail_in = static_cast<uInt>(zeros.size());
    deflate(&stream, i + 1 < rounds ? Z_NO_FLUSH : Z_FINISH);
  }
  text += packed.substr(0, stream.total_out);
  deflateEnd(&stream);
  std::string number(4, '\0');
  patch(number, 0, static_cast<uint32_t>(text.size() - 4), 4);
  std::string chunk = number + text;
  patch(number, 0,
        static_cast<uint32_t>(
            crc32(0, reinterpret_cast<const Bytef*>(text.data()), static_cast<uInt>(text.size()))),
        4);
  return read_bytes(folder() / "rgb_8.png").insert(33, chunk + number);
}

long peak_kib() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

TEST(EncodedImage, RefusesBombsBeforeItAllocates) {
  const std::string packed_text = png_with_packed_text(64);
  const std::string long_chunk = read_bytes(folder() / "huge_chunk.png");  // 2 GiB of 141 bytes
  const auto start = std::chrono::steady_clock::now();
  std::ofstream("/proc/self/clear_refs") << 5;  // the peak is that of earlier tests otherwise
  const long before = peak_kib();
  EXPECT_THROW(EncodedImage encoded(long_chunk), Malformed);
  EXPECT_LT(peak_kib() - before, 16 << 10) << "for a chunk's claim";
  try {
    EncodedImage encoded(packed_text);
  } catch (const Malformed&) {  // either will do
  }
  EXPECT_LT(peak_kib() - before, 16 << 10) << "for text";
  for (const auto& bytes :
       {png_claiming(100'000, 100'000), png_claiming(0x7fffffff, 0x7fffffff),
        png_claiming(0xffffffff, 0xffffffff), png_claiming(kMaxPixels + 1, 1), png_claiming(1, 0x7fffffff),
        jpeg_claiming("420.jpg", 65500, 65500), jpeg_claiming("progressive.jpg", 65500, 65500)}) {
    EXPECT_THROW(EncodedImage encoded(bytes), Malformed);
  }
  // Allowed, but so far only looked at.
  for (const auto& bytes : {png_claiming(13'000, 13'000), jpeg_claiming("420.jpg", 13'000, 13'000),
                            jpeg_claiming("progressive.jpg", 13'000, 13'000)}) {
    EXPECT_EQ(EncodedImage(bytes).width(), 13'000);
  }
  EXPECT_LT(peak_kib() - before, 16 << 10);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
  EXPECT_NE(refusal(png_claiming(100'000, 100'000)).find("100000"), std::string::npos);

  for (const std::string name : {"rgb_8.png", "420.jpg", "grey_1_interlaced.png", "cmyk.jpg"}) {
    SCOPED_TRACE(name);
    const std::string bytes = read_bytes(folder() / name);
    EncodedImage encoded(bytes);
    const int64_t pixels = encoded.width() * encoded.height();
    EXPECT_THROW(EncodedImage(bytes, pixels - 1), Malformed);
    EXPECT_EQ(EncodedImage(bytes, pixels).width(), encoded.width());
  }
}

TEST(EncodedImage, PartsAreThoseOfTheWhole) {
  for (const auto& name : files_named("parts_")) {
    SCOPED_TRACE(name);
    const std::string bytes = read_bytes(folder() / name);
    EncodedImage encoded(bytes);
    const Image whole = encoded.decode();
    for (const auto& box : boxes(encoded.width(), encoded.height(), 300, 1)) {
      ASSERT_TRUE(equal(encoded.decode(box), crop(whole, box))) << words(box);
      ASSERT_TRUE(equal(EncodedImage(bytes).decode(box), crop(whole, box)))
          << words(box) << ", of a new object";
    }
    EXPECT_TRUE(equal(encoded.decode(), whole)) << "after all of that";
  }
}

TEST(EncodedImage, SmallOnesHavePartsToo) {
  for (const std::string name : {"1x1.jpg", "7x3.jpg", "8x8.jpg", "17x31.jpg", "1x40.jpg", "40x1.jpg",
                                 "ycck.jpg", "141.jpg", "1x1_interlaced.png", "5x4_interlaced.png"}) {
    SCOPED_TRACE(name);
    const std::string bytes = read_bytes(folder() / name);
    EncodedImage encoded(bytes);
    const Image whole = encoded.decode();
    for (const auto& box : boxes(encoded.width(), encoded.height(), 60, 2)) {
      ASSERT_TRUE(equal(encoded.decode(box), crop(whole, box))) << words(box);
      const Image fast = encoded.decode_fast(box, 1, 1);
      ASSERT_TRUE(fast.width >= 1 && fast.height >= 1 && fast.channels == 3) << words(box);
    }
  }
}

TEST(EncodedImage, FastPartsAreLargeEnough) {
  for (const auto& name : files_named("parts_")) {
    SCOPED_TRACE(name);
    const std::string bytes = read_bytes(folder() / name);
    EncodedImage encoded(bytes);
    Random random(3, 0, 0);
    for (const auto& box : boxes(encoded.width(), encoded.height(), 300, 4)) {
      const int64_t width = 1 + random.integer(std::min<int64_t>(box.width, 40)),
                    height = 1 + random.integer(std::min<int64_t>(box.height, 40));
      const Image fast = encoded.decode_fast(box, width, height);
      ASSERT_GE(fast.width, width) << words(box);
      ASSERT_GE(fast.height, height) << words(box);
      // The pixels of one of libjpeg's scales that touch the box.
      bool fits = false;
      for (const int64_t scale : {1, 2, 4, 8}) {
        const auto covered = [&](int64_t start, int64_t size) {
          return (start + size + scale - 1) / scale - start / scale;
        };
        fits |= fast.width == covered(box.left, box.width) && fast.height == covered(box.top, box.height);
      }
      ASSERT_TRUE(fits) << words(box) << " became " << fast.width << " x " << fast.height;
    }
  }
}

TEST(EncodedImage, FastPartsAreNear) {
  for (const auto& name : files_named("calm_")) {
    SCOPED_TRACE(name);
    const std::string bytes = read_bytes(folder() / name);
    EncodedImage encoded(bytes);
    const Image whole = encoded.decode();
    Random random(5, 0, 0);
    double sum = 0, largest = 0;
    int count = 0;
    for (const auto& box : boxes(encoded.width(), encoded.height(), 400, 6)) {
      if (box.width < 24 || box.height < 24) continue;  // a pixel more at the border is much of those
      const int64_t width = 8 + random.integer(box.width - 7), height = 8 + random.integer(box.height - 7);
      const auto same_size = [&](const Image& image) {
        return resize(image, width, height, Interpolation::kBilinear);
      };
      const double difference =
          mean_difference(same_size(encoded.decode_fast(box, width, height)), same_size(crop(whole, box)));
      sum += difference;
      largest = std::max(largest, difference);
      ++count;
    }
    ASSERT_GT(count, 100);
    EXPECT_LT(sum / count, 2);
    EXPECT_LT(largest, 6);
    RecordProperty(name, fmt::format("{:.2f} on average, {:.2f} at most", sum / count, largest));
  }
}

TEST(EncodedImage, FastIsSmallerWhereThatIsEnough) {
  const std::string bytes = read_bytes(folder() / "parts_420.jpg");
  EncodedImage encoded(bytes);
  const Box all{0, 0, encoded.width(), encoded.height()};
  const std::map<int64_t, int64_t> widths{{150, 150}, {76, 150}, {75, 75}, {38, 75},
                                          {37, 38},   {18, 19},  {1, 19}};
  for (const auto& [asked, expected] : widths) EXPECT_EQ(encoded.decode_fast(all, asked, 1).width, expected);
  EXPECT_EQ(encoded.decode_fast(all, 1, 118).height, 118) << "the height asked for counts as well";
  EXPECT_EQ(encoded.decode_fast(all, 1000, 1000).width, 150) << "nothing is made larger";
}

TEST(EncodedImage, DecodedOnesAreTheSame) {
  const std::string bytes = read_bytes(folder() / "parts_rgb.png");
  EncodedImage encoded(bytes);
  EncodedImage decoded(std::make_shared<Image>(encoded.decode()));
  EXPECT_EQ(decoded.width(), encoded.width());
  EXPECT_EQ(decoded.height(), encoded.height());
  EXPECT_TRUE(equal(decoded.decode(), encoded.decode()));
  for (const auto& box : boxes(decoded.width(), decoded.height(), 50, 5)) {
    ASSERT_TRUE(equal(decoded.decode(box), encoded.decode(box))) << words(box);
    ASSERT_TRUE(equal(decoded.decode_fast(box, 5, 5), encoded.decode_fast(box, 5, 5))) << words(box);
  }
  test::error_of([] { EncodedImage grey(std::make_shared<Image>(4, 4, 1)); });
  test::error_of([] { EncodedImage nothing(std::shared_ptr<const Image>{}); });
}

TEST(EncodedImage, BoxesLieInside) {
  for (const std::string name : {"parts_420.jpg", "parts_rgb.png"}) {
    const std::string bytes = read_bytes(folder() / name);
    EncodedImage encoded(bytes);
    const int64_t width = encoded.width(), height = encoded.height(), huge = INT64_MAX;
    for (const Box& box :
         {Box{-1, 0, 4, 4}, Box{0, -1, 4, 4}, Box{0, 0, 0, 4}, Box{0, 0, 4, 0}, Box{0, 0, -3, 4},
          Box{width, 0, 1, 1}, Box{0, height, 1, 1}, Box{0, 0, width + 1, 1}, Box{1, 1, width, 1},
          Box{1, 1, 1, height}, Box{huge, 0, 1, 1}, Box{1, 0, huge, 1}, Box{0, 1, 1, huge}}) {
      SCOPED_TRACE(words(box));
      test::error_of([&] { encoded.decode(box); });
      test::error_of([&] { encoded.decode_fast(box, 1, 1); });
    }
    EXPECT_EQ(encoded.decode().width, width) << "still of use";
  }
}

TEST(EncodedImage, IsOfUseAfterARefusal) {
  std::string bytes = read_bytes(folder() / "parts_420.jpg");
  bytes.resize(bytes.size() / 2);
  EncodedImage encoded(bytes);
  for (int i = 0; i < 3; ++i) EXPECT_THROW(encoded.decode(), Malformed);
  EXPECT_EQ(encoded.decode({0, 0, 20, 10}).height, 10) << "the damage is elsewhere";
  EXPECT_THROW(encoded.decode(), Malformed);
}

// Each scan costs a pass over all of the image: a few bytes that take minutes.
TEST(EncodedImage, RefusesScansWithoutEnd) {
  std::string bytes = jpeg_claiming("progressive.jpg", 2000, 2000);
  const size_t scan = bytes.rfind("\xff\xda");
  const std::string last = bytes.substr(scan, bytes.size() - 2 - scan);
  bytes.resize(scan);
  for (int i = 0; i < 20'000; ++i) bytes += last.substr(0, 14);
  bytes += "\xff\xd9";
  const auto start = std::chrono::steady_clock::now();
  EXPECT_NE(refusal(bytes), "not refused");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

TEST(EncodedImage, ReadsWhatWeWrite) {
  const std::string bytes = read_bytes(folder() / "calm_444.jpg");
  const Image image = EncodedImage(bytes).decode();
  const std::string png = encode_png(image), jpeg = encode_jpeg(image, 95);
  EXPECT_TRUE(equal(EncodedImage(png).decode(), image));
  EXPECT_LT(mean_difference(EncodedImage(jpeg).decode(), image), 3);
}

}  // namespace
}  // namespace tpgm
