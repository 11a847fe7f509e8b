// The characters that the glyphs data set draws, and their Unicode names.
#pragma once

#include <cstddef>
#include <span>

namespace tpgm {

struct GlyphCharacter {
  char32_t code;
  const char* name;  // "latin_small_letter_a": Unicode's in lower case, with '_' for spaces
};

inline constexpr size_t kGlyphClasses = 62;

/// 0-9 A-Z a-z, then those for pre-training only: accented Latin, Greek, Cyrillic, punctuation, currencies,
/// arrows, signs. Left out is what looks like a character that is there (Greek and Cyrillic A) or has no ink.
std::span<const GlyphCharacter> glyph_characters();

/// The first kGlyphClasses of them, the classes of the task.
inline std::span<const GlyphCharacter> glyph_task_characters() {
  return glyph_characters().first(kGlyphClasses);
}

}  // namespace tpgm
