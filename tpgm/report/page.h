// A page of text, tables, figures and images, and its HTML: one file that loads nothing, runs no script,
// and reads well on a phone, a wide screen and paper, in light and in dark.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "tpgm/report/heat_map.h"
#include "tpgm/report/plot.h"
#include "tpgm/report/table.h"

namespace tpgm {

// All text is plain text in UTF-8. What HTML would take for markup is escaped; bytes that are not UTF-8 become
// U+FFFD.

struct Paragraph {
  std::string text;
};

/// Recipes, commands, logs: in a fixed-width font, as they are.
struct Code {
  std::string title;
  std::string text;
  bool folded = false;  ///< Only the title, until one opens it; on paper all of it.
};

struct Figure {
  std::string id;       ///< Stem of its files' names, unique in a page: letters, digits, '-', '_' and '.'.
  std::string caption;  ///< Below it; may be empty.
  std::string svg;      ///< From to_svg; in the page as it is, not escaped.
  std::string csv;      ///< Its data. Up to 64 KiB of them can be saved from the page; empty for none.
  std::string narrow;   ///< In the place of svg on narrow screens; empty: svg, in a box that scrolls.
};

/// The figure of a plot or a map, with everything in it.
Figure to_figure(std::string id, std::string caption, const Plot& plot);
Figure to_figure(std::string id, std::string caption, const HeatMap& map);

/// What a model takes an image for.
struct Answer {
  std::string model;      ///< Its name in the table.
  std::string predicted;  ///< The predicted class, or "–".
  bool correct = false;
};

struct GalleryImage {
  std::string png;  ///< The bytes of a PNG file. Shown enlarged, with visible pixels, if it is small.
  std::string alt;  ///< What it is: above the answers, and where the image cannot be seen.
  std::vector<Answer> answers;
};

struct Gallery {
  std::string caption;  ///< Above them; may be empty.
  std::vector<GalleryImage> images;
};

/// Small images in groups that stand side by side, such as some of each test.
struct ExampleImages {
  struct Group {
    std::string title;
    std::vector<GalleryImage> images;  ///< Without answers.
  };
  std::string caption;  ///< Below them; may be empty.
  std::vector<Group> groups;
};

/// A table of which only the title is seen until one opens it; on paper all of it.
struct FoldedTable {
  std::string title;
  Table table;
};

using Block = std::variant<Paragraph, Table, FoldedTable, Figure, Gallery, ExampleImages, Code>;

struct Section {
  std::string title;
  std::vector<Block> blocks;
};

struct Page {
  std::string title;
  std::string subtitle;  ///< A line below the title; may be empty.
  std::vector<Section> sections;
};

/// The page as one HTML file, with a table of contents where there is more than one section. The same page
/// gives the same bytes. Throws std::invalid_argument for a figure's id that is taken or no file name, a
/// figure without an SVG, an image that is not a PNG, or a table that to_html(const Table&) refuses.
std::string to_html(const Page& page);

}  // namespace tpgm
