// Finds and chooses font faces, draws their glyphs, and writes the data set.
#include "tpgm/data/glyphs/glyphs.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <set>
#include <tuple>

#include "tpgm/data/formats/encode.h"
#include "tpgm/data/glyphs/alike.h"
#include "tpgm/data/glyphs/characters.h"
#include "tpgm/data/glyphs/font.h"
#include "tpgm/data/sources/tar_writer.h"

namespace tpgm {
namespace {

namespace fs = std::filesystem;

constexpr size_t kShardBytes = 64 << 20;
constexpr int64_t kSmallest = 6;  // pixels of an x

// Faces of each split and domain of the task.
constexpr size_t kTrainFaces = 84, kHeldOutFaces = 16, kTestFaces = 14;

struct FontFile {
  fs::path path;
  const FontPackage* package;
};

void call(const GlyphProgress& progress) {
  if (progress) progress(1);
}

std::vector<FontFile> font_files(GlyphFonts& fonts) {
  std::vector<FontFile> files;
  for (const auto& package : glyph_packages()) {
    std::ifstream list(fmt::format("/var/lib/dpkg/info/{}.list", package.name));
    std::vector<fs::path> paths;
    for (std::string line; std::getline(list, line);) {
      const std::string extension = fs::path(line).extension();
      if (extension == ".otf" || extension == ".ttf" || extension == ".ttc") paths.emplace_back(line);
    }
    (paths.empty() ? fonts.missing : fonts.packages).emplace_back(package.name);
    std::sort(paths.begin(), paths.end());
    for (const auto& path : paths) files.push_back({path, &package});
  }
  return files;
}

std::string full_name(const Font& font) { return font.family() + " " + font.style(); }

// "DejaVu Sans Bold" → "dejavu-sans-bold".
std::string file_name(const Font& font) {
  std::string name;
  for (const char c : full_name(font)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 128 && std::isalnum(byte)) {
      name += static_cast<char>(std::tolower(byte));
    } else if (!name.empty() && name.back() != '-') {
      name += '-';
    }
  }
  while (name.ends_with('-')) name.pop_back();
  return name;
}

struct Examined {
  GlyphFace face;
  std::string fault;             // why it is of no use; empty if it is
  std::vector<uint8_t> letters;  // their images, one after the other
};

// Regular and bold are several gray levels apart on average, and the same outlines in two files (by other
// curves, from another year) less than 0.4.
bool same_drawing(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b) {
  int64_t difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference += std::abs(a[i] - b[i]);
  return static_cast<double>(difference) < 0.4 * static_cast<double>(a.size());
}

std::string fault_of(const Font& font, const std::vector<Image>& images) {
  if (draws_other_things(full_name(font))) return "draws something else (by our list)";
  if (images.size() < kGlyphClasses) return "lacks a letter or digit";
  if (ink_box(images['x' - 'a' + 36]).height < kSmallest) return fmt::format("x under {} pixels", kSmallest);
  if (draws_capitals_only(images)) return "draws capitals only";
  return {};
}

Examined examine(const Font& font, const FontFile& file, int64_t index) {
  std::vector<Image> images;
  std::vector<uint8_t> letters;
  for (const auto& character : glyph_task_characters()) {
    auto glyph = font.draw(character.code);
    if (!glyph) break;
    const auto& pixels = glyph->image.pixels;
    if (character.code > '9') letters.insert(letters.end(), pixels.begin(), pixels.end());
    images.push_back(std::move(glyph->image));
  }
  const std::string family = glyph_family(font.family());
  const GlyphDomain domain = glyph_domain(full_name(font), font.fixed_pitch(), font.panose(), *file.package);
  return {{file.path, index, file_name(font), family, domain, glyph_split(family)},
          fault_of(font, images),
          std::move(letters)};
}

std::vector<Examined> examine(const FontFile& file) {
  std::vector<Examined> faces;
  int64_t count = 1;
  for (int64_t index = 0; index < count; ++index) {
    try {
      const Font font(file.path, index);
      count = font.count();
      faces.push_back(examine(font, file, index));
    } catch (const c10::Error&) {
      faces.push_back({{}, "cannot be read", {}});
    }
  }
  return faces;
}

std::vector<GlyphFace> of_split(const GlyphFonts& fonts, GlyphSplit split,
                                std::optional<GlyphDomain> domain = {}) {
  std::vector<GlyphFace> faces;
  for (const auto& face : fonts.faces) {
    if (face.split == split && (!domain || face.domain == *domain)) faces.push_back(face);
  }
  return faces;
}

std::vector<GlyphImage> draw(const GlyphFace& face) {
  const bool pretrain = face.split == GlyphSplit::kPretrain;
  const Font font(face.file, face.index);
  std::vector<GlyphImage> images;
  std::set<std::string> seen;
  const auto characters = pretrain ? glyph_characters() : glyph_task_characters();
  for (size_t i = 0; i < characters.size(); ++i) {
    const auto glyph = font.draw(characters[i].code);
    if (!glyph) continue;
    std::string png = encode_png(glyph->image);
    if (!seen.insert(png).second && i >= kGlyphClasses) continue;
    const std::string name = fmt::format("{}/{}/{}.png", to_text(face.domain), characters[i].name, face.name);
    images.push_back({pretrain ? name : fmt::format("{}/{}", to_text(face.split), name), std::move(png),
                      face.domain, face.split, glyph->clipped});
  }
  return images;
}

void write_folders(const std::vector<GlyphImage>& images, const fs::path& folder) {
  for (const auto& encoded : images) {
    const fs::path path = folder / encoded.name;
    fs::create_directories(path.parent_path());
    std::ofstream file(path, std::ios::binary);
    file << encoded.png;
    TORCH_CHECK(file.flush(), "[write_glyphs] cannot write '", path.string(), "'");
  }
}

void write_shards(const std::vector<GlyphImage>& images, const fs::path& folder) {
  fs::create_directories(folder);
  std::optional<TarWriter> tar;
  int64_t shards = 0;
  for (const auto& encoded : images) {
    if (!tar) tar.emplace(folder / fmt::format("glyphs-{:06}.tar", shards++));
    tar->add(encoded.name, encoded.png);
    if (tar->size() < kShardBytes && &encoded != &images.back()) continue;
    tar->commit();
    tar.reset();
  }
}

}  // namespace

GlyphFonts find_glyph_fonts() {
  require_freetype();
  GlyphFonts fonts;
  const auto files = font_files(fonts);
  std::vector<std::vector<Examined>> examined(files.size());
  at::parallel_for(0, static_cast<int64_t>(files.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      examined[i] = examine(files[i]);
    }
  });
  std::map<std::string, GlyphFace> by_name;
  std::map<std::string, std::vector<const Examined*>> families;
  for (const auto& faces : examined) {
    for (const auto& one : faces) {
      auto& family = families[one.face.family];
      const auto twin = [&](const Examined* other) { return same_drawing(one.letters, other->letters); };
      if (!one.fault.empty()) {
        ++fonts.dropped[one.fault];
      } else if (by_name.contains(one.face.name) || std::any_of(family.begin(), family.end(), twin)) {
        ++fonts.dropped["is there already, by name or drawing"];
      } else {
        by_name.emplace(one.face.name, one.face);
        family.push_back(&one);
      }
    }
  }
  for (auto& [name, face] : by_name) fonts.faces.push_back(std::move(face));
  return fonts;
}

std::vector<GlyphFace> glyph_pretrain_faces(const GlyphFonts& fonts) {
  return of_split(fonts, GlyphSplit::kPretrain);
}

std::vector<GlyphFace> glyph_task_faces(const GlyphFonts& fonts) {
  std::vector<GlyphFace> faces;
  const auto add = [&](GlyphSplit split, GlyphDomain domain, size_t count) {
    for (auto& face : spread_over_families(of_split(fonts, split, domain), count))
      faces.push_back(std::move(face));
  };
  add(GlyphSplit::kTrain, GlyphDomain::kSans, kTrainFaces);
  add(GlyphSplit::kRadius, GlyphDomain::kSans, kHeldOutFaces);
  add(GlyphSplit::kSelection, GlyphDomain::kSans, kHeldOutFaces);
  for (size_t i = 0; i < kGlyphDomains.size(); ++i) {
    add(GlyphSplit::kTest, static_cast<GlyphDomain>(i), kTestFaces);
  }
  return faces;
}

std::vector<GlyphFace> spread_over_families(std::vector<GlyphFace> faces, size_t count) {
  // By hash, as by name all that is black and bold would come first.
  std::sort(faces.begin(), faces.end(), [](const GlyphFace& a, const GlyphFace& b) {
    return std::tuple(stable_hash(a.family), stable_hash(a.name)) <
           std::tuple(stable_hash(b.family), stable_hash(b.name));
  });
  std::map<std::string, size_t> turns;
  std::multimap<size_t, GlyphFace> by_turn;
  for (auto& face : faces) {
    const size_t turn = turns[face.family]++;
    by_turn.emplace(turn, std::move(face));
  }
  faces.clear();
  for (auto& [turn, face] : by_turn) {
    if (faces.size() < count) faces.push_back(std::move(face));
  }
  return faces;
}

std::vector<GlyphImage> draw_glyphs(const std::vector<GlyphFace>& faces, const GlyphProgress& progress) {
  std::vector<std::vector<GlyphImage>> by_face(faces.size());
  at::parallel_for(0, static_cast<int64_t>(faces.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      by_face[i] = draw(faces[i]);
      call(progress);
    }
  });
  std::vector<GlyphImage> images;
  for (auto& drawn : by_face) std::move(drawn.begin(), drawn.end(), std::back_inserter(images));
  std::sort(images.begin(), images.end(), [](const auto& a, const auto& b) {
    return std::pair(stable_hash(a.name), a.name) < std::pair(stable_hash(b.name), b.name);
  });
  return images;
}

void write_glyphs(const std::vector<GlyphImage>& pretrain, const std::vector<GlyphImage>& task,
                  const fs::path& folder, GlyphFormat format) {
  const auto write = format == GlyphFormat::kFolders ? write_folders : write_shards;
  write(pretrain, folder / "pretrain");
  write(task, folder / "task");
}

}  // namespace tpgm
