// The keywords of the enumerations among methods' options, as flags and recipes spell them.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>

#include "tpgm/base/numbers.h"
#include "tpgm/base/text.h"
#include "tpgm/core/displacements.h"
#include "tpgm/core/radii.h"

namespace tpgm {

template <>
struct Keywords<Norm> {
  static constexpr auto all = [] {
    std::array<std::pair<Norm, const char*>, std::size(kernels::kNorms)> words;
    for (size_t k = 0; k < words.size(); ++k)
      words[k] = {kernels::kNorms[k], kernels::traits(kernels::kNorms[k]).keyword};
    return words;
  }();
};
template <>
struct Keywords<AnchorStorage> {
  static constexpr std::pair<AnchorStorage, const char*> all[] = {{AnchorStorage::kWeights, "weights"},
                                                                  {AnchorStorage::kBFloat16, "bf16"},
                                                                  {AnchorStorage::kHost, "host"}};
};
template <>
struct Keywords<RadiusInit> {
  static constexpr std::pair<RadiusInit, const char*> all[] = {{RadiusInit::kHalf, "half"},
                                                               {RadiusInit::kEps, "eps"}};
};
template <>
struct Keywords<RadiusScale> {
  static constexpr std::pair<RadiusScale, const char*> all[] = {{RadiusScale::kAbsolute, "absolute"},
                                                                {RadiusScale::kRelative, "relative"}};
};

/// A last argument to the visitors of fields(): whether users set the option (the default), or the training
/// loop, which knows the head and the length of its phases.
enum class SetBy { kUser, kLoop };

/// How often something happens: every N optimizer steps, or once after the last one.
struct Every {
  int64_t steps = 1;
  constexpr Every() = default;
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
  static std::string expected() { return "an integer from 1, or 'end'"; }
  static std::string write(const Every& value) {
    return value.at_end() ? "end" : std::to_string(value.steps);
  }
  static bool read(const std::string& text, Every& value) {
    if (text == "end") {
      value = kEnd;
      return true;
    }
    const auto steps = parse_number<int64_t>(text);
    if (steps) value = *steps;
    return steps && *steps >= 1;
  }
};

}  // namespace tpgm
