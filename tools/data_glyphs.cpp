// `tpgm data glyphs`: the built-in data set, drawn from the fonts that are installed.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string_view>

#include "tools/data.h"
#include "tools/progress.h"
#include "tools/text.h"
#include "tpgm/data/formats/encode.h"
#include "tpgm/data/glyphs/font.h"
#include "tpgm/data/glyphs/glyphs.h"
#include "tpgm/io/file.h"
#include "tpgm/io/folder.h"

namespace tpgm::tools {
namespace {

struct GlyphsArguments {
  std::string output, format = "folders", sheet;
};

// A row of counts: of a split, or of all.
using Row = std::array<int64_t, kGlyphDomains.size()>;

std::string faces_text(size_t count) { return fmt::format("{} faces", grouped(static_cast<int64_t>(count))); }

void print_row(std::string_view title, const Row& row) {
  fmt::print("{:<10}", title);
  for (const int64_t count : row) fmt::print("{:>9}", grouped(count));
  fmt::print("\n");
}

void print_fonts(const GlyphFonts& fonts) {
  fmt::print("{} of {} font packages\n", fonts.packages.size(), fonts.packages.size() + fonts.missing.size());
  if (!fonts.missing.empty()) fmt::print("missing: {}\n", fmt::join(fonts.missing, " "));
  std::set<std::string> families;
  Row faces{};
  for (const auto& face : fonts.faces) {
    families.insert(face.family);
    ++faces[static_cast<size_t>(face.domain)];
  }
  fmt::print("{} of {} families\n", faces_text(fonts.faces.size()), families.size());
  for (const auto& [reason, count] : fonts.dropped) fmt::print("left out: {:>4} {}\n", count, reason);
  fmt::print("\n{:<10}", "");
  for (const char* domain : kGlyphDomains) fmt::print("{:>9}", domain);
  fmt::print("\n");
  print_row("faces", faces);
}

void print_images(const std::vector<GlyphImage>& pretrain, const std::vector<GlyphImage>& task) {
  std::array<Row, kGlyphSplits.size()> counts{};
  int64_t clipped = 0;
  for (const auto* images : {&pretrain, &task}) {
    for (const auto& image : *images) {
      ++counts[static_cast<size_t>(image.split)][static_cast<size_t>(image.domain)];
      clipped += image.clipped;
    }
  }
  for (size_t i = 0; i < counts.size(); ++i) print_row(kGlyphSplits[i], counts[i]);
  const size_t all = pretrain.size() + task.size();
  fmt::print("\n{} images, {:.2f} % of them cut by an edge\n", grouped(static_cast<int64_t>(all)),
             100.0 * static_cast<double>(clipped) / static_cast<double>(std::max<size_t>(all, 1)));
}

// Faces below one another in two columns, each with the same letters and digits.
Image draw_sheet(const std::vector<GlyphFace>& faces) {
  constexpr std::string_view kSample = "AaBbEeGgKQRrTty02358";
  constexpr int64_t kColumns = 2, kGap = 16, kWidth = kSample.size() * kGlyphSize + kGap;
  const auto rows = (static_cast<int64_t>(faces.size()) + kColumns - 1) / kColumns;
  Image sheet(kColumns * kWidth, std::max<int64_t>(rows, 1) * kGlyphSize, 1);
  for (int64_t i = 0; i < static_cast<int64_t>(faces.size()); ++i) {
    const Font font(faces[i].file, faces[i].index);
    int64_t x = i / rows * kWidth;
    for (const char character : kSample) {
      const auto glyph = font.draw(static_cast<char32_t>(character));
      for (int64_t y = 0; glyph && y < kGlyphSize; ++y) {
        std::copy_n(glyph->image.row(y), kGlyphSize, sheet.row(i % rows * kGlyphSize + y) + x);
      }
      x += kGlyphSize;
    }
  }
  return sheet;
}

// "out.png" → "out-sans.png" and so on.
void write_sheets(const GlyphFonts& fonts, const std::filesystem::path& path) {
  constexpr size_t kFaces = 64;
  for (size_t i = 0; i < kGlyphDomains.size(); ++i) {
    std::vector<GlyphFace> faces;
    for (const auto& face : fonts.faces) {
      if (face.domain == static_cast<GlyphDomain>(i)) faces.push_back(face);
    }
    faces = spread_over_families(std::move(faces), kFaces);
    std::sort(faces.begin(), faces.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    auto sheet = path;
    sheet.replace_filename(fmt::format("{}-{}.png", path.stem().string(), kGlyphDomains[i]));
    const std::string png = encode_png(draw_sheet(faces));
    write_file(sheet, png);
    fmt::print("{}\n", sheet.string());
  }
}

std::vector<GlyphImage> draw(const char* what, const std::vector<GlyphFace>& faces) {
  Progress progress(fmt::format("tpgm data glyphs: {}", what), faces.size(), faces_text);
  return draw_glyphs(faces, progress.callback());
}

int data_glyphs(const GlyphsArguments& args) {
  if (args.output.empty() && args.sheet.empty()) throw UsageError("name an --output, or a --sheet, or both");
  const auto begin = std::chrono::steady_clock::now();
  std::optional<AtomicFolder> output;
  if (!args.output.empty()) output.emplace(args.output);
  const GlyphFonts fonts = find_glyph_fonts();
  TORCH_CHECK(!fonts.faces.empty(),
              "none of the fonts is installed; docs/glyphs.md names their Debian packages, and "
              "assets/glyphs.tar needs none");
  print_fonts(fonts);
  if (output) {
    const auto pretrain = draw("to pre-train", glyph_pretrain_faces(fonts));
    const auto task = draw("the task", glyph_task_faces(fonts));
    write_glyphs(pretrain, task, output->partial(),
                 args.format == "shards" ? GlyphFormat::kShards : GlyphFormat::kFolders);
    output->commit();
    print_images(pretrain, task);
    fmt::print("{}, in {:.1f} s\n", args.output,
               std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  if (!args.sheet.empty()) write_sheets(fonts, args.sheet);
  return 0;
}

}  // namespace

Run configure_data_glyphs(CLI::App& app) {
  auto args = std::make_shared<GlyphsArguments>();
  app.add_option("-o,--output", args->output, "Output folder, new or empty");
  app.add_option("--format", args->format,
                 "folders: one PNG per image, in pretrain/DOMAIN/CLASS and task/SPLIT/DOMAIN/CLASS; shards: "
                 "the same in tar files")
      ->check(CLI::IsMember({"folders", "shards"}));
  app.add_option("--sheet", args->sheet,
                 "Contact sheets to write, one per domain: FILE.png becomes FILE-sans.png and so on");
  return [args] { return data_glyphs(*args); };
}

}  // namespace tpgm::tools
