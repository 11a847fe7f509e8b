// One table, five ways to write it down.
#include "tpgm/report/table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <stdexcept>

#include "tpgm/base/untrusted.h"
#include "tpgm/report/svg.h"

namespace tpgm {
namespace {

void check(const Table& table) {
  const auto fail = [&table](const std::string& what) {
    throw std::invalid_argument(fmt::format("[Table] '{}' {}", table.caption, what));
  };
  if (table.columns.empty()) fail("has no columns; give it one or more");
  for (size_t row = 0; row < table.rows.size(); ++row) {
    if (table.rows[row].size() != table.columns.size()) {
      fail(fmt::format("has {} cells in row {} under {} columns; leave a cell empty, but not out",
                       table.rows[row].size(), row, table.columns.size()));
    }
  }
  size_t covered = 1;
  for (const auto& [name, span] : table.groups) {
    if (span < 1) fail(fmt::format("has a group '{}' over {} columns; leave it out", name, span));
    covered += static_cast<size_t>(span);
  }
  if (!table.groups.empty() && covered != table.columns.size()) {
    fail(fmt::format("has groups over {} columns, but {} behind the first; a group may have no name",
                     covered - 1, table.columns.size() - 1));
  }
  for (const auto& [row, column] : table.marked) {
    if (row >= table.rows.size() || column >= table.columns.size()) {
      fail(fmt::format("has no cell in row {} and column {} to mark; both count from 0", row, column));
    }
  }
  for (const auto& [row, column, up] : table.arrows) {
    if (row >= table.rows.size() || column >= table.columns.size())
      fail(fmt::format("has no cell in row {} and column {} for an arrow; both count from 0", row, column));
  }
  for (const size_t row : table.rules) {
    if (row >= table.rows.size()) fail(fmt::format("has no row {} to rule off; they count from 0", row));
  }
}

bool marked(const Table& table, size_t row, size_t column) {
  return !table.rows[row][column].empty() &&
         std::find(table.marked.begin(), table.marked.end(), std::pair(row, column)) != table.marked.end();
}

// "↑", "↓", or nothing.
std::string arrow(const Table& table, size_t row, size_t column) {
  for (const auto& each : table.arrows) {
    if (each.row == row && each.column == column) return each.up ? "↑" : "↓";
  }
  return "";
}

bool ruled(const Table& table, size_t row) {
  return row > 0 && std::find(table.rules.begin(), table.rules.end(), row) != table.rules.end();
}

// A line break would end a row, and an escape sequence could do anything to a terminal.
std::string one_line(std::string text) {
  std::replace_if(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; }, ' ');
  return printable(text, text.size());
}

// The number of characters of a text in UTF-8.
size_t width(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(),
                                           [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
}

std::string padded(const std::string& text, size_t to, bool left) {
  const std::string spaces(to - std::min(to, width(text)), ' ');
  return left ? text + spaces : spaces + text;
}

std::string without_spaces_at_the_end(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

std::vector<size_t> widths(const std::vector<std::vector<std::string>>& lines) {
  std::vector<size_t> result(lines[0].size());
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) result[i] = std::max(result[i], width(line[i]));
  }
  return result;
}

// The columns and then the rows, each cell by `write(text, marked)`.
template <typename Write>
std::vector<std::vector<std::string>> written(const Table& table, const Write& write) {
  std::vector<std::vector<std::string>> lines(1 + table.rows.size());
  for (size_t column = 0; column < table.columns.size(); ++column) {
    lines[0].push_back(write(one_line(table.columns[column]), false));
    for (size_t row = 0; row < table.rows.size(); ++row) {
      lines[row + 1].push_back(
          write(one_line(table.rows[row][column]) + arrow(table, row, column), marked(table, row, column)));
    }
  }
  return lines;
}

std::string markdown_escaped(const std::string& text) {
  const auto is_word = [&text](size_t at) {
    return at < text.size() && std::isalnum(static_cast<uint8_t>(text[at]));
  };
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    // An underscore within a word means nothing, and names are full of them. "&" matters where an entity may begin.
    const bool special = text[i] == '_' ? !(i > 0 && is_word(i - 1) && is_word(i + 1))
                         : text[i] == '&'
                             ? is_word(i + 1) || (i + 1 < text.size() && text[i + 1] == '#')
                             : std::string_view("\\`*|<~$[").find(text[i]) != std::string_view::npos;
    if (special) result += '\\';
    result += text[i];
  }
  return result;
}

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(' ');
  return first == std::string::npos ? "" : without_spaces_at_the_end(text.substr(first));
}

std::string markdown_bold(const std::string& text) { return text.empty() ? "" : "**" + text + "**"; }

std::string latex_escaped(std::string_view text) {
  static constexpr std::pair<std::string_view, std::string_view> kEscapes[] = {
      {"\\", "\\textbackslash{}"},
      {"~", "\\textasciitilde{}"},
      {"^", "\\textasciicircum{}"},
      {"%", "\\%"},
      {"&", "\\&"},
      {"_", "\\_"},
      {"#", "\\#"},
      {"$", "\\$"},
      {"{", "\\{"},
      {"}", "\\}"},
      // LaTeX's default font has other characters in these places.
      {"<", "\\textless{}"},
      {">", "\\textgreater{}"},
      {"|", "\\textbar{}"},
      // Behind \\ these would be its arguments.
      {"[", "{[}"},
      {"*", "{*}"},
      {"--", "-{}-"},  // no dash
      {"Δ", "$\\Delta$"},
      {"±", "$\\pm$"},
      {"−", "$-$"},
      {"×", "$\\times$"},
      {"·", "$\\cdot$"},
      {"≤", "$\\leq$"},
      {"≥", "$\\geq$"},
      {"≈", "$\\approx$"},
      {"∞", "$\\infty$"},
      {"→", "$\\to$"},
      {"↑", "$\\uparrow$"},
      {"↓", "$\\downarrow$"},
      {"α", "$\\alpha$"},
      {"γ", "$\\gamma$"},
      {"λ", "$\\lambda$"},
      {"μ", "$\\mu$"},
      {"θ", "$\\theta$"},
      {"₀", "$_0$"},
      {"²", "$^2$"},
  };
  std::string result;
  while (!text.empty()) {
    const auto* found = std::find_if(std::begin(kEscapes), std::end(kEscapes),
                                     [text](const auto& each) { return text.starts_with(each.first); });
    const bool escaped = found != std::end(kEscapes);
    result += escaped ? found->second : text.substr(0, 1);
    text.remove_prefix(escaped ? found->first.size() : 1);
  }
  return result;
}

}  // namespace

std::string to_text(const Table& table) {
  check(table);
  auto lines = written(table, [](const std::string& cell, bool mark) { return mark ? cell + '*' : cell; });
  for (size_t column = 1; column < table.columns.size(); ++column) {
    const auto here = [column](const auto& each) { return each.column == column; };
    if (std::none_of(table.arrows.begin(), table.arrows.end(), here)) continue;
    lines[0][column] += ' ';
    for (size_t row = 0; row < table.rows.size(); ++row) {
      if (!arrow(table, row, column).empty()) continue;
      auto& cell = lines[row + 1][column];
      cell.insert(marked(table, row, column) ? cell.size() - 1 : cell.size(), " ");
    }
  }
  // The figures stand under each other, whether marked or not.
  for (size_t column = 1; column < table.columns.size(); ++column) {
    const auto here = [column](const auto& cell) { return cell.second == column; };
    if (std::none_of(table.marked.begin(), table.marked.end(), here)) continue;
    lines[0][column] += ' ';
    for (size_t row = 0; row < table.rows.size(); ++row) {
      if (!marked(table, row, column)) lines[row + 1][column] += ' ';
    }
  }
  auto columns = widths(lines);
  constexpr size_t kGap = 2;
  std::string names, lines_below;
  if (!table.groups.empty()) names = lines_below = std::string(columns[0], ' ');
  size_t column = 1;
  for (const auto& [group, span] : table.groups) {
    const auto name = one_line(group);
    size_t room = kGap * static_cast<size_t>(span - 1);
    for (int i = 0; i < span; ++i) room += columns[column + static_cast<size_t>(i)];
    column += static_cast<size_t>(span);
    if (room < width(name)) {
      columns[column - 1] += width(name) - room;
      room = width(name);
    }
    const std::string gap(kGap, ' ');
    names += gap + padded(padded(name, width(name) + (room - width(name)) / 2, false), room, true);
    lines_below += gap + std::string(room, name.empty() ? ' ' : '-');
  }

  const auto line_of = [&columns](const std::vector<std::string>& cells) {
    std::string line = padded(cells[0], columns[0], true);
    for (size_t i = 1; i < cells.size(); ++i)
      line += std::string(kGap, ' ') + padded(cells[i], columns[i], false);
    return without_spaces_at_the_end(line) + '\n';
  };
  size_t total = kGap * (columns.size() - 1);
  for (const size_t each : columns) total += each;
  const std::string rule = std::string(total, '-') + '\n';

  std::string text;
  if (!table.caption.empty()) text += one_line(table.caption) + "\n\n";
  if (!table.groups.empty()) {
    text += without_spaces_at_the_end(names) + '\n' + without_spaces_at_the_end(lines_below) + '\n';
  }
  text += line_of(lines[0]) + rule;
  for (size_t row = 0; row < table.rows.size(); ++row) {
    if (ruled(table, row)) text += rule;
    text += line_of(lines[row + 1]);
  }
  return table.note.empty() ? text : text + "\n" + one_line(table.note) + "\n";
}

std::string to_markdown(const Table& table) {
  check(table);
  auto lines = written(table, [](const std::string& cell, bool mark) {
    const auto text = markdown_escaped(trimmed(cell));
    return mark ? markdown_bold(text) : text;
  });
  size_t column = 1;
  for (const auto& [group, span] : table.groups) {
    for (int i = 0; i < span; ++i, ++column) {
      if (!group.empty()) lines[0][column].insert(0, markdown_escaped(trimmed(one_line(group))) + ": ");
    }
  }
  auto columns = widths(lines);
  for (auto& each : columns) each = std::max<size_t>(each, 3);

  std::string text;
  if (!table.caption.empty())
    text += markdown_bold(markdown_escaped(trimmed(one_line(table.caption)))) + "\n\n";
  for (size_t line = 0; line < lines.size(); ++line) {
    for (size_t i = 0; i < columns.size(); ++i)
      text += "| " + padded(lines[line][i], columns[i], i == 0) + ' ';
    text += "|\n";
    if (line > 0) continue;
    for (size_t i = 0; i < columns.size(); ++i) {
      const std::string dashes(columns[i] + 1, '-');
      text += i == 0 ? "|:" + dashes : "|" + dashes + ":";
    }
    text += "|\n";
  }
  return table.note.empty() ? text : text + "\n" + markdown_escaped(one_line(table.note)) + "\n";
}

std::string to_latex(const Table& table) {
  check(table);
  const auto lines = written(table, [](const std::string& cell, bool mark) {
    return mark ? "\\textbf{" + latex_escaped(cell) + "}" : latex_escaped(cell);
  });
  std::string text = "% \\usepackage{booktabs}\n";
  if (!table.caption.empty()) {
    text += fmt::format("\\begin{{table}}\n\\centering\n\\caption{{{}}}\n",
                        latex_escaped(one_line(table.caption)));
  }
  text += fmt::format("\\begin{{tabular}}{{l{}}}\n\\toprule\n", std::string(table.columns.size() - 1, 'r'));
  std::string names, rules;
  int column = 2;
  for (const auto& [group, span] : table.groups) {
    names += fmt::format(" & \\multicolumn{{{}}}{{c}}{{{}}}", span, latex_escaped(one_line(group)));
    if (!group.empty()) rules += fmt::format("\\cmidrule(lr){{{}-{}}}\n", column, column + span - 1);
    column += span;
  }
  if (!table.groups.empty()) text += names + " \\\\\n" + rules;
  for (size_t line = 0; line < lines.size(); ++line) {
    if (line == 1 || (line > 1 && ruled(table, line - 1))) text += "\\midrule\n";
    text += fmt::format("{} \\\\\n", fmt::join(lines[line], " & "));
  }
  text += "\\bottomrule\n";
  if (!table.note.empty())
    text += fmt::format("\\multicolumn{{{}}}{{l}}{{\\footnotesize {}}} \\\\\n", table.columns.size(),
                        latex_escaped(one_line(table.note)));
  text += "\\end{tabular}\n";
  return table.caption.empty() ? text : text + "\\end{table}\n";
}

std::string to_html(const Table& table) {
  check(table);
  // A long text among numbers may break its lines; nothing else may.
  const auto class_of = [&table](size_t row, size_t column) {
    std::string names = marked(table, row, column) ? "marked" : "";
    if (width(table.rows[row][column]) > 36) names += names.empty() ? "long" : " long";
    return names.empty() ? "" : fmt::format(" class=\"{}\"", names);
  };
  const auto lines = written(table, [](const std::string& cell, bool mark) {
    const auto text = svg::escaped(cell);
    return mark ? "<strong>" + text + "</strong>" : text;
  });
  const auto caption = svg::escaped(one_line(table.caption));
  std::string html = "<figure class=\"table\">\n";
  if (!caption.empty()) html += "<figcaption>" + caption + "</figcaption>\n";
  html += fmt::format(
      "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{}\">\n<table>\n<thead>\n",
      caption.empty() ? "Table" : caption);
  if (!table.groups.empty()) {
    html += "<tr class=\"groups\"><td></td>";
    for (const auto& [group, span] : table.groups) {
      html += group.empty() ? fmt::format("<td colspan=\"{}\"></td>", span)
                            : fmt::format("<th colspan=\"{}\" scope=\"colgroup\"><span>{}</span></th>", span,
                                          svg::escaped(one_line(group)));
    }
    html += "</tr>\n";
  }
  html += "<tr>";
  for (const auto& name : lines[0]) html += "<th scope=\"col\">" + name + "</th>";
  html += "</tr>\n</thead>\n<tbody>\n";
  for (size_t row = 0; row < table.rows.size(); ++row) {
    html += ruled(table, row) ? "<tr class=\"ruled\">" : "<tr>";
    for (size_t column = 0; column < table.columns.size(); ++column) {
      const auto* const tag = column == 0 ? "th" : "td";
      html += fmt::format("<{}{}{}>{}</{}>", tag, column == 0 ? " scope=\"row\"" : "", class_of(row, column),
                          lines[row + 1][column], tag);
    }
    html += "</tr>\n";
  }
  html += "</tbody>\n</table>\n</div>\n";
  if (!table.note.empty()) html += "<p class=\"note\">" + svg::escaped(one_line(table.note)) + "</p>\n";
  return html + "</figure>\n";
}

std::string to_csv(const Table& table) {
  check(table);
  const auto line_of = [](const std::vector<std::string>& cells) {
    std::string line;
    for (size_t i = 0; i < cells.size(); ++i) line += (i > 0 ? "," : "") + csv_field(cells[i]);
    return line + '\n';
  };
  std::string text = line_of(table.columns);
  for (const auto& row : table.rows) text += line_of(row);
  return text;
}

std::string csv_field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

}  // namespace tpgm
