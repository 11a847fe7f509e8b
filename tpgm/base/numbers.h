// Numbers from text and as text for people.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace tpgm {

/// `text` as a number; no value if any part of it is not, or if the number does not fit. "inf" and "nan" are
/// floating-point numbers.
template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end ? std::optional(value) : std::nullopt;
}

/// 1234567 → "1,234,567".
std::string grouped(int64_t number);
/// A number of things: 1, "image" → "1 image"; 1234, "class" → "1,234 classes".
std::string counted(int64_t number, const std::string& thing);
/// 2013265920 → "2.01 GB".
std::string bytes_text(size_t bytes);
/// Rounded up to seconds, from an hour on to minutes: 65 → "1 min 5 s", 3725 → "1 h 3 min".
std::string duration_text(double seconds);

}  // namespace tpgm
