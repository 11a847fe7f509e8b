// Columns, cells and differences.
#include "tpgm/study/comparison.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "tpgm/io/file.h"

namespace tpgm {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();

struct Test {
  std::string name, title;
  bool id = false;
  std::optional<size_t> paper;  // which of the paper's columns
};

const Score* find_score(const ComparedRow& row, const std::string& test) {
  for (const auto& score : row.scores) {
    if (score.test == test) return &score;
  }
  return nullptr;
}

// The paper's, then those we have beside them; within each kind in that order.
std::vector<Test> tests_of(const PaperComparison& comparison) {
  std::vector<Test> tests;
  for (size_t i = 0; i < comparison.tests.size(); ++i)
    tests.push_back({comparison.tests[i].first, comparison.tests[i].second, false, i});
  for (const auto& row : comparison.rows) {
    for (const auto& score : row.scores) {
      auto at = std::find_if(tests.begin(), tests.end(), [&](const Test& t) { return t.name == score.test; });
      if (at == tests.end()) at = tests.insert(tests.end(), {score.test, score.test, false, std::nullopt});
      at->id = score.id;
    }
  }
  std::stable_partition(tests.begin(), tests.end(), [](const Test& test) { return test.id; });
  return tests;
}

double ours(const ComparedRow& row, const Test& test) {
  const auto* score = find_score(row, test.name);
  return score == nullptr ? kMissing : score->mean();
}

std::optional<PaperNumber> paper_number(const ComparedRow& row, const Test& test) {
  return test.paper && *test.paper < row.numbers.size() ? row.numbers[*test.paper] : std::nullopt;
}

double paper(const ComparedRow& row, const Test& test) {
  const auto number = paper_number(row, test);
  return number ? number->mean : kMissing;
}

std::string text(double value) { return std::isfinite(value) ? fmt::format("{:.2f}", value) : "–"; }

std::string text(double value, std::optional<double> deviation) {
  return deviation ? fmt::format("{:.2f} ({:.2f})", value, *deviation) : text(value);
}

std::string signed_text(double value) {
  if (!std::isfinite(value)) return "–";
  return fmt::format("{}{:.2f}", value < -0.005 ? "−" : "+", std::abs(value));
}

using Number = std::function<double(const ComparedRow&, const Test&)>;

double average(const ComparedRow& row, const std::vector<Test>& tests, bool id, const Number& number) {
  double sum = 0, count = 0;
  for (const auto& test : tests) {
    if (test.id != id) continue;
    sum += number(row, test);
    ++count;
  }
  return count > 0 ? sum / count : kMissing;
}

// One of the last columns: an average over tests, or its change against the first row in percent.
struct Statistic {
  bool id, change;

  double of(const PaperComparison& all, const ComparedRow& row, const std::vector<Test>& tests,
            const Number& number) const {
    const double value = average(row, tests, id, number);
    if (!change) return value;
    const double first = average(all.rows.front(), tests, id, number);
    return 100 * (value - first) / first;
  }
};

std::string markdown(const PaperComparison& comparison, const Table& table, const std::string& command) {
  std::string text = fmt::format("# {}\n\n{}\n", comparison.name, to_markdown(table));
  text += fmt::format("- `{}`\n", command);
  for (const auto& fact : comparison.facts) text += fmt::format("- {}\n", fact);
  std::string chosen;
  for (const auto& row : comparison.rows) {
    if (!row.chosen.empty())
      chosen += fmt::format("{}{}: {}", chosen.empty() ? "" : "; ", row.label, row.chosen);
  }
  if (!chosen.empty()) text += fmt::format("- Chosen on selection data: {}\n", chosen);
  for (const auto& row : comparison.rows) {
    if (!row.error.empty()) text += fmt::format("- {} failed: {}\n", row.label, row.error);
  }
  return text;
}

}  // namespace

Table to_table(const PaperComparison& comparison) {
  const bool any = std::any_of(comparison.rows.begin(), comparison.rows.end(),
                               [](const auto& row) { return !row.scores.empty(); });
  TORCH_CHECK(any, "[to_table] no row of '", comparison.name, "' has any numbers");
  const auto tests = tests_of(comparison);
  const auto ids = std::count_if(tests.begin(), tests.end(), [](const Test& test) { return test.id; });
  const auto others = static_cast<std::ptrdiff_t>(tests.size()) - ids;
  std::vector<Statistic> statistics;
  if (ids > 1) statistics.push_back({true, false});
  if (others > 1) statistics.push_back({false, false});
  if (comparison.rows.size() > 1 && ids > 0) statistics.push_back({true, true});
  if (comparison.rows.size() > 1 && others > 0) statistics.push_back({false, true});

  Table table;
  table.columns = {""};
  for (const auto& test : tests) table.columns.push_back(test.title);
  const bool both = ids > 0 && others > 0;
  for (const auto& [id, change] : statistics)
    table.columns.push_back(
        fmt::format("{}{}", both ? (id ? "ID " : "OOD ") : "", change ? "Δ (%)" : "avg."));
  if (both) {
    table.groups = {{"ID", static_cast<int>(ids)}, {"OOD", static_cast<int>(others)}};
    if (!statistics.empty()) table.groups.emplace_back("Statistics", static_cast<int>(statistics.size()));
  }

  std::vector<std::vector<std::string>> tests_of_columns;
  for (const auto& test : tests) tests_of_columns.push_back({test.name});
  for (const auto& statistic : statistics) {
    auto& names = tests_of_columns.emplace_back();
    for (const auto& test : tests) {
      if (!statistic.change && test.id == statistic.id) names.push_back(test.name);
    }
  }

  std::vector<std::vector<double>> values;  // ours, for marks
  std::vector<size_t> lines;                // in which they are
  for (const auto& row : comparison.rows) {
    const bool known =
        std::any_of(row.numbers.begin(), row.numbers.end(), [](const auto& n) { return n.has_value(); });
    if (known && !table.rows.empty()) table.rules.push_back(table.rows.size());
    std::vector<std::string> we = {row.label}, they = {"  paper"}, difference = {"  difference"};
    auto& numbers = values.emplace_back();
    for (const auto& test : tests) {
      const auto* score = find_score(row, test.name);
      const auto number = paper_number(row, test);
      numbers.push_back(ours(row, test));
      we.push_back(row.scores.empty() ? "failed"
                   : score == nullptr
                       ? "–"
                       : text(score->mean(),
                              score->values.size() > 1 ? std::optional(score->deviation()) : std::nullopt));
      they.push_back(number ? text(number->mean, number->deviation) : "–");
      difference.push_back(signed_text(ours(row, test) - paper(row, test)));
    }
    for (const auto& statistic : statistics) {
      const double mine = statistic.of(comparison, row, tests, ours);
      const double theirs = statistic.of(comparison, row, tests, paper);
      numbers.push_back(mine);
      we.push_back(text(mine));
      they.push_back(text(theirs));
      difference.push_back(statistic.change ? "" : signed_text(mine - theirs));
    }
    lines.push_back(table.rows.size());
    const auto& plain = comparison.rows[comparison.plain];
    if (&row != &plain) compare_with(plain.hits, row.hits, lines.back(), tests_of_columns, table);
    table.rows.push_back(std::move(we));
    if (!known) continue;
    table.rows.push_back(std::move(they));
    table.rows.push_back(std::move(difference));
  }
  size_t seeds = 0;
  for (const auto& row : comparison.rows) seeds = std::max(seeds, row.seeds);
  if (!table.arrows.empty()) table.note = arrow_note(comparison.rows[comparison.plain].label, seeds);
  for (size_t column = 0; values.size() > 1 && column < values.front().size(); ++column) {
    if (const auto row = best_of_column(values, column)) table.marked.emplace_back(lines[*row], column + 1);
  }
  return table;
}

std::string long_csv(const PaperComparison& comparison) {
  Table table;
  table.columns = {"row", "recipe", "test", "id", "mean", "std", "seeds", "paper", "paper_std", "difference"};
  const auto plain = [](double value) { return std::isfinite(value) ? fmt::format("{}", value) : ""; };
  for (const auto& row : comparison.rows) {
    for (const auto& test : tests_of(comparison)) {
      const auto* score = find_score(row, test.name);
      const auto number = paper_number(row, test);
      table.rows.push_back({row.label, row.variant, test.name, test.id ? "true" : "false",
                            plain(ours(row, test)), score ? plain(score->deviation()) : "",
                            fmt::format("{}", row.seeds), number ? plain(number->mean) : "",
                            number && number->deviation ? plain(*number->deviation) : "",
                            number && score ? fmt::format("{:.4f}", score->mean() - number->mean) : ""});
    }
  }
  return to_csv(table);
}

void write_tables(const PaperComparison& comparison, const std::filesystem::path& folder,
                  const std::string& command) {
  const auto table = to_table(comparison);
  remove_leftovers(folder);
  write_file(folder / "table.md", markdown(comparison, table, command));
  write_file(folder / "table.tex", fmt::format("% {}\n{}", command, to_latex(table)));
  write_file(folder / "table.csv", long_csv(comparison));
}

Json to_json(const PaperComparison& comparison) {
  const auto json = [](double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); };
  Json rows = Json::array();
  for (const auto& row : comparison.rows) {
    Json tests = Json::array();
    for (const auto& test : tests_of(comparison)) {
      const auto* score = find_score(row, test.name);
      const auto number = paper_number(row, test);
      tests.push_back({{"name", test.name},
                       {"id", test.id},
                       {"mean", json(ours(row, test))},
                       {"std", score ? json(score->deviation()) : Json(nullptr)},
                       {"values", score ? Json(score->values) : Json::array()},
                       {"paper", json(paper(row, test))},
                       {"paper_std", number && number->deviation ? Json(*number->deviation) : Json(nullptr)},
                       {"difference", json(ours(row, test) - paper(row, test))}});
    }
    rows.push_back({{"row", row.label},
                    {"recipe", row.variant},
                    {"chosen", row.chosen},
                    {"seeds", row.seeds},
                    {"error", row.error.empty() ? Json(nullptr) : Json(row.error)},
                    {"tests", tests}});
  }
  return {{"name", comparison.name}, {"facts", comparison.facts}, {"rows", rows}};
}

}  // namespace tpgm
