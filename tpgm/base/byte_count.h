// Amounts of memory as people write them.
#pragma once

#include <cstdint>
#include <string>

#include "tpgm/base/text.h"

namespace tpgm {

/// "5GB" → 5·10⁹, "5GiB" → 5·2³⁰, "1000000"; throws std::invalid_argument.
int64_t parse_bytes(const std::string& text);

/// An amount that may be none, and how it was written.
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
