// Reads a font file and draws its glyphs, with FreeType.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "tpgm/data/image.h"

namespace tpgm {

/// Throws in a build without FreeType.
void require_freetype();

/// Width and height of a glyph's image, in pixels.
inline constexpr int64_t kGlyphSize = 32;

/// A glyph in white on black, antialiased.
struct Glyph {
  Image image;           // kGlyphSize x kGlyphSize x 1
  bool clipped = false;  // the edge of the image cuts it off
};

/// One face of a font. Glyphs are drawn without hinting, so that the version of FreeType hardly matters. The
/// em is 26 pixels, the baseline lies 7 pixels above the lower edge, and the middle of a character's advance
/// is in the middle of the image. If not all letters and digits of the face fit, its baseline is moved and,
/// if that does not suffice, all glyphs are scaled down. Within a face all glyphs thus have one scale and one
/// baseline.
///
/// Not thread-safe: use one object per thread.
class Font {
 public:
  /// Throws if FreeType cannot read the file or scale its glyphs.
  explicit Font(const std::filesystem::path& file, int64_t index = 0);
  ~Font();
  Font(const Font&) = delete;
  Font& operator=(const Font&) = delete;

  /// Number of faces in the file.
  int64_t count() const;
  /// "DejaVu Sans Mono" and "Bold Oblique"; characters that are not ASCII become '?'.
  std::string family() const;
  std::string style() const;
  bool fixed_pitch() const;
  /// The classification in the font's OS/2 table; zeros if it has none.
  std::array<uint8_t, 10> panose() const;

  /// Nothing for a character that the face lacks, draws with hardly any ink, or draws as its missing glyph.
  std::optional<Glyph> draw(char32_t character) const;

 private:
  struct Face;
  std::unique_ptr<Face> face_;
};

}  // namespace tpgm
