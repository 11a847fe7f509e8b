// Line plots as self-contained SVG: readable on light and dark pages, by the colour-blind, and by screen
// readers.
#pragma once

#include <string>
#include <vector>

namespace tpgm {

struct Series {
  std::string name;
  std::vector<double> x, y;
  std::vector<double> spread;  ///< Half-height of an error bar at each point; empty for none.
  bool dashed = false;
};

struct Plot {
  std::string title;
  std::string x_label, y_label;
  bool log_x = false;  ///< All x must be positive.
  std::vector<Series> series;
};

/// The plot as an SVG document. The legend stands beside the data, never on it; the data are also in its text
/// alternative. The same plot gives the same bytes. Throws std::invalid_argument if there is nothing to draw,
/// a series' vectors differ in length, or a number is not finite (or not positive on a logarithmic axis).
std::string to_svg(const Plot& plot);

}  // namespace tpgm
