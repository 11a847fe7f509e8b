// Pages: all blocks, escaped, complete in themselves. How they look is for test_browser.py.
#include "tpgm/report/page.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/report/example.h"

namespace tpgm::test_page {
namespace {

using tpgm::test::example_page;
using tpgm::test::example_png;
using tpgm::test::kHostile;

std::string html_of(Block block) { return to_html({"t", "", {{"s", {std::move(block)}}}}); }

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

Figure figure(std::string id, std::string csv = "") {
  return {.id = std::move(id), .caption = "c", .svg = "<svg></svg>", .csv = std::move(csv), .narrow = ""};
}

std::string error_of(Block block) {
  try {
    html_of(std::move(block));
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(Page, IsCompleteInItself) {
  const auto html = to_html(example_page());
  EXPECT_LT(html.size(), 2'000'000u);
  EXPECT_TRUE(has(html, "default-src 'none'"));
  EXPECT_FALSE(has(html, "<script"));
  EXPECT_FALSE(has(html, "https:"));
  EXPECT_FALSE(has(html, "<link"));
  EXPECT_EQ(html, to_html(example_page()));
}

TEST(Page, Contents) {
  auto html = to_html({"t", "u", {{"one & two", {}}, {"three", {}}}});
  EXPECT_TRUE(has(html, "<a href=\"#section-1\">one &amp; two</a>"));
  EXPECT_TRUE(has(html, "<h2 id=\"section-1\">one &amp; two</h2>"));
  EXPECT_TRUE(has(html, "<a href=\"#section-2\">three</a>"));
  EXPECT_FALSE(has(html_of(Paragraph{"p"}), "<nav"));  // of one section
}

TEST(Page, EscapesEverything) {
  const auto html = to_html(
      {kHostile,
       kHostile,
       {{kHostile,
         {Paragraph{kHostile}, Code{kHostile, kHostile, true}, Code{kHostile, kHostile, false},
          Gallery{kHostile, {{example_png(8, 1), kHostile, {{kHostile, kHostile, true}}}}},
          Figure{.id = "f", .caption = kHostile, .svg = "<svg></svg>", .csv = kHostile, .narrow = ""},
          Table{kHostile, {{kHostile, 1}}, {kHostile, kHostile}, {{kHostile, kHostile}}, {{0, 1}}, {}}}},
        {kHostile, {}}}});
  EXPECT_FALSE(has(html, "<script"));
  EXPECT_FALSE(has(html, "\x01"));
  EXPECT_FALSE(has(html, "\xFF"));
  EXPECT_FALSE(has(html, "alert('"));
}

TEST(Page, Table) {
  EXPECT_EQ(
      to_html(Table{.caption = "c",
                    .groups = {{"", 1}, {"OOD", 2}},
                    .columns = {"m", "x", "y", "z"},
                    .rows = {{"a", "1", "2", "3"}, {"b", "4", "", std::string(40, 'w')}},
                    .marked = {{1, 1}, {1, 2}},
                    .rules = {0, 1}}),
      "<figure class=\"table\">\n<figcaption>c</figcaption>\n"
      "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"c\">\n<table>\n<thead>\n"
      "<tr class=\"groups\"><td></td><td colspan=\"1\"></td>"
      "<th colspan=\"2\" scope=\"colgroup\"><span>OOD</span></th></tr>\n"
      "<tr><th scope=\"col\">m</th><th scope=\"col\">x</th><th scope=\"col\">y</th><th "
      "scope=\"col\">z</th></tr>\n"
      "</thead>\n<tbody>\n"
      "<tr><th scope=\"row\">a</th><td>1</td><td>2</td><td>3</td></tr>\n"
      "<tr class=\"ruled\"><th scope=\"row\">b</th><td class=\"marked\"><strong>4</strong></td><td></td>"
      "<td class=\"long\">wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww</td></tr>\n"
      "</tbody>\n</table>\n</div>\n</figure>\n");
}

TEST(Page, FiguresCarryTheirData) {
  EXPECT_TRUE(
      has(html_of(figure("f", "a")), "download=\"f.csv\" href=\"data:text/csv;charset=utf-8;base64,YQ==\""));
  EXPECT_TRUE(has(html_of(figure("f", "ab")), "base64,YWI=\""));
  EXPECT_TRUE(has(html_of(figure("f", "abc\xFB\xFF\xBF")), "base64,YWJj+/+/\""));
  EXPECT_FALSE(has(html_of(figure("f")), "download="));
  EXPECT_FALSE(has(html_of(figure("f", std::string(65537, 'a'))), "download="));
  const auto drawn = to_figure("f", "c", test::example_small_map());
  EXPECT_EQ(drawn.svg, to_svg(test::example_small_map()));
  EXPECT_EQ(drawn.csv, to_csv(test::example_small_map()));
  const auto html = html_of(drawn);
  EXPECT_TRUE(has(html, "<div class=\"for-wide\">\n" + drawn.svg));
  EXPECT_TRUE(has(html, "<div class=\"for-narrow\">\n" + drawn.narrow));
}

TEST(Page, ImagesAndAnswers) {
  const auto html =
      html_of(Gallery{"", {{example_png(32, 1), "o", {{"ft", "zero", false}, {"tpgm", "o", true}}}}});
  EXPECT_TRUE(
      has(html,
          "<img class=\"pixels\" width=\"128\" height=\"128\" alt=\"o\" src=\"data:image/png;base64,iVBOR"));
  EXPECT_TRUE(has(html, "<li class=\"wrong\"><i aria-hidden=\"true\">✗</i><b>ft:</b> zero"));
  EXPECT_TRUE(has(html, "<li class=\"correct\"><i aria-hidden=\"true\">✓</i><b>tpgm:</b> o"));
  EXPECT_TRUE(
      has(html_of(Gallery{"", {{example_png(200, 1), "o", {}}}}), "<img width=\"200\" height=\"200\""));
}

TEST(Page, Code) {
  EXPECT_TRUE(has(
      html_of(Code{"t", "a <b\n", true}),
      "<details class=\"code\">\n<summary>t</summary>\n<pre tabindex=\"0\">\na &lt;b\n</pre>\n</details>"));
  EXPECT_FALSE(has(html_of(Code{"t", "a", false}), "<details"));
}

TEST(Page, ExampleImages) {
  const auto html = html_of(ExampleImages{"c <", {{"home (ID)", {{example_png(24, 1), "dog <", {}}}}}});
  EXPECT_TRUE(has(html,
                  "<div class=\"group\">\n<p>home (ID)</p>\n<div>\n<div class=\"image\">\n"
                  "<img class=\"pixels\" width=\"72\" height=\"72\" alt=\"dog &lt;\""));
  EXPECT_TRUE(has(html, "<p>dog &lt;</p>\n</div>\n</div>\n</div>\n</div>\n<figcaption>c &lt;</figcaption>"));
}

TEST(Page, FoldedTable) {
  const Table table{
      .caption = "c", .groups = {}, .columns = {"m"}, .rows = {{"a"}}, .marked = {}, .rules = {}};
  const auto html = html_of(FoldedTable{"All <rows>", table});
  EXPECT_TRUE(
      has(html, "<details>\n<summary>All &lt;rows&gt;</summary>\n" + to_html(table) + "</details>\n"));
  // On paper, where nothing can be opened, all of it is there; test_browser.py prints it.
  const auto print = html.substr(html.find("@media print{"));
  EXPECT_TRUE(has(print, "details::details-content{content-visibility:visible"));
}

TEST(Page, RefusesWhatItCannotShow) {
  EXPECT_EQ(error_of(Gallery{"", {{"GIF89a", "o", {}}}}),
            "[page] the image 'o' is not a PNG; encode it as one");
  EXPECT_EQ(error_of(Gallery{"", {{example_png(8, 1).substr(0, 20), "o", {}}}}),
            "[page] the image 'o' is not a PNG; encode it as one");
  for (const auto* id : {"", "a b", "../a", ".a", "a/b", "ä", "a\"b"})
    EXPECT_TRUE(has(error_of(figure(id)), "not a file name"));
  auto empty = figure("f");
  empty.svg = "";
  EXPECT_EQ(error_of(empty), "[page] the figure 'f' is not an SVG; draw it with to_svg");
  EXPECT_THROW(to_html({"t", "", {{"a", {figure("f")}}, {"b", {figure("f")}}}}), std::invalid_argument);
  EXPECT_THROW(html_of(Table{}), std::invalid_argument);
}

}  // namespace
}  // namespace tpgm::test_page
