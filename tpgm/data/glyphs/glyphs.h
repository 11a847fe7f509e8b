// Makes the glyphs data set: letters and digits of free fonts, in five styles of drawing (docs/glyphs.md).
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
  int64_t index = 0;   // of the face in the file
  std::string name;    // "dejavu-sans-bold": unique, from family and style
  std::string family;  // glyph_family()
  GlyphDomain domain{};
  GlyphSplit split{};
};

struct GlyphFonts {
  std::vector<GlyphFace> faces;                // in the order of their names
  std::vector<std::string> packages, missing;  // packages that are installed, and that are not
  std::map<std::string, int64_t> dropped;      // number of unusable faces for each reason
};

/// Called from any thread with a number of faces that are done.
using GlyphProgress = std::function<void(size_t)>;

/// Finds the usable faces of the installed packages, whose files dpkg lists. A face is usable if it draws all
/// letters and digits, its x is at least 6 pixels high, and its small letters differ from its capitals. Of
/// faces with the same name or the same letters one is kept. Throws in a build without FreeType.
GlyphFonts find_glyph_fonts();

/// The faces for pre-training.
std::vector<GlyphFace> glyph_pretrain_faces(const GlyphFonts& fonts);

/// The faces of the fine-tuning task: sans for training, all domains for testing. They are few enough to keep
/// their images in a repository.
std::vector<GlyphFace> glyph_task_faces(const GlyphFonts& fonts);

/// Chooses `count` of the faces, or all if there are fewer, spread over the families: no family gets a second
/// face before every family has one.
std::vector<GlyphFace> spread_over_families(std::vector<GlyphFace> faces, size_t count);

struct GlyphImage {
  std::string name;  // "sans/digit_one/lato-bold.png" to pre-train, else "test/sans/digit_one/lato-bold.png"
  std::string png;
  GlyphDomain domain{};
  GlyphSplit split{};
  bool clipped = false;  // Glyph::clipped
};

/// Draws the images of the faces. For pre-training a face draws all characters except those that it draws
/// like another; otherwise it draws letters and digits. The order is random, and the same on every machine.
std::vector<GlyphImage> draw_glyphs(const std::vector<GlyphFace>& faces, const GlyphProgress& progress = {});

enum class GlyphFormat {
  kFolders,  // pretrain/NAME, task/NAME
  kShards,   // pretrain/glyphs-000000.tar and so on, task/glyphs-000000.tar, with the names in them
};

/// Writes both parts of the data set into `folder`, such as the folder of an AtomicFolder.
void write_glyphs(const std::vector<GlyphImage>& pretrain, const std::vector<GlyphImage>& task,
                  const std::filesystem::path& folder, GlyphFormat format);

}  // namespace tpgm
