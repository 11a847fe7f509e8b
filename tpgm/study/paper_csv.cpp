#include "tpgm/study/paper_csv.h"

#include <algorithm>
#include <set>

#include "tpgm/base/numbers.h"
#include "tpgm/base/untrusted.h"

namespace tpgm {
namespace {

// Fields may be in quotes, which are doubled within them.
std::vector<std::string> csv_fields(std::string_view line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') {
      fields.back() += line[++i];
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  for (auto& field : fields) field = without_blanks(field);
  return fields;
}

std::optional<PaperNumber> parse_cell(const std::string& text, int line) {
  if (text.empty()) return std::nullopt;
  const size_t at = text.find('(');
  const auto mean = parse_number<double>(without_blanks(text.substr(0, at)));
  std::optional<double> deviation;
  bool fine = mean.has_value();
  if (at != std::string::npos) {
    fine = fine && text.back() == ')';
    deviation = parse_number<double>(without_blanks(text.substr(at + 1, text.size() - at - 2)));
    fine = fine && deviation.has_value();
  }
  require(fine, "line {}: '{}' is not a number; expected 80.93, 80.93 (0.08) or nothing", line,
          printable(text));
  return PaperNumber{*mean, deviation};
}

void parse_variant(PaperCsv::Row& row) {
  const std::string_view variant = row.variant;
  const size_t colon = std::min(variant.find(':'), variant.size());
  row.recipe = variant.substr(0, colon);
  for (size_t begin = colon + 1; begin < variant.size();) {
    const size_t end = std::min(variant.find(',', begin), variant.size());
    const auto pair = variant.substr(begin, end - begin);
    const size_t at = pair.find('=');
    require(at != std::string_view::npos && at > 0, "line {}: '{}': expected KEY=VALUE", row.line,
            printable(pair));
    std::string key(pair.substr(0, at));
    std::replace(key.begin(), key.end(), '_', '-');
    row.settings.emplace_back(std::move(key), pair.substr(at + 1));
    begin = end + 1;
  }
}

std::vector<std::pair<std::string, std::string>> parse_tests(const std::vector<std::string>& fields,
                                                             int line) {
  require(fields.size() >= 2 && fields[0] == "row" && fields[1] == "recipe",
          "line {}: expected row,recipe,TEST=TITLE,...", line);
  std::vector<std::pair<std::string, std::string>> tests;
  std::set<std::string> names;
  for (size_t i = 2; i < fields.size(); ++i) {
    const size_t at = fields[i].find('=');
    const auto name = fields[i].substr(0, at);
    require(!name.empty() && names.insert(name).second, "line {}: a test without a name, or there twice",
            line);
    tests.emplace_back(name, at == std::string::npos ? name : fields[i].substr(at + 1));
  }
  return tests;
}

}  // namespace

std::string without_blanks(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin));
}

PaperCsv parse_paper_csv(std::string_view text) {
  PaperCsv table;
  int number = 0;
  bool header = true;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const auto line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (without_blanks(line).empty() || line.starts_with('#')) continue;
    const auto fields = csv_fields(line);
    if (header) {
      table.tests = parse_tests(fields, number);
      header = false;
      continue;
    }
    const size_t columns = table.tests.size() + 2;
    require(fields.size() == columns,
            "line {}: {} fields under {} columns; put a recipe with several options in quotes: "
            "\"tpgm:mu=0.1,norm=l2\"",
            number, fields.size(), columns);
    require(!fields[0].empty() && !fields[1].empty(), "line {}: a row needs a label and a recipe", number);
    auto& row = table.rows.emplace_back();
    row.line = number;
    row.label = fields[0];
    row.variant = fields[1];
    parse_variant(row);
    for (size_t i = 2; i < columns; ++i) row.numbers.push_back(parse_cell(fields[i], number));
  }
  require(!table.rows.empty(), "has no rows");
  return table;
}

}  // namespace tpgm
