// Values from text and as text, as in flags, recipes and saved states: keywords of enumerations, numbers,
// lists.
#pragma once

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tpgm/base/numbers.h"
#include "tpgm/base/untrusted.h"

namespace tpgm {

/// The keywords of an enumeration, in the order in which --help lists them. Specialize it beside the
/// enumeration:
///
///     template <>
///     struct Keywords<Decode> {
///       static constexpr std::pair<Decode, const char*> all[] = {{Decode::kExact, "exact"}, ...};
///     };
template <class E>
struct Keywords;

/// The text of a type that is none of the types below. Specialize it beside the type, with
///
///     static std::string type();                            // for --help and errors: "int|end"
///     static std::string expected();                        // for errors, if they need other words
///     static std::string write(const T& value);
///     static bool read(const std::string& text, T& value);  // false: not a value of the type
template <class T>
struct TextOf;

template <class T>
concept HasTextOf = requires { TextOf<T>::type(); };

template <class T>
inline constexpr bool kIsOptional = false;
template <class T>
inline constexpr bool kIsOptional<std::optional<T>> = true;
template <class T>
inline constexpr bool kIsVector = false;
template <class T>
inline constexpr bool kIsVector<std::vector<T>> = true;

/// A value as text: "l2", "0.01", "true", "head.*,fc.*"; "auto" for an optional that is not set.
template <class T>
std::string to_text(const T& value) {
  if constexpr (HasTextOf<T>) {
    return TextOf<T>::write(value);
  } else if constexpr (kIsOptional<T>) {
    return value ? to_text(*value) : "auto";
  } else if constexpr (std::is_enum_v<T>) {
    for (const auto& [each, word] : Keywords<T>::all) {
      if (each == value) return word;
    }
    return "?";
  } else if constexpr (kIsVector<T>) {
    return fmt::format("{}", fmt::join(value, ","));
  } else {
    return fmt::format("{}", value);
  }
}

/// "ft", "ft and lp", "ft, lp and pf"; `last` is the word before the last.
inline std::string listed(const std::vector<std::string>& words, const char* last = "and") {
  if (words.size() < 2) return words.empty() ? "" : words.front();
  return fmt::format("{} {} {}", fmt::join(words.begin(), words.end() - 1, ", "), last, words.back());
}

/// The name of a type in --help: "float", "int", "bool", "globs", "text", "floats", or the keywords of an
/// enumeration.
template <class T>
std::string type_name() {
  if constexpr (HasTextOf<T>) {
    return TextOf<T>::type();
  } else if constexpr (kIsOptional<T>) {
    return type_name<typename T::value_type>();
  } else if constexpr (std::is_enum_v<T>) {
    std::vector<std::string> words;
    for (const auto& [each, word] : Keywords<T>::all) words.emplace_back(word);
    return fmt::format("{}", fmt::join(words, "|"));
  } else if constexpr (std::is_same_v<T, bool>) {
    return "bool";
  } else if constexpr (std::is_same_v<T, int64_t>) {
    return "int";
  } else if constexpr (std::is_same_v<T, double>) {
    return "float";
  } else if constexpr (std::is_same_v<T, std::string>) {
    return "text";
  } else if constexpr (std::is_same_v<T, std::vector<double>>) {
    return "floats";
  } else {
    static_assert(std::is_same_v<T, std::vector<std::string>>);
    return "globs";
  }
}

/// What a value of the type is, for errors: "an integer", "a number", "true or false"; else as type_name().
template <class T>
std::string expected_text() {
  if constexpr (requires { TextOf<T>::expected(); }) {
    return TextOf<T>::expected();
  } else if constexpr (kIsOptional<T> && !HasTextOf<T>) {
    return expected_text<typename T::value_type>();
  } else if constexpr (std::is_same_v<T, bool>) {
    return "true or false";
  } else if constexpr (std::is_same_v<T, int64_t>) {
    return "an integer";
  } else if constexpr (std::is_same_v<T, double>) {
    return "a number";
  } else {
    return type_name<T>();
  }
}

/// The inverse of to_text for a single value: false if `text` is not a value of the type.
template <class T>
bool read_value(const std::string& text, T& value) {
  if constexpr (HasTextOf<T>) {
    return TextOf<T>::read(text, value);
  } else if constexpr (std::is_enum_v<T>) {
    for (const auto& [each, word] : Keywords<T>::all) {
      if (text != word) continue;
      value = each;
      return true;
    }
    return false;
  } else if constexpr (std::is_same_v<T, bool>) {
    if (text != "true" && text != "false") return false;
    value = text == "true";
    return true;
  } else if constexpr (std::is_same_v<T, std::string>) {
    value = text;
    return true;
  } else {
    const auto number = parse_number<T>(text);
    if (number) value = *number;
    return number.has_value();
  }
}

/// The same, but throws, naming `option`, if `text` is not a value of the type. Reads lists, too.
template <class T>
void from_text(const std::string& option, const std::string& text, T& value) {
  if constexpr (kIsVector<T> && !HasTextOf<T>) {
    value.clear();
    for (size_t begin = 0; begin < text.size();) {
      const auto end = std::min(text.find(',', begin), text.size());
      from_text(option, text.substr(begin, end - begin), value.emplace_back());
      begin = end + 1;
    }
  } else if constexpr (kIsOptional<T> && !HasTextOf<T>) {
    value.reset();
    if (text != "auto") from_text(option, text, value.emplace());
  } else {
    TORCH_CHECK(read_value(text, value), option, " must be ", expected_text<T>(), ", not '", printable(text),
                "'");
  }
}

/// from_text() without an option; the error begins with "must be".
template <class T>
T parsed(const std::string& text) {
  T value{};
  from_text("[parsed]", text, value);
  return value;
}

}  // namespace tpgm
