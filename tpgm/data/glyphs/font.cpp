// FreeType.
#include "tpgm/data/glyphs/font.h"

#include <c10/util/Exception.h>
#include <ft2build.h>

#include <algorithm>
#include <cmath>
#include FT_FREETYPE_H
#include FT_BBOX_H
#include FT_OUTLINE_H
#include FT_TRUETYPE_TABLES_H

#include "tpgm/data/glyphs/characters.h"

namespace tpgm {
namespace {

// FreeType's unit of length.
constexpr double kPixel = 64;
// An accented capital reaches 0.95 em, a descender 0.25.
constexpr double kEm = 26, kBaseline = 7;
// What is nowhere brighter is as good as not there.
constexpr uint8_t kFaint = 64;

FT_Pos units(double pixels) { return std::lround(pixels * kPixel); }

}  // namespace

struct Font::Face {
  FT_Library library = nullptr;
  FT_Face face = nullptr;
  double baseline = kBaseline;
  std::optional<Glyph> missing;  // how the face draws what it lacks

  ~Face() {
    FT_Done_Face(face);
    FT_Done_FreeType(library);
  }

  // With the middle of its advance at 0, the baseline at `baseline`.
  bool load(FT_UInt index) const {
    if (FT_Load_Glyph(face, index, FT_LOAD_NO_HINTING | FT_LOAD_NO_BITMAP) != 0) return false;
    FT_GlyphSlot glyph = face->glyph;
    if (glyph->format != FT_GLYPH_FORMAT_OUTLINE || glyph->outline.n_points == 0) return false;
    FT_Outline_Translate(&glyph->outline, -glyph->advance.x / 2, units(baseline));
    return true;
  }

  FT_BBox ink() const {
    FT_BBox box{};
    FT_Outline_Get_BBox(&face->glyph->outline, &box);
    return box;
  }

  void fit() {
    FT_Set_Char_Size(face, 0, units(kEm), 72, 72);
    baseline = 0;
    double aside = 1, below = 0, above = 1;
    for (const auto& character : glyph_task_characters()) {
      if (!load(FT_Get_Char_Index(face, character.code))) continue;
      const FT_BBox box = ink();
      aside = std::max({aside, -box.xMin / kPixel, box.xMax / kPixel});
      below = std::max(below, -box.yMin / kPixel);
      above = std::max(above, box.yMax / kPixel);
    }
    constexpr double kRoom = kGlyphSize - 0.125;  // less what FreeType may round
    const double scale = std::min({1.0, kRoom / (above + below), kRoom / 2 / aside});
    baseline = std::clamp(kBaseline, below * scale, kGlyphSize - above * scale);
    // Not by FT_Set_Char_Size, which some fonts have FreeType round to whole pixels.
    FT_Matrix matrix{std::lround(scale * 0x10000), 0, 0, std::lround(scale * 0x10000)};
    FT_Set_Transform(face, &matrix, nullptr);
  }

  std::optional<Glyph> draw(FT_UInt index) const {
    if (!load(index)) return std::nullopt;
    FT_Outline& outline = face->glyph->outline;
    FT_Outline_Translate(&outline, units(kGlyphSize / 2.0), 0);
    const FT_BBox box = ink();
    Glyph glyph{Image(kGlyphSize, kGlyphSize, 1)};
    glyph.clipped = std::min(box.xMin, box.yMin) < 0 || std::max(box.xMax, box.yMax) > units(kGlyphSize);
    FT_Bitmap bitmap{};
    bitmap.rows = bitmap.width = kGlyphSize;
    bitmap.pitch = kGlyphSize;
    bitmap.buffer = glyph.image.pixels.data();
    bitmap.num_grays = 256;
    bitmap.pixel_mode = FT_PIXEL_MODE_GRAY;
    if (FT_Outline_Get_Bitmap(library, &outline, &bitmap) != 0) return std::nullopt;
    const auto& pixels = glyph.image.pixels;
    if (*std::max_element(pixels.begin(), pixels.end()) < kFaint) return std::nullopt;
    return glyph;
  }
};

void require_freetype() {}

Font::Font(const std::filesystem::path& file, int64_t index) : face_(std::make_unique<Face>()) {
  TORCH_CHECK(FT_Init_FreeType(&face_->library) == 0, "[Font] FreeType does not start");
  TORCH_CHECK(FT_New_Face(face_->library, file.c_str(), index, &face_->face) == 0,
              "[Font] FreeType cannot read '", file.string(), "'");
  TORCH_CHECK(FT_IS_SCALABLE(face_->face), "[Font] '", file.string(), "' has bitmaps only");
  face_->fit();
  face_->missing = face_->draw(0);
}

Font::~Font() = default;

int64_t Font::count() const { return face_->face->num_faces; }

std::string Font::family() const {
  const char* name = face_->face->family_name;
  return name != nullptr ? name : "";
}

std::string Font::style() const {
  const char* name = face_->face->style_name;
  return name != nullptr ? name : "";
}

bool Font::fixed_pitch() const { return FT_IS_FIXED_WIDTH(face_->face); }

std::array<uint8_t, 10> Font::panose() const {
  std::array<uint8_t, 10> numbers{};
  const auto* table = static_cast<const TT_OS2*>(FT_Get_Sfnt_Table(face_->face, FT_SFNT_OS2));
  if (table != nullptr) std::copy(std::begin(table->panose), std::end(table->panose), numbers.begin());
  return numbers;
}

std::optional<Glyph> Font::draw(char32_t character) const {
  const FT_UInt index = FT_Get_Char_Index(face_->face, character);
  auto glyph = index != 0 ? face_->draw(index) : std::nullopt;
  if (glyph && face_->missing && glyph->image.pixels == face_->missing->image.pixels) return std::nullopt;
  return glyph;
}

}  // namespace tpgm
