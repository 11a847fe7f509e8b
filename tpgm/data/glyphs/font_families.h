// The fonts of the glyphs data set, and the domain and split of each font family.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tpgm {

/// Folder names, in the order of GlyphDomain and GlyphSplit.
inline constexpr std::array<const char*, 5> kGlyphDomains{"sans", "serif", "mono", "hand", "deco"};
inline constexpr std::array<const char*, 5> kGlyphSplits{"pretrain", "train", "radius", "selection", "test"};

enum class GlyphDomain { kSans, kSerif, kMono, kHand, kDeco };
enum class GlyphSplit { kPretrain, kTrain, kRadius, kSelection, kTest };

inline const char* to_text(GlyphDomain domain) { return kGlyphDomains[static_cast<size_t>(domain)]; }
inline const char* to_text(GlyphSplit split) { return kGlyphSplits[static_cast<size_t>(split)]; }

/// A font package of Debian and Ubuntu.
struct FontPackage {
  const char* name;
  GlyphDomain domain;  ///< for faces that do not describe themselves
};
std::span<const FontPackage> glyph_packages();

/// A hash that is the same on every machine: FNV-1a, finished by splitmix64.
uint64_t stable_hash(std::string_view text);

/// The family by which faces are split: the first word of the name ("lato" for "Lato Light", "dejavu" for
/// "DejaVu Sans Mono"). Fonts with different names that share outlines have one family ("liberation" for
/// "Arimo").
std::string glyph_family(std::string_view font_family);

/// The split of a family: half of the families are for pre-training, a quarter for fine-tuning (70 % to
/// train, 15 % to fit radii, 15 % for selection), and a quarter for testing.
GlyphSplit glyph_split(const std::string& family);

/// The style in which a face draws: from our list of names, else from what the font file states, else from
/// its package. `face` is its family and style.
GlyphDomain glyph_domain(std::string_view face, bool fixed_pitch, const std::array<uint8_t, 10>& panose,
                         const FontPackage& package);

/// Whether the face is known to draw other shapes in the place of letters: Greek, ornaments, or capitals for
/// small letters.
bool draws_other_things(std::string_view face);

}  // namespace tpgm
