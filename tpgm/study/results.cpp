#include "tpgm/study/results.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tpgm/base/call.h"

namespace tpgm {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

std::string percent(double value) {
  if (!std::isfinite(value)) return "–";
  const auto text = fmt::format("{:.2f}", value);
  return text == "-0.00" ? "0.00" : text;
}

std::string with_deviation(const Score& score) {
  return score.values.size() > 1 ? fmt::format("{:.2f} ({:.2f})", score.mean(), score.deviation())
                                 : percent(score.mean());
}

double change(double value, double first) { return 100 * (value - first) / first; }

}  // namespace

double Score::mean() const {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? kNone : sum / static_cast<double>(values.size());
}

double Score::deviation() const {
  if (values.size() < 2) return 0;
  double sum = 0;
  for (const double value : values) sum += (value - mean()) * (value - mean());
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

double ResultRow::average(bool id) const {
  double sum = 0, count = 0;
  for (const auto& score : scores) {
    if (score.id != id) continue;
    sum += score.mean();
    ++count;
  }
  return count > 0 ? sum / count : kNone;
}

std::vector<Score> scores_of(const std::vector<RunResult>& results) {
  std::vector<Score> scores;
  for (const auto& result : results) {
    TORCH_CHECK(result.tests.size() == results.front().tests.size(),
                "[scores_of] runs of one row were tested on different data");
    for (size_t i = 0; i < result.tests.size(); ++i) {
      const auto& test = result.tests[i];
      if (&result == &results.front()) scores.push_back({test.name, test.id, {}});
      TORCH_CHECK(i < scores.size() && scores[i].test == test.name,
                  "[scores_of] runs of one row were tested on different data");
      scores[i].values.push_back(test.top1);
    }
  }
  return scores;
}

std::optional<size_t> best_of_column(const std::vector<std::vector<double>>& rows, size_t column) {
  std::optional<size_t> best;
  for (size_t row = 0; row < rows.size(); ++row) {
    if (std::isfinite(rows[row][column]) && (!best || rows[row][column] > rows[*best][column])) best = row;
  }
  const auto alike = std::count_if(rows.begin(), rows.end(), [&](const auto& row) {
    return best && percent(row[column]) == percent(rows[*best][column]);
  });
  return alike == 1 ? best : std::nullopt;
}

void compare_with(const Hits& reference, const Hits& row, size_t line,
                  const std::vector<std::vector<std::string>>& tests, Table& table) {
  for (size_t column = 0; column < tests.size(); ++column) {
    const auto difference = paired_difference(reference, row, tests[column]);
    if (difference && difference->significant())
      table.arrows.push_back({line, column + 1, difference->points > 0});
  }
}

std::string arrow_note(const std::string& reference, size_t seeds) {
  return fmt::format("↑ ↓: differs from {} by more than the 95 % interval, on the same images{}", reference,
                     seeds > 1 ? fmt::format(" and over up to {} seeds", seeds) : "; one seed");
}

Table results_table(const std::vector<ResultRow>& rows, const std::string& caption,
                    const std::vector<std::pair<std::string, std::string>>& titles, size_t reference) try {
  Table table;
  table.caption = caption;
  const auto first =
      std::find_if(rows.begin(), rows.end(), [](const auto& row) { return !row.scores.empty(); });
  TORCH_CHECK(first != rows.end(), "no row has any numbers");
  std::vector<size_t> order;  // in distribution first
  for (const bool id : {true, false}) {
    for (size_t i = 0; i < first->scores.size(); ++i) {
      if (first->scores[i].id == id) order.push_back(i);
    }
  }
  const auto ids =
      std::count_if(first->scores.begin(), first->scores.end(), [](const auto& s) { return s.id; });
  const auto others = static_cast<std::ptrdiff_t>(order.size()) - ids;
  const bool changes = rows.size() > 1 && !rows.at(reference).scores.empty();

  table.columns = {""};
  for (const size_t i : order) {
    std::string title = first->scores[i].test;
    for (const auto& [name, other] : titles) {
      if (name == title) title = other;
    }
    table.columns.push_back(title);
  }
  // What each of the last columns shows: of which tests, and whether as a change.
  std::vector<std::pair<bool, bool>> statistics;
  if (ids > 1) statistics.emplace_back(true, false);
  if (others > 1) statistics.emplace_back(false, false);
  if (changes && ids > 0) statistics.emplace_back(true, true);
  if (changes && others > 0) statistics.emplace_back(false, true);
  const bool both = ids > 0 && others > 0;
  for (const auto& [id, relative] : statistics)
    table.columns.push_back(
        fmt::format("{}{}", both ? (id ? "ID " : "OOD ") : "", relative ? "Δ (%)" : "avg."));
  if (both) {
    table.groups = {{"ID", static_cast<int>(ids)}, {"OOD", static_cast<int>(others)}};
    if (!statistics.empty()) table.groups.emplace_back("Statistics", static_cast<int>(statistics.size()));
  }

  std::vector<std::vector<std::string>> tests_of_columns;
  for (const size_t i : order) tests_of_columns.push_back({first->scores[i].test});
  for (const auto& [id, relative] : statistics) {
    auto& tests = tests_of_columns.emplace_back();
    for (const size_t i : order) {
      if (!relative && first->scores[i].id == id) tests.push_back(first->scores[i].test);
    }
  }

  std::vector<std::vector<double>> numbers;
  for (const auto& row : rows) {
    std::vector<std::string> cells = {row.name};
    auto& values = numbers.emplace_back();
    TORCH_CHECK(row.scores.empty() || row.scores.size() == order.size(), "'", row.name,
                "' was tested on other data than '", first->name, "'");
    for (const size_t i : order) {
      TORCH_CHECK(row.scores.empty() || row.scores[i].test == first->scores[i].test, "'", row.name,
                  "' was tested on other data than '", first->name, "'");
      cells.push_back(row.scores.empty() ? "failed" : with_deviation(row.scores[i]));
      values.push_back(row.scores.empty() ? kNone : row.scores[i].mean());
    }
    for (const auto& [id, relative] : statistics) {
      const double average = row.average(id);
      values.push_back(relative ? change(average, rows[reference].average(id)) : average);
      cells.push_back(percent(values.back()));
    }
    if (changes && &row != &rows[reference])
      compare_with(rows[reference].hits, row.hits, table.rows.size(), tests_of_columns, table);
    table.rows.push_back(std::move(cells));
  }
  size_t seeds = 0;
  for (const auto& row : rows) seeds = std::max(seeds, row.hits.seeds());
  if (!table.arrows.empty()) table.note = arrow_note(rows[reference].name, seeds);
  for (size_t column = 0; rows.size() > 1 && column < numbers.front().size(); ++column) {
    if (const auto row = best_of_column(numbers, column)) table.marked.emplace_back(*row, column + 1);
  }
  return table;
} catch (...) {
  rethrow_from("results_table");
}

}  // namespace tpgm
