// Plots: complete, within their frame, readable where it is crowded, escaped, the same every time, and strict
// about what cannot be drawn.
#include "tpgm/report/plot.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tests/report/example.h"

namespace tpgm::test_plot {
namespace {

using tpgm::Plot;
using tpgm::Series;
using tpgm::to_csv;
using tpgm::to_svg;
using tpgm::test::example_curves;
using tpgm::test::example_scatter;
using tpgm::test::kHostile;

Plot example() {
  return {.title = "a < b & c",
          .x_label = "x",
          .y_label = "y",
          .log_x = false,
          .series = {{"first", {0, 1, 2}, {1, 3, 2}, {0.1, 0.1, 0.1}}, {"second", {0, 2}, {2, 2}, {}, true}}};
}

// What stands between `before` and `after`, at each place.
std::vector<std::string> all_between(const std::string& text, const std::string& before,
                                     const std::string& after) {
  std::vector<std::string> found;
  for (auto at = text.find(before); at != std::string::npos; at = text.find(before, at + 1)) {
    const auto begin = at + before.size();
    found.push_back(text.substr(begin, text.find(after, begin) - begin));
  }
  return found;
}

std::string between(const std::string& text, const std::string& before, const std::string& after) {
  const auto found = all_between(text, before, after);
  return found.empty() ? "" : found[0];
}

struct Point {
  double x, y;
};

struct Box {
  double left, top, right, bottom;

  bool holds(const Point& p) const { return p.x >= left && p.x <= right && p.y >= top && p.y <= bottom; }
  bool overlaps(const Box& o) const {
    return left < o.right && o.left < right && top < o.bottom && o.top < bottom;
  }
};

std::vector<Point> marks(const std::string& svg) {
  std::vector<Point> points;
  for (const auto& place : all_between(svg, "transform=\"translate(", ")")) {
    points.push_back({std::stod(place), std::stod(place.substr(place.find(' ')))});
  }
  return points;
}

// From the lines of the grid, which go from its left to its right; the lowest is the axis.
Box frame(const std::string& svg) {
  Box box{1e9, 1e9, -1e9, -1e9};
  for (const auto& line : all_between(svg, "<path class=\"grid\" d=\"M", "\"")) {
    if (line.find('H') == std::string::npos) continue;
    const double y = std::stod(line.substr(line.find(' ')));
    box = {std::stod(line), std::min(box.top, y), std::stod(line.substr(line.find('H') + 1)),
           std::max(box.bottom, y)};
  }
  return box;
}

// The boxes of the text beside points, with letters of half the height on average: drawn, they are rather
// wider.
std::vector<Box> labels(const std::string& svg) {
  std::vector<Box> boxes;
  for (const auto& label : all_between(svg, "<text class=\"halo\"", "</text>")) {
    const double x = std::stod(between(label, "x=\"", "\"")), y = std::stod(between(label, "y=\"", "\""));
    const double wide = 6 * static_cast<double>(label.size() - label.find('>') - 1);
    const auto anchor = between(label, "text-anchor=\"", "\"");
    const double left = anchor == "end" ? x - wide : anchor == "middle" ? x - wide / 2 : x;
    boxes.push_back({left, y - 9, left + wide, y + 1});
  }
  return boxes;
}

TEST(Plot, DrawsEveryPointAndNamesEverySeries) {
  const auto svg = to_svg(example());
  EXPECT_EQ(marks(svg).size(), 3u + 1);  // and one in the legend; a dashed series has none
  EXPECT_EQ(all_between(svg, ">first<", "/text>").size(), 1u);
  EXPECT_EQ(all_between(svg, ">second<", "/text>").size(), 1u);
  EXPECT_NE(svg.find("<desc>y against x. first: 1 at 0, 3 at 1, 2 at 2. second: 2 at 0, 2 at 2.</desc>"),
            std::string::npos);
}

TEST(Plot, NamesInTheLegendAreWhole) {
  auto plot = example();
  for (size_t size = 1; size < 200; ++size) {
    plot.series[0].name = std::string(size, 'n');
    const bool fits = to_svg(plot).find(plot.series[0].name + "</text>") != std::string::npos;
    EXPECT_EQ(fits, size <= 82) << size;  // what 720 pixels hold, beside the data or below
  }
}

TEST(Plot, EscapesText) {
  auto plot = example();
  plot.title = plot.x_label = plot.y_label = plot.series[0].name = kHostile;
  plot.series[0].labels = {kHostile, "", "b\xC3"};
  const auto svg = to_svg(plot);
  EXPECT_EQ(svg.find("<script"), std::string::npos);
  EXPECT_NE(svg.find("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&amp;&quot; \xEF\xBF\xBD"),
            std::string::npos);
  EXPECT_EQ(svg.find('\x01'), std::string::npos);
  EXPECT_EQ(svg.find('\xFF'), std::string::npos);
  EXPECT_NE(svg.find("b\xEF\xBF\xBD</text>"), std::string::npos);
}

TEST(Plot, PutsHigherValuesHigher) {
  auto plot = example();
  plot.series = {{"", {0, 1}, {1, 100}}};
  const auto linear = marks(to_svg(plot));
  ASSERT_EQ(linear.size(), 2u);
  EXPECT_LT(linear[0].x, linear[1].x);
  EXPECT_GT(linear[0].y, linear[1].y);
  plot.series = {{"", {0, 1, 2}, {1, 10, 100}}};
  plot.log_y = true;
  const auto log = marks(to_svg(plot));
  EXPECT_NEAR(log[1].y, (log[0].y + log[2].y) / 2, 0.11);
}

TEST(Plot, PointsAreInTheFrameAndTheLegendIsNot) {
  for (const auto& plot : {example(), example_scatter(), example_curves()}) {
    for (const double width : {280., 340., 720., 1200.}) {
      const auto svg = to_svg(plot, width);
      auto box = frame(svg);
      ASSERT_GT(box.right - box.left, 150);
      box.top -= 30;  // above the highest line of the grid
      size_t inside = 0, entries = 0;
      for (const auto& point : marks(svg)) {
        inside += box.holds(point);
        EXPECT_GT(point.x, 0);
        EXPECT_LT(point.x, width);
        // The legend's marks are left of its text: a full key away from the data, or below them.
        entries += point.x > box.right + 20 || point.y > box.bottom + 20;
      }
      EXPECT_EQ(inside + entries, marks(svg).size()) << plot.title << " " << width;
      const auto dashed =
          std::count_if(plot.series.begin(), plot.series.end(), [](auto& s) { return s.dashed; });
      EXPECT_EQ(entries, plot.series.size() - static_cast<size_t>(dashed)) << plot.title << " " << width;
    }
  }
}

TEST(Plot, LabelsOverlapNothing) {
  auto hopeless = example();
  hopeless.series = {{"s", std::vector<double>(60, 1), std::vector<double>(60, 1), {}, false, false, {}}};
  for (int i = 0; i < 60; ++i) hopeless.series[0].labels.push_back("label " + std::to_string(i));
  for (const auto& plot : {example_scatter(), hopeless}) {
    for (const double width : {340., 720.}) {
      const auto svg = to_svg(plot, width);
      const auto boxes = labels(svg);
      const auto box = frame(svg);
      EXPECT_GE(boxes.size(), 8u);
      if (plot.series.size() > 1 && width > 500) {
        EXPECT_EQ(boxes.size(), plot.series.size());
      }
      for (size_t a = 0; a < boxes.size(); ++a) {
        for (size_t b = 0; b < a; ++b) EXPECT_FALSE(boxes[a].overlaps(boxes[b])) << width;
        for (const auto& mark : marks(svg)) EXPECT_FALSE(boxes[a].holds(mark)) << width;
        EXPECT_GE(boxes[a].left, box.left);
        EXPECT_LE(boxes[a].right, box.right);
        EXPECT_LE(boxes[a].bottom, box.bottom);
      }
    }
  }
  const auto svg = to_svg(hopeless);
  EXPECT_LT(labels(svg).size(), 60u);
  EXPECT_NE(svg.find("<title>label 59</title>"), std::string::npos);  // as a tooltip
}

TEST(Plot, LabelsStayOffLinesWhereTheyCan) {
  Plot plot{.title = "t", .x_label = "x", .y_label = "y", .series = {{"up", {}, {}}, {"flat", {}, {}}}};
  for (int i = 0; i < 6; ++i) {
    for (size_t s = 0; s < 2; ++s) {
      plot.series[s].x.push_back(i);
      plot.series[s].y.push_back(s == 0 ? i : 2.6);
      plot.series[s].labels.push_back("0." + std::to_string(i));
    }
  }
  for (const double width : {340., 720.}) {
    const auto svg = to_svg(plot, width);
    const auto boxes = labels(svg);
    EXPECT_EQ(boxes.size(), 12u);
    auto paths = all_between(svg, "<path d=\"M", "\" fill=\"none\"");
    std::erase_if(paths, [](const auto& path) { return path.find('"') != std::string::npos; });  // not one
    ASSERT_EQ(paths.size(), 2u);
    for (const auto& path : paths) {  // both are straight
      const auto last = path.substr(path.rfind('L') + 1);
      const Point from{std::stod(path), std::stod(path.substr(path.find(' ')))};
      const Point to{std::stod(last), std::stod(last.substr(last.find(' ')))};
      for (int step = 0; step <= 2000; ++step) {
        const double share = step / 2000.;
        const Point at{from.x + share * (to.x - from.x), from.y + share * (to.y - from.y)};
        for (const auto& box : boxes) ASSERT_FALSE(box.holds(at)) << width << " " << at.x << " " << at.y;
      }
    }
  }
}

TEST(Plot, WhereALineMeetsAPointThePointIsMarked) {
  auto plot = example();
  plot.series = {{"line", {0, 1, 2}, {1, 3, 2}}, {"point", {1}, {3}, {}, false, false}};
  EXPECT_EQ(marks(to_svg(plot)).size(), 2 + 1 + 2u);  // two of them in the legend
  plot.series[1].x[0] = 1.5;
  EXPECT_EQ(marks(to_svg(plot)).size(), 3 + 1 + 2u);
}

TEST(Plot, LinesOnOneAnotherAreAllSeen) {
  auto plot = example();
  const std::vector<double> x = {0, 1, 2, 3}, y = {1, 3, 2, 10};
  plot.series = {
      {"first", x, y}, {"second", x, y}, {"third", x, {1.001, 3, 2, 10}}, {"apart", x, {1, 3, 2, 9}}};
  const auto svg = to_svg(plot);
  for (const char* name : {">first<", ">second (= first)<", ">third (≈ first)<", ">apart<"})
    EXPECT_NE(svg.find(name), std::string::npos) << name;
  // Dashes in turn: the second where the third has its gap, and in both gaps the first.
  EXPECT_EQ(all_between(svg, "stroke-dasharray=\"7 14\" stroke-dashoffset=\"", "\""),
            (std::vector<std::string>{"-7", "-14"}));
  // Of the three one mark at each point, those of the other line, and one of each in the legend.
  EXPECT_EQ(marks(svg).size(), 4 + 4 + 4u);
  plot.series.erase(plot.series.begin() + 1, plot.series.begin() + 3);
  EXPECT_EQ(to_svg(plot).find("dasharray"), std::string::npos);
  EXPECT_EQ(to_csv(plot).find("("), std::string::npos);
}

TEST(Plot, WholeNumbersHaveNoTicksBetweenThem) {
  const auto ticks = [](const std::vector<double>& x) {
    Plot plot{.title = "t",
              .x_label = "epoch",
              .y_label = "y",
              .series = {{"", x, std::vector<double>(x.size(), 1)}}};
    return all_between(to_svg(plot), "text-anchor=\"middle\">", "<");
  };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(ticks({1, 2, 3}), (Texts{"1", "2", "3", "epoch"}));
  EXPECT_EQ(ticks({1, 2}), (Texts{"1", "2", "epoch"}));
  EXPECT_EQ(ticks({1, 2.5}).at(1), "1.5");  // numbers that are not whole have them
}

TEST(Plot, NamesInThePlaceOfNumbers) {
  Plot plot{.title = "t",
            .x_label = "block",
            .y_label = "y",
            .x_names = {"stem", kHostile, "c, d", "head"},
            .series = {{"s", {0, 1, 3}, {1, 2, 4}}}};
  const auto svg = to_svg(plot);
  EXPECT_NE(svg.find(">stem</text>"), std::string::npos);
  EXPECT_NE(svg.find(">head</text>"), std::string::npos);
  EXPECT_EQ(svg.find("<script"), std::string::npos);
  EXPECT_NE(svg.find("s: 1 at stem, 2 at &lt;script"), std::string::npos);
  // Nothing joins what is not there: a line from the first to the second, and a point.
  EXPECT_EQ(all_between(between(svg, "<path d=\"", "\" fill=\"none\""), "L", " ").size(), 1u);
  plot.series[0].x[2] = 2;
  EXPECT_EQ(to_csv(plot).substr(to_csv(plot).rfind("\ns,")), "\ns,\"c, d\",4\n");
  // Short ones level, long ones slanted and within the image, of many some.
  plot.x_names = {"a", "b", "c"};
  EXPECT_EQ(to_svg(plot).find("rotate"), std::string::npos);
  plot.x_names.clear();
  for (int i = 0; i < 200; ++i) plot.x_names.push_back("backbone.blocks." + std::to_string(i));
  for (const double width : {280., 720.}) {
    const auto many = to_svg(plot, width);
    const auto names = all_between(many, "rotate(-45)\"", "</text>");
    EXPECT_GE(names.size(), 8u);
    EXPECT_LT(names.size(), 60u);
    const double height = std::stod(between(many, "height=\"", "\""));
    EXPECT_LT(frame(many).bottom + 40, height);
  }
  const auto refused = [&](double x) {
    auto other = plot;
    other.series[0].x[0] = x;
    EXPECT_THROW(to_svg(other), std::invalid_argument) << x;
    EXPECT_THROW(to_csv(other), std::invalid_argument) << x;
  };
  for (const double x : {-1., 0.5, 200., 1e300}) refused(x);
}

TEST(Plot, AsHighAsAskedFor) {
  auto plot = example();
  const auto height = [&] { return std::stod(between(to_svg(plot), "height=\"", "\"")); };
  const double before = height();
  plot.height = 420;
  EXPECT_EQ(height(), before + 120);
}

TEST(Plot, FourteenSeriesDifferWithoutColor) {
  Plot plot = example();
  plot.series.clear();
  for (int i = 0; i < 14; ++i)
    plot.series.push_back({std::string(1, static_cast<char>('a' + i)), {0, 1}, {0, 1. * i}});
  std::set<std::string> looks;
  for (const auto& mark : all_between(to_svg(plot), "<path ", " transform=\"translate")) {
    const auto shape = between(
        mark.substr(mark.rfind("<path") == std::string::npos ? 0 : mark.rfind("<path")), " d=\"", "\"");
    looks.insert((mark.find("class=\"page\"") == std::string::npos ? "full " : "hollow ") + shape);
  }
  EXPECT_GE(looks.size(), 14u);
}

TEST(Plot, LongLinesStayShort) {
  const auto svg = to_svg(example_curves());  // 42000 points
  EXPECT_LT(svg.size(), 150000u);
  EXPECT_LT(marks(svg).size(), 14 * 13u);
  // A peak of one point is still there: as high as the highest grid line says.
  Plot plot{.title = "t", .x_label = "x", .y_label = "y", .series = {{"s", {}, {}}}};
  for (int i = 0; i < 5000; ++i) {
    plot.series[0].x.push_back(i);
    plot.series[0].y.push_back(i == 2345 ? 100 : 0);
  }
  const auto path = between(to_svg(plot), "<path d=\"M", "\"");
  double highest = 1e9;
  for (const auto& point : all_between(path, " ", "L")) highest = std::min(highest, std::stod(point));
  EXPECT_NEAR(highest, frame(to_svg(plot)).top, 1.5 + 0.04 * 300);
  EXPECT_NE(to_svg(plot).find("5000 points from 0 at 0 to 0 at 4999, lowest 0 at 0, highest 100 at 2345."),
            std::string::npos);
}

TEST(Plot, ManyFitInOnePage) {
  const auto svg = to_svg(example());
  EXPECT_EQ(svg.find(" id="), std::string::npos);
  auto style = between(svg, "<style>", "</style>");
  const std::string media = "@media screen and (prefers-color-scheme:dark){";
  ASSERT_NE(style.find(media), std::string::npos);
  style.replace(style.find(media), media.size(), "");
  for (size_t at = 0; at < style.size() && style[at] != '}'; at = style.find('}', at) + 1) {
    EXPECT_EQ(style.compare(at, 12, ".tpgm-figure"), 0) << style.substr(at);
  }
}

TEST(Plot, SameBytesEveryTime) {
  EXPECT_EQ(to_svg(example()), to_svg(example()));
  EXPECT_EQ(to_svg(example_scatter()), to_svg(example_scatter()));
}

TEST(Plot, OneValueIsEnough) {
  auto plot = example();
  for (const double value : {7., 0., -1e-30, 1e300}) {
    plot.series = {{"s", {3}, {value}, {}}};
    for (const bool log : {false, true}) {
      plot.log_x = log;
      plot.log_y = log && value > 0;
      const auto svg = to_svg(plot);
      EXPECT_EQ(svg.find("nan"), std::string::npos) << value;
      EXPECT_EQ(svg.find("inf"), std::string::npos) << value;
      EXPECT_TRUE(frame(svg).left > 0 && marks(svg).size() == 2) << value;
    }
  }
}

TEST(Plot, ErrorBarsThatReachZeroEndAtTheFrame) {
  auto plot = example();
  plot.log_y = true;
  plot.series = {{"s", {1, 2}, {1, 10}, {2, 1}}};
  const auto svg = to_svg(plot);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

TEST(Plot, Csv) {
  EXPECT_EQ(to_csv(example()), R"(series,x,y,spread
first,0,1,0.1
first,1,3,0.1
first,2,2,0.1
second,0,2,
second,2,2,
)");
  Plot plot{.title = "", .x_label = "", .y_label = "", .series = {{"a, \"b\"", {1.0 / 3}, {1e-20}}}};
  EXPECT_EQ(to_csv(plot), "series,x,y\n\"a, \"\"b\"\"\",0.3333333333333333,1e-20\n");
  plot.series[0].labels = {"p,q"};
  plot.series.push_back({"c", {1}, {2}});
  EXPECT_EQ(to_csv(plot), "series,x,y,label\n\"a, \"\"b\"\"\",0.3333333333333333,1e-20,\"p,q\"\nc,1,2,\n");
}

TEST(Plot, RefusesWhatCannotBeDrawn) {
  const auto refused = [](void (*spoil)(Plot&)) {
    auto plot = example();
    spoil(plot);
    EXPECT_THROW(to_svg(plot), std::invalid_argument);
    EXPECT_THROW(to_csv(plot), std::invalid_argument);
  };
  refused([](Plot& plot) { plot.series[0].y.pop_back(); });
  refused([](Plot& plot) { plot.series[0].spread.pop_back(); });
  refused([](Plot& plot) { plot.series[0].labels = {"a"}; });
  refused([](Plot& plot) { plot.series[0].y[1] = std::nan(""); });
  refused([](Plot& plot) { plot.series[0].x[1] = INFINITY; });
  refused([](Plot& plot) { plot.series[0].spread[1] = -1; });
  refused([](Plot& plot) { plot.log_x = true; });  // x = 0
  refused([](Plot& plot) {
    plot.log_y = true;
    plot.series[1].y[0] = -2;
  });
  refused([](Plot& plot) { plot.height = 99; });
  refused([](Plot& plot) { plot.height = std::nan(""); });
  refused([](Plot& plot) { plot.series.clear(); });
  refused([](Plot& plot) { plot.series = {{"s", {}, {}}}; });
  EXPECT_THROW(to_svg(example(), 279), std::invalid_argument);
  EXPECT_THROW(to_svg(example(), std::nan("")), std::invalid_argument);
}

}  // namespace
}  // namespace tpgm::test_plot
