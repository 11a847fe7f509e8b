// The glyphs data set: letters and digits of free fonts, in five styles of drawing (docs/glyphs.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tpgm/data/glyphs/font_families.h"

namespace tpgm {

struct GlyphFace {
  std::filesystem::path file;
  int64_t index = 0;   // in the file
  std::string name;    // "dejavu-sans-bold": the face's own names, one for each face
  std::string family;  // glyph_family()
  GlyphDomain domain{};
  GlyphSplit split{};
};

struct GlyphFonts {
  std::vector<GlyphFace> faces;                // in the order of their names
  std::vector<std::string> packages, missing;  // installed and not
  std::map<std::string, int64_t> dropped;      // how many faces for which reason
};

/// Called with a number of faces that are done; from any thread.
using GlyphProgress = std::function<void(size_t)>;

/// The usable faces of the packages that are installed, as dpkg lists their files. A face is usable if it
/// draws all letters and digits, an x at least 6 pixels high, and small letters unlike capitals. Of faces
/// with the same name, or the same letters, one counts. Throws where tpgm was built without FreeType.
GlyphFonts find_glyph_fonts();

/// The faces to pre-train on.
std::vector<GlyphFace> glyph_pretrain_faces(const GlyphFonts& fonts);

/// The faces of the task, so few that their images can be kept in a repository: sans to fine-tune, all
/// domains to test.
std::vector<GlyphFace> glyph_task_faces(const GlyphFonts& fonts);

/// `count` of the faces, or all of them. Every family has one before any has two.
std::vector<GlyphFace> spread_over_families(std::vector<GlyphFace> faces, size_t count);

struct GlyphImage {
  std::string name;  // "sans/digit_one/lato-bold.png" to pre-train, else "test/sans/digit_one/lato-bold.png"
  std::string png;
  GlyphDomain domain{};
  GlyphSplit split{};
  bool clipped = false;  // Glyph::clipped
};

/// Of each face all characters to pre-train, less those it draws like another; else letters and digits. In an
/// order that is the same everywhere and follows no pattern.
std::vector<GlyphImage> draw_glyphs(const std::vector<GlyphFace>& faces, const GlyphProgress& progress = {});

enum class GlyphFormat {
  kFolders,  // pretrain/NAME, task/NAME
  kShards,   // pretrain/glyphs-000000.tar and so on, task/glyphs-000000.tar, with the names in them
};

/// Into `folder`, such as an AtomicFolder's.
void write_glyphs(const std::vector<GlyphImage>& pretrain, const std::vector<GlyphImage>& task,
                  const std::filesystem::path& folder, GlyphFormat format);

}  // namespace tpgm
