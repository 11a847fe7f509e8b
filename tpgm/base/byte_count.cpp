#include "tpgm/base/byte_count.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <stdexcept>
#include <utility>

namespace tpgm {

int64_t parse_bytes(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string unit(end, text.data() + text.size());
  for (char& letter : unit) letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  static constexpr std::array<std::pair<const char*, double>, 8> kUnits{{{"", 1},
                                                                         {"B", 1},
                                                                         {"KB", 1e3},
                                                                         {"MB", 1e6},
                                                                         {"GB", 1e9},
                                                                         {"KIB", 1024.0},
                                                                         {"MIB", 1048576.0},
                                                                         {"GIB", 1073741824.0}}};
  for (const auto& [name, factor] : kUnits) {
    if (error == std::errc() && unit == name && number > 0 && number * factor >= 1 &&
        number * factor < 9e18) {
      return static_cast<int64_t>(std::llround(number * factor));
    }
  }
  throw std::invalid_argument(fmt::format("'{}' is not a size; write it like 5GB, 500MB or 2GiB", text));
}

bool TextOf<ByteCount>::read(const std::string& text, ByteCount& value) {
  try {
    value = {text == "0" ? 0 : parse_bytes(text), text};
  } catch (const std::invalid_argument&) {  // the caller reports what is expected
    return false;
  }
  return true;
}

}  // namespace tpgm
