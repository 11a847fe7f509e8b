// Options of methods as text, for flags, recipes and lists.
#pragma once

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tpgm/core/displacements.h"
#include "tpgm/core/radii.h"

namespace tpgm {

/// The words of an enumeration, as flags, recipes and states spell them. Specialised beside each enumeration.
template <class E>
struct Words;

template <>
struct Words<Norm> {
  static constexpr std::pair<Norm, const char*> all[] = {
      {Norm::kL2, "l2"}, {Norm::kMars, "mars"}, {Norm::kMarsMax, "mars-max"}};
};
template <>
struct Words<AnchorStorage> {
  static constexpr std::pair<AnchorStorage, const char*> all[] = {{AnchorStorage::kWeights, "weights"},
                                                                  {AnchorStorage::kBFloat16, "bf16"},
                                                                  {AnchorStorage::kHost, "host"}};
};
template <>
struct Words<RadiusInit> {
  static constexpr std::pair<RadiusInit, const char*> all[] = {{RadiusInit::kHalf, "half"},
                                                               {RadiusInit::kEps, "eps"}};
};
template <>
struct Words<RadiusScale> {
  static constexpr std::pair<RadiusScale, const char*> all[] = {{RadiusScale::kAbsolute, "absolute"},
                                                                {RadiusScale::kRelative, "relative"}};
};

/// How often something happens: every so many optimizer steps, or once, after the last.
struct Every {
  int64_t steps = 1;
  constexpr Every(int64_t n) : steps(n) {}  // NOLINT(google-explicit-constructor): .every(10)
  constexpr bool at_end() const { return steps == -1; }
};
inline constexpr Every kEnd = -1;

template <class T>
inline constexpr bool kIsOptional = false;
template <class T>
inline constexpr bool kIsOptional<std::optional<T>> = true;
template <class T>
inline constexpr bool kIsVector = false;
template <class T>
inline constexpr bool kIsVector<std::vector<T>> = true;

/// An option's value as text: "l2", "0.01", "true", "head.*,fc.*"; "auto" for an optional that is not set.
template <class T>
std::string to_text(const T& value) {
  if constexpr (kIsOptional<T>) {
    return value ? to_text(*value) : "auto";
  } else if constexpr (std::is_enum_v<T>) {
    for (const auto& [each, word] : Words<T>::all)
      if (each == value) return word;
    return "?";
  } else if constexpr (kIsVector<T>) {
    return fmt::format("{}", fmt::join(value, ","));
  } else if constexpr (std::is_same_v<T, Every>) {
    return value.at_end() ? "end" : std::to_string(value.steps);
  } else {
    return fmt::format("{}", value);
  }
}

/// The type as a reader of --help wants it: "float", "int", "bool", "globs", "text", "floats", or the words
/// of an enumeration.
template <class T>
std::string type_name() {
  if constexpr (kIsOptional<T>) {
    return type_name<typename T::value_type>();
  } else if constexpr (std::is_enum_v<T>) {
    std::vector<std::string> words;
    for (const auto& [each, word] : Words<T>::all) words.emplace_back(word);
    return fmt::format("{}", fmt::join(words, "|"));
  } else if constexpr (std::is_same_v<T, Every>) {
    return "int|end";
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

/// The inverse of to_text. Throws, naming `option`, if `text` is not of the type.
template <class T>
void from_text(const std::string& option, const std::string& text, T& value) {
  if constexpr (kIsOptional<T>) {
    value.reset();
    if (text != "auto") from_text(option, text, value.emplace());
    return;
  } else if constexpr (std::is_enum_v<T>) {
    for (const auto& [each, word] : Words<T>::all) {
      if (text == word) {
        value = each;
        return;
      }
    }
  } else if constexpr (std::is_same_v<T, Every>) {
    value = kEnd;
    if (text == "end") return;
    const auto* last = text.data() + text.size();
    const auto result = std::from_chars(text.data(), last, value.steps);
    if (result.ec == std::errc() && result.ptr == last && value.steps >= 1) return;
  } else if constexpr (std::is_same_v<T, bool>) {
    if (text == "true" || text == "false") {
      value = text == "true";
      return;
    }
  } else if constexpr (std::is_same_v<T, std::string>) {
    value = text;
    return;
  } else if constexpr (kIsVector<T>) {
    value.clear();
    for (size_t begin = 0; begin < text.size();) {
      const auto end = std::min(text.find(',', begin), text.size());
      from_text(option, text.substr(begin, end - begin), value.emplace_back());
      begin = end + 1;
    }
    return;
  } else {
    const auto* last = text.data() + text.size();
    T parsed{};
    if (const auto result = std::from_chars(text.data(), last, parsed);
        result.ec == std::errc() && result.ptr == last) {
      value = parsed;
      return;
    }
  }
  TORCH_CHECK(false, option, " must be ", type_name<T>(), ", not '", text, "'");
}

}  // namespace tpgm
