// Sizes in bytes from text such as "4GB".
#pragma once

#include <cstdint>
#include <string>

#include "tpgm/base/text.h"

namespace tpgm {

/// "5GB" → 5·10⁹, "5GiB" → 5·2³⁰, "1000000" → 10⁶; throws std::invalid_argument for other text.
int64_t parse_bytes(const std::string& text);

/// A size, which may be 0, and the text it was given as.
struct ByteCount {
  int64_t bytes = 0;
  std::string text = "0";

  bool operator==(const ByteCount&) const = default;
};
template <>
struct TextOf<ByteCount> {
  static std::string type() { return "a size like 4GB or 500MiB, or 0"; }
  static std::string write(const ByteCount& value) { return value.text; }
  static bool read(const std::string& text, ByteCount& value);
};

}  // namespace tpgm
