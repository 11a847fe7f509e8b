// Types of training options, and their traits: what commands must know about an option besides its value.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "tpgm/base/text.h"

namespace tpgm {

/// Where a classifier's head comes from.
struct HeadSource {
  enum class Kind {
    kAuto,  ///< kZeroShot for a whole CLIP if the names of the classes are words, else kFresh
    kFresh,
    kCheckpoint,  ///< the checkpoint's own
    kZeroShot,    ///< made from text once, by CLIP's other tower
    kText,        ///< made from text anew in every step; the other tower trains, too
    kFile,        ///< a file of `tpgm zeroshot`
  };
  Kind kind = Kind::kAuto;
  std::string file = {};  ///< of kFile

  bool is(Kind other) const { return kind == other; }
  bool operator==(const HeadSource&) const = default;
};
template <>
struct Keywords<HeadSource::Kind> {
  static constexpr std::pair<HeadSource::Kind, const char*> all[] = {
      {HeadSource::Kind::kAuto, "auto"},
      {HeadSource::Kind::kFresh, "fresh"},
      {HeadSource::Kind::kCheckpoint, "checkpoint"},
      {HeadSource::Kind::kZeroShot, "zeroshot"},
      {HeadSource::Kind::kText, "text"}};
};
template <>
struct TextOf<HeadSource> {
  static std::string type() { return "auto, fresh, checkpoint, zeroshot, text or a file"; }
  static std::string write(const HeadSource& value) {
    return value.is(HeadSource::Kind::kFile) ? value.file : to_text(value.kind);
  }
  static bool read(const std::string& text, HeadSource& value) {
    for (const auto& [kind, word] : Keywords<HeadSource::Kind>::all) {
      if (text == word) {
        value = {kind, ""};
        return true;
      }
    }
    value = {HeadSource::Kind::kFile, text};
    return true;
  }
};

/// The learning rate of a head.
struct HeadRate {
  enum class Kind {
    kAuto,  ///< `lr`, but at least 1e-3 for a fresh head on pre-trained weights
    kSame,  ///< `lr`
    kNumber,
  };
  Kind kind = Kind::kAuto;
  double number = 0;  ///< of kNumber

  /// A rate for a model whose other parameters learn at `lr`; kAuto is `lr`.
  double value(double lr) const { return kind == Kind::kNumber ? number : lr; }
  bool operator==(const HeadRate&) const = default;
};
template <>
struct TextOf<HeadRate> {
  static std::string type() { return "auto|lr|float"; }
  static std::string expected() { return "a number, 'lr' or 'auto'"; }
  static std::string write(const HeadRate& rate) {
    if (rate.kind == HeadRate::Kind::kNumber) return to_text(rate.number);
    return rate.kind == HeadRate::Kind::kSame ? "lr" : "auto";
  }
  static bool read(const std::string& text, HeadRate& rate) {
    rate = {text == "auto" ? HeadRate::Kind::kAuto
            : text == "lr" ? HeadRate::Kind::kSame
                           : HeadRate::Kind::kNumber,
            0};
    return rate.kind != HeadRate::Kind::kNumber || read_value(text, rate.number);
  }
};

/// The classes over which tests are scored.
enum class ScoredClasses {
  kAll,
  kSubset,  ///< the classes that occur in a test
};
template <>
struct Keywords<ScoredClasses> {
  static constexpr std::pair<ScoredClasses, const char*> all[] = {{ScoredClasses::kAll, "all"},
                                                                  {ScoredClasses::kSubset, "subset"}};
};

/// What to do about a loss that is not finite.
enum class OnNan { kError, kSkip };
template <>
struct Keywords<OnNan> {
  static constexpr std::pair<OnNan, const char*> all[] = {{OnNan::kError, "error"}, {OnNan::kSkip, "skip"}};
};

/// Traits of an option. Each option has either kIdentity or kCircumstance, and any of the others.
enum class Trait : uint32_t {
  kIdentity = 1 << 0,  ///< part of what a run is: runs with different values are different rows of a table
  kCircumstance = 1 << 1,  ///< may differ between the runs of one row: machine, logs, seed, folder
  kPath = 1 << 2,          ///< its value is a path, relative to the recipe that it is in
  kModel = 1 << 3,         ///< the anchor depends on it
  kData = 1 << 4,          ///< the images, their splits, and what counts as correct
  kImage = 1 << 5,         ///< how evaluation reads and transforms images
  kMachine = 1 << 6,       ///< where and how fast a run computes; not taken over to another machine
  kResumable = 1 << 7,     ///< may be changed when a run is resumed
  kPerRun = 1 << 8,        ///< differs between runs that are planned together
  kFineTuning = 1 << 9,    ///< has no meaning in contrastive pre-training
  kScaled = 1 << 10,       ///< multiplied by `scale` in a scaled-down plan; counts stay at least 1
  kScaledAway = 1 << 11,   ///< the same, but counts may become 0
};
constexpr Trait operator|(Trait a, Trait b) {
  return static_cast<Trait>(static_cast<uint32_t>(a) | static_cast<uint32_t>(b));
}
/// True if `traits` has any of `wanted`.
constexpr bool has_any(Trait traits, Trait wanted) {
  return (static_cast<uint32_t>(traits) & static_cast<uint32_t>(wanted)) != 0;
}

}  // namespace tpgm
