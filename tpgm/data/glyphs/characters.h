// The characters that the glyphs data set draws, and their Unicode names.
#pragma once

#include <cstddef>
#include <span>

namespace tpgm {

struct GlyphCharacter {
  char32_t code;
  const char* name;  ///< the Unicode name in lower case, with '_' for spaces: "latin_small_letter_a"
};

inline constexpr size_t kGlyphClasses = 62;

/// 0-9 A-Z a-z, then characters only for pre-training: accented Latin, Greek, Cyrillic, punctuation,
/// currencies, arrows and signs. It leaves out characters that look like another one (Greek and Cyrillic A)
/// or have no ink.
std::span<const GlyphCharacter> glyph_characters();

/// The first kGlyphClasses of them, the classes of the task.
inline std::span<const GlyphCharacter> glyph_task_characters() {
  return glyph_characters().first(kGlyphClasses);
}

}  // namespace tpgm
