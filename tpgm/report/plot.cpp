#include "tpgm/report/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace tpgm {
namespace {

constexpr double kLeft = 68, kRight = 530, kTop = 44, kBottom = 344;  // the frame of the data
constexpr double kHeight = 400;
constexpr double kCharacter = 7.6;  // generous width of one, because nobody knows the reader's font
// Okabe and Ito's palette, in an order that starts with the strongest contrasts.
constexpr const char* kColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"};

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

/// One axis: where a value lies, and which values get a tick.
struct Axis {
  double low, high;
  bool log;
  std::vector<double> ticks;

  double share(double value) const {
    const auto at = [this](double x) { return log ? std::log10(x) : x; };
    return (at(value) - at(low)) / (at(high) - at(low));
  }
};

/// About five ticks at 1, 2 or 5 times a power of ten.
Axis linear_axis(double low, double high) {
  if (low == high) {
    low -= 0.5;
    high += 0.5;
  }
  const double rough = (high - low) / 5;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  const double step = power * (rough / power > 5 ? 10 : rough / power > 2 ? 5 : rough / power > 1 ? 2 : 1);
  Axis axis{std::floor(low / step) * step, std::ceil(high / step) * step, false, {}};
  const auto count = std::lround((axis.high - axis.low) / step);
  for (long i = 0; i <= count; ++i) {
    axis.ticks.push_back(axis.low + static_cast<double>(i) * step);
  }
  return axis;
}

/// Ticks at the data themselves where they are few, else at powers of ten.
Axis log_axis(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  const double pad = std::pow(values.back() / values.front(), 0.04);
  Axis axis{values.front() / std::max(pad, 1.05), values.back() * std::max(pad, 1.05), true, {}};
  if (values.size() <= 10) {
    axis.ticks = values;
  } else {
    for (double tick = std::pow(10, std::ceil(std::log10(axis.low))); tick <= axis.high; tick *= 10) {
      axis.ticks.push_back(tick);
    }
  }
  return axis;
}

void check(const Plot& plot) {
  std::size_t points = 0;
  for (const auto& series : plot.series) {
    if (series.x.size() != series.y.size() ||
        (!series.spread.empty() && series.spread.size() != series.x.size())) {
      throw std::invalid_argument("[plot] series '" + series.name +
                                  "' has x, y and spread of different lengths");
    }
    const auto bad_x = [&](double x) { return !std::isfinite(x) || (plot.log_x && x <= 0); };
    const auto bad_y = [](double y) { return !std::isfinite(y); };
    if (std::any_of(series.x.begin(), series.x.end(), bad_x) ||
        std::any_of(series.y.begin(), series.y.end(), bad_y) ||
        std::any_of(series.spread.begin(), series.spread.end(), bad_y)) {
      throw std::invalid_argument("[plot] series '" + series.name + "' has a value that cannot be drawn");
    }
    points += series.x.size();
  }
  if (points == 0) {
    throw std::invalid_argument("[plot] '" + plot.title + "' has no points");
  }
}

}  // namespace

std::string to_svg(const Plot& plot) {
  check(plot);
  std::vector<double> xs, ys;
  for (const auto& series : plot.series) {
    for (std::size_t i = 0; i < series.x.size(); ++i) {
      const double spread = series.spread.empty() ? 0 : series.spread[i];
      xs.push_back(series.x[i]);
      ys.insert(ys.end(), {series.y[i] - spread, series.y[i] + spread});
    }
  }
  const auto [low_x, high_x] = std::minmax_element(xs.begin(), xs.end());
  const auto [low_y, high_y] = std::minmax_element(ys.begin(), ys.end());
  const auto y_axis = linear_axis(*low_y, *high_y);
  const auto x_axis = plot.log_x ? log_axis(xs) : linear_axis(*low_x, *high_x);
  std::size_t longest = 0;
  for (const auto& series : plot.series) {
    longest = std::max(longest, series.name.size());
  }
  const double width = kRight + 56 + kCharacter * static_cast<double>(longest);
  const auto px = [&](double x) { return kLeft + (kRight - kLeft) * x_axis.share(x); };
  const auto py = [&](double y) { return kBottom - (kBottom - kTop) * y_axis.share(y); };

  std::string description = plot.y_label + " against " + plot.x_label + ".";
  for (const auto& series : plot.series) {
    description += " " + series.name + ":";
    for (std::size_t i = 0; i < series.x.size(); ++i) {
      description +=
          fmt::format(" {:.4g} at {:.4g}{}", series.y[i], series.x[i], i + 1 < series.x.size() ? "," : ".");
    }
  }

  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:g} {:g}\" role=\"img\" "
      "font-family=\"system-ui, sans-serif\" font-size=\"13\">\n<title>{}</title>\n<desc>{}</desc>\n"
      "<style>.ink{{fill:#222}}.grid{{stroke:#ddd}}.page{{fill:#fff}}"
      "@media (prefers-color-scheme: "
      "dark){{.ink{{fill:#ddd}}.grid{{stroke:#444}}.page{{fill:#161616}}}}</style>\n"
      "<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n"
      "<text class=\"ink\" x=\"{:g}\" y=\"24\" font-size=\"15\" font-weight=\"600\">{}</text>\n",
      width, kHeight, escaped(plot.title), escaped(description), kLeft, escaped(plot.title));
  for (const auto tick : y_axis.ticks) {
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{:g}\" x2=\"{:g}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
        "<text class=\"ink\" x=\"{:g}\" y=\"{:.1f}\" text-anchor=\"end\">{:.4g}</text>\n",
        kLeft, kRight, py(tick), py(tick), kLeft - 8, py(tick) + 4, std::abs(tick) < 1e-12 ? 0 : tick);
  }
  for (const auto tick : x_axis.ticks) {
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:g}\" y2=\"{2:g}\"/>"
        "<text class=\"ink\" x=\"{0:.1f}\" y=\"{3:g}\" text-anchor=\"middle\">{4:.4g}</text>\n",
        px(tick), kBottom, kBottom + 5, kBottom + 20, std::abs(tick) < 1e-12 ? 0 : tick);
  }
  svg += fmt::format(
      "<text class=\"ink\" x=\"{:g}\" y=\"{:g}\" text-anchor=\"middle\">{}</text>\n"
      "<text class=\"ink\" transform=\"translate(18 {:g}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
      (kLeft + kRight) / 2, kHeight - 14, escaped(plot.x_label), (kTop + kBottom) / 2, escaped(plot.y_label));

  for (std::size_t s = 0; s < plot.series.size(); ++s) {
    const auto& series = plot.series[s];
    const auto* colour = kColours[s % std::size(kColours)];
    const auto* dash = series.dashed ? " stroke-dasharray=\"6 4\"" : "";
    std::string path, marks;
    for (std::size_t i = 0; i < series.x.size(); ++i) {
      const double x = px(series.x[i]), y = py(series.y[i]);
      path += fmt::format("{}{:.1f} {:.1f}", i == 0 ? "M" : "L", x, y);
      if (!series.spread.empty()) {
        marks += fmt::format("<path d=\"M{0:.1f} {1:.1f}V{2:.1f}\" stroke=\"{3}\"/>", x,
                             py(series.y[i] - series.spread[i]), py(series.y[i] + series.spread[i]), colour);
      }
      if (!series.dashed) {
        marks += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" fill=\"{}\"/>", x, y, colour);
      }
    }
    const double legend = kTop + 12 + 22 * static_cast<double>(s);
    svg += fmt::format(
        "<path d=\"{0}\" fill=\"none\" stroke=\"{1}\" stroke-width=\"2\"{2}/>{3}\n"
        "<path d=\"M{4:g} {5:g}h24\" stroke=\"{1}\" stroke-width=\"2\"{2}/>"
        "<text class=\"ink\" x=\"{6:g}\" y=\"{7:g}\">{8}</text>\n",
        path, colour, dash, marks, kRight + 16, legend, kRight + 46, legend + 4, escaped(series.name));
  }
  return svg + "</svg>\n";
}

}  // namespace tpgm
