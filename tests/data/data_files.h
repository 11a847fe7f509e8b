// What the tests of tpgm/data share: images, folders of them, tars in memory, and what the process holds.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/io/scratch.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/data/formats/encode.h"
#include "tpgm/data/random.h"
#include "tpgm/data/sources/folder.h"
#include "tpgm/data/sources/tar_writer.h"

namespace tpgm::test {

/// Blocks of colors that the seed chooses, so that JPEG leaves something of them.
inline Image blocks(uint64_t seed, int64_t width = 20, int64_t height = 16) {
  Image image(width, height);
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      Random random(seed, 0, static_cast<uint64_t>((y / 4) * 1000 + x / 4));
      for (int64_t c = 0; c < 3; ++c) image.row(y)[3 * x + c] = static_cast<uint8_t>(random.integer(256));
    }
  }
  return image;
}

/// In the format of the name's ending.
inline std::string encoded(const std::string& name, const Image& image) {
  return name.ends_with(".png") ? encode_png(image) : encode_jpeg(image, 90);
}

inline void put_file(const std::filesystem::path& path, const std::string& bytes) {
  std::filesystem::create_directories(path.parent_path());
  write_bytes(path, bytes);
}

inline void write_image(const std::filesystem::path& path, uint64_t seed, int64_t width = 20,
                        int64_t height = 16) {
  put_file(path, encoded(path.string(), blocks(seed, width, height)));
}

using Files = std::vector<std::pair<std::string, std::string>>;  // names with bytes

inline void write_tar(const std::filesystem::path& path, const Files& files) {
  std::filesystem::create_directories(path.parent_path());
  TarWriter tar(path);
  for (const auto& [name, bytes] : files) tar.add(name, bytes);
  tar.commit();
}

inline std::vector<std::string> names_of(const Samples& samples) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < samples.size(); ++i) names.emplace_back(samples.name(i));
  return names;
}

inline std::vector<int64_t> labels_of(const Samples& samples) {
  return {samples.labels().begin(), samples.labels().end()};
}

/// The reason for which `action` throws Malformed; fails when it does not.
template <typename Action>
std::string refusal_of(const Action& action) {
  try {
    action();
  } catch (const Malformed& malformed) {
    return malformed.reason;
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

#define EXPECT_HAS(text, part) EXPECT_PRED2(::tpgm::test::contains, text, part)

}  // namespace tpgm::test
