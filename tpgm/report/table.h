// Tables as text: for a terminal, Markdown, LaTeX (booktabs), HTML and CSV.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tpgm {

/// Cells are text, in UTF-8. The first column is aligned left, all others right.
struct Table {
  std::string caption;
  /// Above the columns, each over a number of them: {"ID", 1}, {"OOD", 4}; may be empty. With spans over all
  /// columns but the first, together. A group without a name is not shown.
  std::vector<std::pair<std::string, int>> groups;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
  /// Marked cells (the best of a column): row, column. '*' on a terminal, bold everywhere else.
  std::vector<std::pair<size_t, size_t>> marked;
  /// Cells that differ from what they are compared with: row, column, and whether they are higher. Behind the
  /// text, ↑ or ↓; to_csv() leaves them out.
  struct Arrow {
    size_t row, column;
    bool up;
  };
  std::vector<Arrow> arrows = {};
  /// A sentence below the table; may be empty. to_csv() leaves it out.
  std::string note = {};
  /// Rows before which there is a line, on a terminal, in LaTeX and HTML; there is always one before row 0.
  std::vector<size_t> rules = {};
};

/// All of these throw std::invalid_argument if there are no columns, a row has another number of cells than
/// there are columns, groups do not cover the columns, or a mark, arrow or rule is at a row or column that is not
/// there. All but to_csv put spaces in the place of line breaks and other control characters.

/// In columns as wide as their widest cell, in characters. A '*' stands behind the others' right edge.
std::string to_text(const Table& table);
/// For GitHub, where a column has one line of header: a group is a prefix of it, "OOD: Sketch".
std::string to_markdown(const Table& table);
/// tabular with booktabs' rules; text is escaped, and Δ, ±, − and the like are math. With a caption, in a
/// table environment.
std::string to_latex(const Table& table);
/// A <figure> with a <table> in a box that scrolls, for a page (page.h has the style of its classes).
std::string to_html(const Table& table);
/// One line of columns (prefixed by nothing), one line a row; fields in quotes where they need them. Without
/// caption, groups and marks.
std::string to_csv(const Table& table);

/// One field of a CSV line, in quotes where it needs them.
std::string csv_field(std::string_view text);

}  // namespace tpgm
