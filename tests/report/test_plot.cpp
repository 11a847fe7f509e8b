// Plots: well-formed, complete, escaped, the same every time, and strict about what cannot be drawn.
#include "tpgm/report/plot.h"

#include <gtest/gtest.h>

#include <cmath>

namespace {

using tpgm::Plot;
using tpgm::to_svg;

Plot example() {
  return {.title = "a < b & c",
          .x_label = "x",
          .y_label = "y",
          .log_x = false,
          .series = {{"first", {0, 1, 2}, {1, 3, 2}, {0.1, 0.1, 0.1}}, {"second", {0, 2}, {2, 2}, {}, true}}};
}

std::size_t count(const std::string& text, const std::string& word) {
  std::size_t found = 0;
  for (auto at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    ++found;
  }
  return found;
}

TEST(Plot, DrawsEveryPointAndNamesEverySeries) {
  const auto svg = to_svg(example());
  EXPECT_EQ(count(svg, "<circle"), 3u);  // a dashed series has no marks
  EXPECT_EQ(count(svg, ">first</text>"), 1u);
  EXPECT_EQ(count(svg, ">second</text>"), 1u);
  EXPECT_NE(svg.find("<desc>y against x. first: 1 at 0, 3 at 1, 2 at 2. second: 2 at 0, 2 at 2.</desc>"),
            std::string::npos);
}

TEST(Plot, EscapesText) {
  const auto svg = to_svg(example());
  EXPECT_NE(svg.find("a &lt; b &amp; c"), std::string::npos);
  EXPECT_EQ(svg.find("a < b"), std::string::npos);
}

TEST(Plot, PutsHigherValuesHigher) {
  auto plot = example();
  plot.series = {{"s", {0, 1}, {0, 10}, {}}};
  const auto svg = to_svg(plot);
  // The data fill the frame: from its lower left corner to its upper right one.
  EXPECT_NE(svg.find("d=\"M68.0 344.0L530.0 44.0\""), std::string::npos) << svg;
}

TEST(Plot, SameBytesEveryTime) { EXPECT_EQ(to_svg(example()), to_svg(example())); }

TEST(Plot, OneValueIsEnough) {
  auto plot = example();
  plot.series = {{"s", {3}, {7}, {}}};
  EXPECT_EQ(to_svg(plot).find("nan"), std::string::npos);
  plot.log_x = true;
  EXPECT_EQ(to_svg(plot).find("nan"), std::string::npos);
}

TEST(Plot, RefusesWhatCannotBeDrawn) {
  auto plot = example();
  plot.series[0].y.pop_back();
  EXPECT_THROW(to_svg(plot), std::invalid_argument);
  plot = example();
  plot.series[0].y[1] = std::nan("");
  EXPECT_THROW(to_svg(plot), std::invalid_argument);
  plot = example();
  plot.log_x = true;  // x = 0
  EXPECT_THROW(to_svg(plot), std::invalid_argument);
  plot.series.clear();
  EXPECT_THROW(to_svg(plot), std::invalid_argument);
}

}  // namespace
