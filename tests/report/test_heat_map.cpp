// Heat maps: every cell, an order of colors that gray keeps, names that have room, and strictness.
#include "tpgm/report/heat_map.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/report/example.h"

namespace tpgm::test_heat_map {
namespace {

using tpgm::HeatMap;
using tpgm::to_csv;
using tpgm::to_svg;
using tpgm::test::example_large_map;
using tpgm::test::example_small_map;
using tpgm::test::kHostile;

HeatMap two_by_two() {
  return {.title = "t",
          .x_label = "x",
          .y_label = "y",
          .value_label = "v",
          .columns = {"a", "b,c"},
          .rows = {"r", "s"},
          .values = {{1, 2.5}, {std::nan(""), -1.0 / 3}}};
}

size_t count(const std::string& text, const std::string& word) {
  size_t found = 0;
  for (auto at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

double luminance(const std::string& hex) {
  const auto channel = [&hex](size_t at) {
    return std::pow(std::stoi(hex.substr(at, 2), nullptr, 16) / 255.0, 2.2);
  };
  return 0.2126 * channel(0) + 0.7152 * channel(2) + 0.0722 * channel(4);
}

TEST(HeatMap, DrawsEveryCell) {
  const auto svg = to_svg(example_large_map());
  // 64 parts of the bar; the bar's sample of an empty cell.
  EXPECT_EQ(count(svg, "<path fill=\"#"), 64u + 150 * 7 - 9);
  EXPECT_EQ(count(svg, "<path class=\"none\""), 9u + 1);
  EXPECT_EQ(count(svg, "<title>"), 1u + 150 * 7);
  EXPECT_NE(svg.find("<title>l2_sp, norm.bias: none</title>"), std::string::npos);
  EXPECT_EQ(count(to_svg(example_large_map(), 340), "<title>"), 1u);
}

TEST(HeatMap, LightnessGrowsWithTheValue) {
  const auto svg = to_svg(two_by_two());
  double last = -1;
  size_t at = 0;
  for (int i = 0; i < 64; ++i) {
    at = svg.find("<path fill=\"#", at) + 13;
    const double now = luminance(svg.substr(at, 6));
    EXPECT_GT(now, last) << i;
    last = now;
  }
  const auto cell = [&svg](const std::string& title) {
    const auto end = svg.find("<title>" + title);
    return luminance(svg.substr(svg.rfind("fill=\"#", end) + 7, 6));
  };
  EXPECT_LT(cell("s, b,c: −0.33"), cell("r, a: 1.00"));
  EXPECT_LT(cell("r, a: 1.00"), cell("r, b,c: 2.50"));
}

TEST(HeatMap, WritesValuesWhereTheyFit) {
  const auto wide = to_svg(example_small_map()), narrow = to_svg(example_small_map(), 340);
  EXPECT_EQ(count(wide, "fill=\"#fff\">") + count(wide, "fill=\"#000\">"), 9u * 6 - 1);
  EXPECT_EQ(count(narrow, "fill=\"#fff\">") + count(narrow, "fill=\"#000\">"), 0u);
  EXPECT_EQ(count(wide, "rotate(-45)"), 0u);
  EXPECT_EQ(count(narrow, "rotate(-45)"), 9u);
}

TEST(HeatMap, NamesHaveRoom) {
  for (const double width : {340., 720.}) {
    const auto svg = to_svg(example_large_map(), width);
    double last = -1e9;
    size_t names = 0;
    for (auto at = svg.find("translate("); at != std::string::npos;
         at = svg.find("translate(", at + 1), ++names) {
      const double x = std::stod(svg.substr(at + 10));
      EXPECT_GE(x, last + 17);  // a line of text at 45 degrees
      EXPECT_LE(x, width);
      last = x;
    }
    EXPECT_GE(names, 5u);
  }
}

TEST(HeatMap, ValuesBeyondTheColors) {
  auto map = two_by_two();
  map.low = 0;
  map.high = 2;
  const auto svg = to_svg(map);
  EXPECT_NE(svg.find(">≤ 0</text>"), std::string::npos);
  EXPECT_NE(svg.find(">≥ 2</text>"), std::string::npos);
  map.low = -1;
  map.high = 3;
  EXPECT_EQ(to_svg(map).find("≥"), std::string::npos);
}

TEST(HeatMap, OneValueIsEnough) {
  auto map = two_by_two();
  map.values = {{3, 3}, {3, 3}};
  EXPECT_EQ(to_svg(map).find("nan"), std::string::npos);
  map.values = {{0, 0}, {0, 0}};
  EXPECT_EQ(to_svg(map).find("nan"), std::string::npos);
}

TEST(HeatMap, EscapesTextAndHasNoIds) {
  auto map = two_by_two();
  map.title = map.x_label = map.y_label = map.value_label = map.columns[0] = map.rows[0] = kHostile;
  const auto svg = to_svg(map);
  EXPECT_EQ(svg.find("<script"), std::string::npos);
  EXPECT_EQ(svg.find('\xFF'), std::string::npos);
  EXPECT_EQ(svg.find(" id="), std::string::npos);
  EXPECT_EQ(svg, to_svg(map));
}

TEST(HeatMap, Csv) { EXPECT_EQ(to_csv(two_by_two()), "y,a,\"b,c\"\nr,1,2.5\ns,,-0.3333333333333333\n"); }

TEST(HeatMap, RefusesWhatCannotBeDrawn) {
  const auto refused = [](void (*spoil)(HeatMap&)) {
    auto map = two_by_two();
    spoil(map);
    EXPECT_THROW(to_svg(map), std::invalid_argument);
    EXPECT_THROW(to_csv(map), std::invalid_argument);
  };
  refused([](HeatMap& map) { map.rows.pop_back(); });
  refused([](HeatMap& map) { map.values[1].pop_back(); });
  refused([](HeatMap& map) { map.values[0][0] = INFINITY; });
  refused([](HeatMap& map) { map.low = 1; });
  refused([](HeatMap& map) { map.high = std::nan(""); });
  refused([](HeatMap& map) { map.values = {{std::nan(""), std::nan("")}, {std::nan(""), std::nan("")}}; });
  refused([](HeatMap& map) { map.columns = map.rows = {}, map.values = {}; });
  EXPECT_THROW(to_svg(two_by_two(), 100), std::invalid_argument);
}

}  // namespace
}  // namespace tpgm::test_heat_map
