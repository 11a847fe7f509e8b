// The keywords of methods' options, for flags, recipes and lists.
#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <utility>

#include "tpgm/base/text.h"
#include "tpgm/core/displacements.h"
#include "tpgm/core/radii.h"

namespace tpgm {

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

/// When a method learns its radii, and how many radius steps it takes each time.
struct RadiusUpdates {
  Every every = 1;
  int64_t radius_steps = 1;
};

template <>
struct TextOf<Every> {
  static std::string type() { return "int|end"; }
  static std::string write(const Every& value) {
    return value.at_end() ? "end" : std::to_string(value.steps);
  }
  static bool read(const std::string& text, Every& value) {
    value = kEnd;
    if (text == "end") return true;
    const auto* last = text.data() + text.size();
    const auto result = std::from_chars(text.data(), last, value.steps);
    return result.ec == std::errc() && result.ptr == last && value.steps >= 1;
  }
};

}  // namespace tpgm
