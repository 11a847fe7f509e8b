// Which fonts the glyphs data set is drawn from, and which part of it each family is for.
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

/// Of Debian and Ubuntu.
struct FontPackage {
  const char* name;
  GlyphDomain domain;  // of faces that do not tell
};
std::span<const FontPackage> glyph_packages();

/// FNV-1a with splitmix64's finish: the same on every machine.
uint64_t stable_hash(std::string_view text);

/// What splits are made by: "lato" of "Lato Light", "dejavu" of "DejaVu Sans Mono". The first word of the
/// name, or the one its relatives go by where fonts of several names share outlines ("liberation" of
/// "Arimo").
std::string glyph_family(std::string_view font_family);

/// Half of the families to pre-train, a quarter to fine-tune (of which 70, 15 and 15 % to train, to fit radii
/// and to select by), a quarter to test.
GlyphSplit glyph_split(const std::string& family);

/// How a face draws: by our own list, then by what it says of itself, then by its package. `face` is its
/// family and style.
GlyphDomain glyph_domain(std::string_view face, bool fixed_pitch, const std::array<uint8_t, 10>& panose,
                         const FontPackage& package);

/// Whether the face is known to draw something else in the place of letters: Greek, ornaments, capitals for
/// small letters.
bool draws_other_things(std::string_view face);

}  // namespace tpgm
