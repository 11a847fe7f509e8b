// Heat maps as self-contained SVG: a color per cell, from violet to yellow, in an order that the
// color-blind and a black-and-white printer keep.
#pragma once

#include <string>
#include <vector>

namespace tpgm {

struct HeatMap {
  std::string title;
  std::string x_label, y_label;  ///< What the columns and the rows are.
  std::string value_label;       ///< At the color bar, with the unit.
  std::vector<std::string> columns, rows;
  /// A row of values for each of `rows`, from top to bottom. NaN: nothing there, drawn as an empty cell.
  std::vector<std::vector<double>> values;
  /// The values of the first and the last color; values beyond have these colors too, and the bar says so.
  /// Both 0: the smallest and the largest value.
  double low = 0, high = 0;
};

/// The map as an SVG document, `width` wide in pixels (340 is a phone). Values stand in the cells where all
/// of them fit; of the columns' names as many as there is room for. In maps from 560 pixels, each cell has a
/// tooltip with its row, column and value. As with Plot, the same map gives the same bytes, without ids.
/// Throws std::invalid_argument if there are no rows or columns, their numbers differ from those of the
/// values, a value is infinite, all are NaN while low = high = 0, low > high, or the width is below 280.
std::string to_svg(const HeatMap& map, double width = 720);

/// A line of columns behind the y label, then a line for each row; NaN is an empty field. Throws as above.
std::string to_csv(const HeatMap& map);

}  // namespace tpgm
