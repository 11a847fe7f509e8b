// A font file, as FreeType reads and draws it.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "tpgm/data/image.h"

namespace tpgm {

/// Throws where tpgm was built without FreeType.
void require_freetype();

/// Pixels of a glyph's image, each way.
inline constexpr int64_t kGlyphSize = 32;

/// White on black, antialiased.
struct Glyph {
  Image image;           // kGlyphSize x kGlyphSize x 1
  bool clipped = false;  // by the image's edge
};

/// One face, its glyphs drawn without hinting, so that FreeType's version hardly shows. The em is 26 pixels,
/// the baseline 7 above the lower edge, and the middle of a character's advance in the middle of the image.
/// Where the face's letters and digits do not all fit so, its baseline is moved and, if need be, all of it
/// made smaller. Relative sizes and the baseline are therefore those of the face.
///
/// Not thread-safe; objects have nothing in common, so use one per thread.
class Font {
 public:
  /// Throws when FreeType cannot read the file, or not scale what is in it.
  explicit Font(const std::filesystem::path& file, int64_t index = 0);
  ~Font();
  Font(const Font&) = delete;
  Font& operator=(const Font&) = delete;

  /// Of the same file.
  int64_t count() const;
  /// "DejaVu Sans Mono", "Bold Oblique"; '?' for what is not ASCII.
  std::string family() const;
  std::string style() const;
  bool fixed_pitch() const;
  /// How the font describes itself (OS/2 table), zeros where it does not.
  std::array<uint8_t, 10> panose() const;

  /// Nothing for a character that the face lacks, or draws with hardly any ink, or as it draws those it
  /// lacks.
  std::optional<Glyph> draw(char32_t character) const;

 private:
  struct Face;
  std::unique_ptr<Face> face_;
};

}  // namespace tpgm
