// Tables: the exact text of each form, what it escapes, and strictness about cells that are missing.
#include "tpgm/report/table.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace tpgm::test_table {
namespace {

using tpgm::csv_field;
using tpgm::Table;
using tpgm::to_csv;
using tpgm::to_html;
using tpgm::to_latex;
using tpgm::to_markdown;
using tpgm::to_text;

Table example() {
  return {.caption = "DomainNet, 100 % of the data",
          .groups = {{"ID", 1}, {"OOD", 2}},
          .columns = {"Method", "Real", "Sketch", "Δ"},
          .rows = {{"ft", "81.99 ± 0.03", "31.5", "−50.5"},
                   {"l2_sp", "81.7", "37.3", "−44.4"},
                   {"tpgm", "83.0 ± 0.2", "37.3", ""}},
          .marked = {{2, 1}, {1, 2}, {2, 2}},
          .rules = {2}};
}

// A table that is one cell below one column of the same text.
Table cell(const std::string& text) {
  return {.caption = "", .groups = {}, .columns = {text}, .rows = {{text}}, .marked = {}, .rules = {}};
}

TEST(Table, Text) {
  EXPECT_EQ(to_text(example()), R"(DomainNet, 100 % of the data

             ID             OOD
        -------------  --------------
Method          Real   Sketch       Δ
-------------------------------------
ft      81.99 ± 0.03     31.5   −50.5
l2_sp           81.7     37.3*  −44.4
-------------------------------------
tpgm      83.0 ± 0.2*    37.3*
)");
}

TEST(Table, Markdown) {
  EXPECT_EQ(to_markdown(example()), R"(**DomainNet, 100 % of the data**

| Method |       ID: Real | OOD: Sketch | OOD: Δ |
|:-------|---------------:|------------:|-------:|
| ft     |   81.99 ± 0.03 |        31.5 |  −50.5 |
| l2_sp  |           81.7 |    **37.3** |  −44.4 |
| tpgm   | **83.0 ± 0.2** |    **37.3** |        |
)");
}

TEST(Table, Latex) {
  EXPECT_EQ(to_latex(example()), R"(% \usepackage{booktabs}
\begin{table}
\centering
\caption{DomainNet, 100 \% of the data}
\begin{tabular}{lrrr}
\toprule
 & \multicolumn{1}{c}{ID} & \multicolumn{2}{c}{OOD} \\
\cmidrule(lr){2-2}
\cmidrule(lr){3-4}
Method & Real & Sketch & $\Delta$ \\
\midrule
ft & 81.99 $\pm$ 0.03 & 31.5 & $-$50.5 \\
l2\_sp & 81.7 & \textbf{37.3} & $-$44.4 \\
\midrule
tpgm & \textbf{83.0 $\pm$ 0.2} & \textbf{37.3} &  \\
\bottomrule
\end{tabular}
\end{table}
)");
}

TEST(Table, Csv) {
  auto table = example();
  table.rows[0][0] = "ft, \"all\"\nlayers";
  EXPECT_EQ(to_csv(table), R"(Method,Real,Sketch,Δ
"ft, ""all""
layers",81.99 ± 0.03,31.5,−50.5
l2_sp,81.7,37.3,−44.4
tpgm,83.0 ± 0.2,37.3,
)");
  table.columns[0] = table.rows[0][0] = "";  // a field all the same
  table.rows.resize(1);
  table.marked.clear();
  table.rules.clear();
  EXPECT_EQ(to_csv(table), ",Real,Sketch,Δ\n,81.99 ± 0.03,31.5,−50.5\n");
}

TEST(Table, ArrowsAndANote) {
  auto table = example();
  table.arrows = {{1, 2, true}, {2, 1, false}};
  table.note = "50 % ↑";
  EXPECT_EQ(to_text(table), R"(DomainNet, 100 % of the data

              ID              OOD
        --------------  ---------------
Method          Real    Sketch        Δ
---------------------------------------
ft      81.99 ± 0.03      31.5    −50.5
l2_sp           81.7      37.3↑*  −44.4
---------------------------------------
tpgm      83.0 ± 0.2↓*    37.3 *

50 % ↑
)");
  EXPECT_EQ(to_csv(table), to_csv(example()));
  EXPECT_NE(to_markdown(table).find("**37.3↑**"), std::string::npos);
  EXPECT_NE(to_latex(table).find("\\textbf{37.3$\\uparrow$}"), std::string::npos);
  EXPECT_NE(to_latex(table).find("\\multicolumn{4}{l}{\\footnotesize 50 \\% $\\uparrow$}"),
            std::string::npos);
  EXPECT_NE(to_html(table).find("<p class=\"note\">50 % ↑</p>"), std::string::npos);
  table.arrows = {{3, 0, true}};
  EXPECT_THROW(to_text(table), std::invalid_argument);
}

TEST(Table, CsvField) {
  EXPECT_EQ(csv_field("a b;c"), "a b;c");
  EXPECT_EQ(csv_field("a,b"), "\"a,b\"");
  EXPECT_EQ(csv_field("a\"b"), "\"a\"\"b\"");
  EXPECT_EQ(csv_field("a\rb"), "\"a\rb\"");
  EXPECT_EQ(csv_field("a\nb"), "\"a\nb\"");
  EXPECT_EQ(csv_field("=1+1"),
            "=1+1");  // a text is as it is; what a spreadsheet makes of it is not known here
}

TEST(Table, NamesOfGroupsMakeRoom) {
  EXPECT_EQ(to_text({.caption = "",
                     .groups = {{"", 1}, {"a long name", 2}},
                     .columns = {"m", "x", "y", "z"},
                     .rows = {{"a", "1", "2", "3"}},
                     .marked = {{0, 0}},
                     .rules = {0}}),
            R"(       a long name
       -----------
m   x  y         z
------------------
a*  1  2         3
)");
}

TEST(Table, GroupsWithoutAName) {
  const Table table{.caption = "",
                    .groups = {{"", 1}, {"g", 1}},
                    .columns = {"m", "x", "y"},
                    .rows = {{"a", "1", "2"}},
                    .marked = {},
                    .rules = {}};
  EXPECT_EQ(to_markdown(table), R"(| m   |   x | g: y |
|:----|----:|-----:|
| a   |   1 |    2 |
)");
  EXPECT_EQ(to_latex(table), R"(% \usepackage{booktabs}
\begin{tabular}{lrr}
\toprule
 & \multicolumn{1}{c}{} & \multicolumn{1}{c}{g} \\
\cmidrule(lr){3-3}
m & x & y \\
\midrule
a & 1 & 2 \\
\bottomrule
\end{tabular}
)");
}

TEST(Table, NoRows) {
  auto table = cell("name");
  table.rows.clear();
  EXPECT_EQ(to_text(table), "name\n----\n");
  EXPECT_EQ(to_markdown(table), "| name |\n|:-----|\n");
  EXPECT_EQ(to_latex(table),
            "% \\usepackage{booktabs}\n\\begin{tabular}{l}\n\\toprule\nname \\\\\n\\bottomrule\n"
            "\\end{tabular}\n");
  EXPECT_EQ(to_csv(table), "name\n");
}

TEST(Table, CellsStayOnTheirLine) {
  EXPECT_EQ(to_text(cell("a\nb\x1B[31m")), "a b [31m\n--------\na b [31m\n");
  EXPECT_EQ(to_text(cell("\xC2\x9B"
                         "31m\u202E"
                         "a\xFF")),
            "??31m???a?\n----------\n??31m???a?\n");
  EXPECT_EQ(to_markdown(cell("\na\r\nb ")), "| a  b |\n|:-----|\n| a  b |\n");
  EXPECT_NE(to_latex(cell("a\n\nb")).find("\na  b \\\\\n"), std::string::npos);
}

TEST(Table, MarkdownIsEscaped) {
  EXPECT_EQ(to_markdown(cell(R"(a|b\|<c>*d* ~e~ `f` $g$ h_i _j_)")),
            R"(| a\|b\\\|\<c>\*d\* \~e\~ \`f\` \$g\$ h_i \_j\_ |
|:----------------------------------------------|
| a\|b\\\|\<c>\*d\* \~e\~ \`f\` \$g\$ h_i \_j\_ |
)");
  EXPECT_EQ(to_markdown(cell("[a](b) ![c](d) &lt; &#60; a & b")),
            R"(| \[a](b) !\[c](d) \&lt; \&#60; a & b |
|:------------------------------------|
| \[a](b) !\[c](d) \&lt; \&#60; a & b |
)");
  auto empty = cell("");
  empty.marked = {{0, 0}};
  EXPECT_EQ(to_markdown(empty), "|     |\n|:----|\n|     |\n");
}

TEST(Table, LatexIsEscaped) {
  const auto escaped = [](const std::string& text) {
    const auto latex = to_latex(cell(text));
    const auto begin = latex.find("\\midrule\n") + 9;
    return latex.substr(begin, latex.find(" \\\\\n\\bottomrule") - begin);
  };
  EXPECT_EQ(escaped(R"(50% & a_b #1 {x} $5)"), R"(50\% \& a\_b \#1 \{x\} \$5)");
  EXPECT_EQ(escaped(R"(~/a\b^2)"), R"(\textasciitilde{}/a\textbackslash{}b\textasciicircum{}2)");
  EXPECT_EQ(escaped(R"(<a|b>)"), R"(\textless{}a\textbar{}b\textgreater{})");
  EXPECT_EQ(escaped("[0, 1]"), "{[}0, 1]");
  EXPECT_EQ(escaped("*"), "{*}");
  EXPECT_EQ(escaped("--method"), "-{}-method");
  EXPECT_EQ(escaped("Δ ± − ×"), "$\\Delta$ $\\pm$ $-$ $\\times$");
  EXPECT_EQ(escaped("größe"), "größe");
}

TEST(Table, RefusesWhatDoesNotFit) {
  const auto error_of = [](const Table& table) {
    for (auto* write : {to_text, to_markdown, to_latex, to_html, to_csv}) {
      EXPECT_THROW(write(table), std::invalid_argument);
    }
    try {
      to_text(table);
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  auto table = example();
  table.caption = "t";
  const auto good = table;
  table.rows[1].pop_back();
  EXPECT_EQ(error_of(table),
            "[Table] 't' has 3 cells in row 1 under 4 columns; leave a cell empty, but not out");
  table = good;
  table.groups[1].second = 3;
  EXPECT_EQ(error_of(table),
            "[Table] 't' has groups over 4 columns, but 3 behind the first; a group may have no name");
  table = good;
  table.groups = {{"a", 3}, {"b", 0}};
  EXPECT_EQ(error_of(table), "[Table] 't' has a group 'b' over 0 columns; leave it out");
  table = good;
  table.marked = {{3, 0}};
  EXPECT_EQ(error_of(table), "[Table] 't' has no cell in row 3 and column 0 to mark; both count from 0");
  table.marked = {{0, 4}};
  EXPECT_EQ(error_of(table), "[Table] 't' has no cell in row 0 and column 4 to mark; both count from 0");
  table = good;
  table.rules = {3};
  EXPECT_EQ(error_of(table), "[Table] 't' has no row 3 to rule off; they count from 0");
  EXPECT_EQ(error_of({}), "[Table] '' has no columns; give it one or more");
}

}  // namespace
}  // namespace tpgm::test_table
