#include "tpgm/base/numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace tpgm {

std::string grouped(int64_t number) {
  std::string digits = std::to_string(number);
  for (auto at = static_cast<ptrdiff_t>(digits.size()) - 3; at > (number < 0 ? 1 : 0); at -= 3)
    digits.insert(static_cast<size_t>(at), 1, ',');
  return digits;
}

std::string counted(int64_t number, const std::string& thing) {
  const char* ending = number == 1 ? "" : thing.ends_with("s") ? "es" : "s";
  return fmt::format("{} {}{}", grouped(number), thing, ending);
}

std::string bytes_text(size_t bytes) {
  static constexpr std::array kUnits{"B", "kB", "MB", "GB", "TB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.3g} {}", value, kUnits[unit]);
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<long long>(std::max(0.0, std::isfinite(seconds) ? std::ceil(seconds) : 0.0));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  const auto minutes = (whole + 59) / 60;
  return fmt::format("{} h {} min", minutes / 60, minutes % 60);
}

}  // namespace tpgm
