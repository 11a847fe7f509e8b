#include "tpgm/report/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "tpgm/report/svg.h"
#include "tpgm/report/table.h"

namespace tpgm {
namespace {

using svg::kLine;
using svg::kMargin;
using svg::kSmall;
using svg::kTitle;
using svg::kTitleLine;

constexpr double kBarHeight = 10;  // of the color bar

struct Color {
  double red, green, blue;  // from 0 to 1

  std::string hex() const {
    const auto byte = [](double share) { return static_cast<int>(std::lround(share * 255)); };
    return fmt::format("#{:02x}{:02x}{:02x}", byte(red), byte(green), byte(blue));
  }
  // Relative luminance, as WCAG 2 has it.
  double luminance() const {
    const auto linear = [](double c) {
      return c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4);
    };
    return 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue);
  }
};

// Viridis (Smith and van der Walt): lightness grows evenly, and so it can be read in gray.
Color color_of(double share) {
  constexpr std::array<Color, 9> kAnchors{{{0.267, 0.005, 0.329},
                                           {0.279, 0.175, 0.483},
                                           {0.230, 0.322, 0.546},
                                           {0.173, 0.449, 0.558},
                                           {0.128, 0.567, 0.551},
                                           {0.158, 0.684, 0.502},
                                           {0.369, 0.789, 0.383},
                                           {0.678, 0.864, 0.190},
                                           {0.993, 0.906, 0.144}}};
  const double at = std::clamp(share, 0.0, 1.0) * (kAnchors.size() - 1);
  const auto below = std::min(static_cast<size_t>(at), kAnchors.size() - 2);
  const double part = at - static_cast<double>(below);
  const auto& a = kAnchors[below];
  const auto& b = kAnchors[below + 1];
  const auto mix = [part](double from, double to) { return from + part * (to - from); };
  return {mix(a.red, b.red), mix(a.green, b.green), mix(a.blue, b.blue)};
}

// The smallest and the largest value; infinite if there is none.
std::pair<double, double> range_of(const HeatMap& map) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const auto& row : map.values) {
    for (const double value : row) {
      if (std::isnan(value)) continue;
      low = std::min(low, value);
      high = std::max(high, value);
    }
  }
  return {low, high};
}

void check(const HeatMap& map, double width) {
  const auto fail = [&map](const std::string& what) {
    throw std::invalid_argument(fmt::format("[heat map] '{}' {}", map.title, what));
  };
  if (!(width >= 280) || !std::isfinite(width)) {
    fail(fmt::format("has a width of {}; 280 is the least", width));
  }
  if (map.rows.empty() || map.columns.empty()) fail("has no rows or no columns; give it one or more of each");
  if (map.values.size() != map.rows.size()) {
    fail(fmt::format("has values for {} rows, but {} names", map.values.size(), map.rows.size()));
  }
  for (size_t row = 0; row < map.rows.size(); ++row) {
    const auto& values = map.values[row];
    if (values.size() != map.columns.size()) {
      fail(fmt::format("has {} values in row '{}' for {} columns; NaN is for what is not there",
                       values.size(), map.rows[row], map.columns.size()));
    }
    if (std::any_of(values.begin(), values.end(), [](double value) { return std::isinf(value); })) {
      fail(fmt::format("has an infinite value in row '{}'", map.rows[row]));
    }
  }
  if (!std::isfinite(map.low) || !std::isfinite(map.high) || map.low > map.high) {
    fail(fmt::format("has colors from {} to {}; take finite numbers in order", map.low, map.high));
  }
  if (map.low == 0 && map.high == 0 && !std::isfinite(range_of(map).first)) {
    fail("has no value that is a number; say low and high, or leave it out");
  }
}

// A map's layout and what was drawn of it so far.
class Drawing {
 public:
  Drawing(const HeatMap& map, double width) : map_(map), width_(width), low_(map.low), high_(map.high) {
    const auto [least, most] = range_of(map);
    if (low_ == 0 && high_ == 0) {
      low_ = least;
      high_ = most;
    }
    below_ = least < low_;
    above_ = most > high_;
    if (low_ == high_) {  // one value: in the middle of the colors
      const double half = low_ == 0 ? 0.5 : std::abs(low_) / 2;
      low_ -= half;
      high_ += half;
    }
    const double largest = std::max(std::abs(least), std::abs(most));
    if (std::isfinite(largest) && largest >= 1e-3 && largest < 1e5) {
      decimals_ = std::max(0, 2 - static_cast<int>(std::floor(std::log10(largest))));
    }
    for (const auto& row : map.values) {
      for (const double value : row) {
        gaps_ |= std::isnan(value);
        widest_ = std::max(widest_, svg::text_width(text_of(value), kSmall));
      }
    }
    place();
  }

  std::string svg() {
    body_ += svg::text_lines(title_, kMargin, 24, kTitleLine,
                             fmt::format("font-size=\"{:g}\" font-weight=\"600\"", kTitle));
    bar();
    names();
    cells();
    const auto description = fmt::format("{} by {} and {}, from {} to {}; {} rows, {} columns.",
                                         map_.value_label, map_.y_label, map_.x_label, svg::number(low_, 3),
                                         svg::number(high_, 3), map_.rows.size(), map_.columns.size());
    return svg::document(width_, height_, map_.title, description, body_);
  }

 private:
  double share(double value) const { return (value - low_) / (high_ - low_); }

  // The text of a value, with three digits of the largest one.
  std::string text_of(double value) const {
    if (std::isnan(value)) return "none";
    return decimals_ < 0 ? svg::number(value, 3) : svg::fixed(value, decimals_);
  }

  double x(size_t column) const { return left_ + cell_width_ * static_cast<double>(column); }
  svg::AxisNames column_names() const { return {map_.columns, x(0) + cell_width_ / 2, cell_width_}; }
  double y(size_t row) const { return top_ + cell_height_ * static_cast<double>(row); }

  void place() {
    const auto longest = [](const std::vector<std::string>& names) {
      double longest = 0;
      for (const auto& name : names) longest = std::max(longest, svg::text_width(name, kSmall));
      return longest;
    };
    const auto lines = [](const auto& text) { return static_cast<double>(text.size()); };
    title_ = svg::wrapped(map_.title, width_ - 2 * kMargin, kTitle);
    value_label_ = svg::wrapped(map_.value_label, width_ - 2 * kMargin);
    left_ = kMargin + std::min(longest(map_.rows), 0.3 * width_) + 8;
    right_ = width_ - kMargin;
    const auto columns = static_cast<double>(map_.columns.size());
    const auto rows = static_cast<double>(map_.rows.size());
    cell_width_ = std::min((right_ - left_) / columns, 120.0);
    right_ = left_ + cell_width_ * columns;
    cell_height_ = std::clamp(420 / rows, 4.0, 28.0);
    bar_ = 20 + kTitleLine * lines(title_) + kLine * lines(value_label_) - 6;
    y_label_ = svg::wrapped(map_.y_label, width_ - 2 * kMargin);
    top_ = bar_ + kBarHeight + 30 + kLine * lines(y_label_);
    x_label_ = svg::wrapped(map_.x_label, width_ - 2 * kMargin);
    x_label_top_ = top_ + cell_height_ * rows + column_names().height();
    height_ = x_label_top_ + kLine * (lines(x_label_) - 1) + kMargin;
  }

  void bar() {
    body_ +=
        svg::text_lines(value_label_, kMargin, 24 + kTitleLine * static_cast<double>(title_.size()), kLine);
    constexpr int kParts = 64;  // which overlap, as the cells do
    const double room = width_ - 2 * kMargin - (gaps_ ? 70 : 0);
    const double wide = std::min(room, 260.0), part = wide / kParts, wider = part + 0.5;
    body_ += "<g shape-rendering=\"crispEdges\">";
    for (int i = 0; i < kParts; ++i) {
      body_ +=
          fmt::format("<path fill=\"{}\" d=\"M{:.2f} {:.1f}h{:.2f}v{:g}h-{:.2f}z\"/>",
                      color_of((i + 0.5) / kParts).hex(), kMargin + part * i, bar_, wider, kBarHeight, wider);
    }
    body_ += "</g>\n";
    // The ends say where the colors end; between them, what does not come near them.
    std::vector<double> ticks{low_};
    for (const double tick : svg::linear_ticks(low_, high_, 4)) {
      if (share(tick) > 0.18 && share(tick) < 0.82) ticks.push_back(tick);
    }
    ticks.push_back(high_);
    for (size_t i = 0; i < ticks.size(); ++i) {
      const bool first = i == 0, last = i + 1 == ticks.size();
      const double at = kMargin + wide * share(ticks[i]);
      body_ +=
          fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{:g}\" text-anchor=\"{}\">{}{}</text>", at,
                      bar_ + kBarHeight + 14, kSmall,
                      first  ? "start"
                      : last ? "end"
                             : "middle",
                      first && below_  ? "≤ "
                      : last && above_ ? "≥ "
                                       : "",
                      svg::number(ticks[i], 3));
    }
    body_ += '\n';
    if (!gaps_) return;
    const double at = kMargin + wide + 18;
    body_ += fmt::format("<path class=\"none\" d=\"M{:.1f} {:.1f}h14v{:g}h-14z\"/>", at, bar_, kBarHeight);
    body_ += svg::text_lines({"none"}, at + 19, bar_ + kBarHeight - 1, 0,
                             fmt::format("font-size=\"{:g}\"", kSmall));
  }

  void names() {
    body_ += svg::text_lines(y_label_, kMargin, top_ - 9 - kLine * (static_cast<double>(y_label_.size()) - 1),
                             kLine);
    body_ += fmt::format("<g font-size=\"{:g}\">\n", kSmall);
    const auto every = static_cast<size_t>(std::ceil((kSmall + 1) / cell_height_));
    for (size_t row = 0; row < map_.rows.size(); row += every) {
      body_ += svg::text_lines({svg::clipped(map_.rows[row], left_ - kMargin - 8, kSmall)}, left_ - 8,
                               y(row) + cell_height_ / 2 + 4, 0, "text-anchor=\"end\"");
    }
    body_ += "</g>\n" + column_names().svg(y(map_.rows.size()));
    // In the middle of the columns if it fits there.
    double half = 0;
    for (const auto& line : x_label_) half = std::max(half, svg::text_width(line) / 2);
    const double middle = std::min((left_ + right_) / 2, width_ - kMargin - half);
    body_ += svg::text_lines(x_label_, std::max(middle, kMargin + half), x_label_top_, kLine,
                             "text-anchor=\"middle\"");
  }

  void cells() {
    const bool written = widest_ + 6 <= cell_width_ && cell_height_ >= kSmall + 3;
    const bool titled = width_ >= 560;
    // Neighbors without a gap overlap a little, or the background would show between some of them.
    const double wide = cell_width_ + (cell_width_ >= 6 ? -1 : 0.5);
    const double tall = cell_height_ + (cell_height_ >= 6 ? -1 : 0.5);
    body_ += cell_width_ >= 6 ? "<g>\n" : "<g shape-rendering=\"crispEdges\">\n";
    std::string texts;
    for (size_t row = 0; row < map_.rows.size(); ++row) {
      for (size_t column = 0; column < map_.columns.size(); ++column) {
        const double value = map_.values[row][column];
        const bool none = std::isnan(value);
        const auto color = color_of(none ? 0 : share(value));
        body_ += fmt::format("<path {} d=\"M{:.2f} {:.2f}h{:.2f}v{:.2f}h-{:.2f}z\"",
                             none ? "class=\"none\"" : "fill=\"" + color.hex() + "\"", x(column), y(row),
                             wide, tall, wide);
        body_ += titled ? fmt::format("><title>{}</title></path>\n",
                                      svg::escaped(fmt::format("{}, {}: {}", map_.rows[row],
                                                               map_.columns[column], text_of(value))))
                        : "/>\n";
        if (written && !none) {
          // White and black contrast alike with a luminance of 0.18.
          texts +=
              fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" fill=\"{}\">{}</text>\n", x(column) + wide / 2,
                          y(row) + tall / 2 + 4, color.luminance() < 0.18 ? "#fff" : "#000", text_of(value));
        }
      }
    }
    body_ += "</g>\n";
    if (written) {
      body_ += fmt::format("<g font-size=\"{:g}\" text-anchor=\"middle\" pointer-events=\"none\">\n{}</g>\n",
                           kSmall, texts);
    }
  }

  const HeatMap& map_;
  double width_, height_ = 0;
  double low_, high_;
  bool below_ = false, above_ = false;  // there are values beyond the colors
  bool gaps_ = false;                   // there are cells without a value
  int decimals_ = -1;                   // of the values' texts; -1 where powers of ten are shorter
  double widest_ = 0;                   // of these
  std::vector<std::string> title_, value_label_, x_label_, y_label_;
  double left_ = 0, right_ = 0, top_ = 0;  // of the cells
  double cell_width_ = 0, cell_height_ = 0;
  double bar_ = 0;
  double x_label_top_ = 0;
  std::string body_;
};

}  // namespace

std::string to_svg(const HeatMap& map, double width) {
  check(map, width);
  return Drawing(map, width).svg();
}

std::string to_csv(const HeatMap& map) {
  check(map, 720);
  std::string text = csv_field(map.y_label);
  for (const auto& column : map.columns) text += "," + csv_field(column);
  text += '\n';
  for (size_t row = 0; row < map.rows.size(); ++row) {
    text += csv_field(map.rows[row]);
    for (const double value : map.values[row]) text += std::isnan(value) ? "," : fmt::format(",{}", value);
    text += '\n';
  }
  return text;
}

}  // namespace tpgm
