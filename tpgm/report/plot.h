// Line and scatter plots as self-contained SVG: readable on light and dark pages, on paper, by the
// color-blind, and by screen readers.
#pragma once

#include <string>
#include <vector>

namespace tpgm {

struct Series {
  std::string name;  ///< In the legend, which has no entry for a series without a name.
  std::vector<double> x, y;
  std::vector<double> spread = {};  ///< Half-height of an error bar at each point; empty for none.
  bool dashed = false;              ///< A dashed line without marks, for what was computed, not measured.
  bool line = true;                 ///< False: points only.
  /// Text beside each point; empty for none, and an empty one for no text at that point.
  std::vector<std::string> labels = {};
  std::vector<double> spread_x = {};  ///< Half-width of an error bar at each point; empty for none.
};

struct Plot {
  std::string title;
  std::string x_label, y_label;
  /// What stands at x = 0, 1, 2, … in the place of numbers, where every x is one of these; empty for numbers.
  std::vector<std::string> x_names = {};
  bool log_x = false;   ///< All x must be positive. An error bar that reaches zero ends at the frame.
  bool log_y = false;   ///< All y must be positive. An error bar that reaches zero ends at the frame.
  double height = 300;  ///< The frame's, in pixels; narrow frames are lower by a quarter.
  std::vector<Series> series;
};

/// The plot as an SVG document, `width` wide in pixels (340 is a phone). The legend stands beside the data or
/// below them, never on them. The first fourteen series differ in their marks even without color. Labels
/// avoid each other, the marks, the frame and, where they can, the lines; one that finds no room is left out,
/// but can still be read by pointing at its mark. Names below the axis are slanted where they are long, and
/// where they are many only some are there; lines join neighbours among them only. Where points of two series
/// coincide and the earlier has no label, only the later mark is drawn. A line of more than 40 points has a
/// mark at some of them only, and one with more points than pixels is drawn through the lowest and the
/// highest of every two pixels. Lines that run on one another (within two pixels everywhere) are dashed in
/// turn, and the legend says so: "SPD (= FT)", or "≈" where they differ. The data (of a long series, its ends
/// and extremes) are also in the text alternative.
///
/// The same plot gives the same bytes. They contain no ids and no style that reaches outside the SVG, so that
/// many fit in one page. Throws std::invalid_argument if there is nothing to draw, a series' vectors differ
/// in length, a number is not finite (or not positive on a logarithmic axis), a spread is negative, an x has
/// no name where there are names, the height is not between 100 and 2000, or the width is below 280.
std::string to_svg(const Plot& plot, double width = 720);

/// One line a point: series,x,y, with x by its name if it has one, and, where any series has them, spread,
/// spread_x and label. Numbers have all their digits. Throws as above.
std::string to_csv(const Plot& plot);

}  // namespace tpgm
