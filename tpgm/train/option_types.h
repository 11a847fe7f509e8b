// Types of options that no room below has, and what is to be known of an option beside its value.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "tpgm/base/text.h"

namespace tpgm {

/// Where a classifier's head comes from.
struct HeadSource {
  enum class Kind {
    kFresh,
    kCheckpoint,  ///< the checkpoint's own
    kZeroShot,    ///< made from text once, by CLIP's other tower
    kText,        ///< made from text anew in every step; the other tower trains, too
    kFile,        ///< a file of `tpgm zeroshot`
  };
  Kind kind = Kind::kFresh;
  std::string file = {};  ///< of kFile

  bool is(Kind other) const { return kind == other; }
  bool operator==(const HeadSource&) const = default;
};
template <>
struct Words<HeadSource::Kind> {
  static constexpr std::pair<HeadSource::Kind, const char*> all[] = {
      {HeadSource::Kind::kFresh, "fresh"},
      {HeadSource::Kind::kCheckpoint, "checkpoint"},
      {HeadSource::Kind::kZeroShot, "zeroshot"},
      {HeadSource::Kind::kText, "text"}};
};
template <>
struct TextOf<HeadSource> {
  static std::string type() { return "fresh, checkpoint, zeroshot, text or a file"; }
  static std::string write(const HeadSource& value) {
    return value.is(HeadSource::Kind::kFile) ? value.file : to_text(value.kind);
  }
  static bool read(const std::string& text, HeadSource& value) {
    for (const auto& [kind, word] : Words<HeadSource::Kind>::all) {
      if (text == word) {
        value = {kind, ""};
        return true;
      }
    }
    value = {HeadSource::Kind::kFile, text};
    return true;
  }
};

/// Over which classes tests are scored.
enum class ScoredClasses {
  kAll,
  kSubset,  ///< those that occur in a test
};
template <>
struct Words<ScoredClasses> {
  static constexpr std::pair<ScoredClasses, const char*> all[] = {{ScoredClasses::kAll, "all"},
                                                                  {ScoredClasses::kSubset, "subset"}};
};

/// What is done about a loss that is not finite.
enum class OnNan { kError, kSkip };
template <>
struct Words<OnNan> {
  static constexpr std::pair<OnNan, const char*> all[] = {{OnNan::kError, "error"}, {OnNan::kSkip, "skip"}};
};

/// What else must be known of an option. Each says either kIdentity or kCircumstance, and whatever of the
/// others is true of it.
enum class Trait : uint32_t {
  kIdentity = 1 << 0,      ///< part of what a run is: runs that differ in it are two rows of a table
  kCircumstance = 1 << 1,  ///< runs of one row, over seeds, may differ in it: of machine, logs, seed, folder
  kPath = 1 << 2,          ///< its value is the path of something; relative to the recipe that says it
  kModel = 1 << 3,         ///< the anchor depends on it: what is loaded before a method sees it
  kData = 1 << 4,          ///< which images there are, to which end, and what counts as correct
  kImage = 1 << 5,         ///< how evaluation reads and sees images
  kMachine = 1 << 6,       ///< where and how fast, not what: of no use on another machine
  kResumable = 1 << 7,     ///< may be given to a run that is resumed
  kPerRun = 1 << 8,        ///< each of several runs that are planned together has its own
  kFineTuning = 1 << 9,    ///< of no use to contrastive pre-training, where an image has one text
  kScaled = 1 << 10,       ///< a plan made small (`scale`) has this share of it; of a count at least one
  kScaledAway = 1 << 11,   ///< the same, and of a count it may be none
};
constexpr Trait operator|(Trait a, Trait b) {
  return static_cast<Trait>(static_cast<uint32_t>(a) | static_cast<uint32_t>(b));
}
/// True if `traits` has any of `wanted`.
constexpr bool has_any(Trait traits, Trait wanted) {
  return (static_cast<uint32_t>(traits) & static_cast<uint32_t>(wanted)) != 0;
}

}  // namespace tpgm
