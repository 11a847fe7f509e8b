// Tables of accuracies: several models on several tests, with averages and changes, as in the paper.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tpgm/report/table.h"
#include "tpgm/study/paired.h"
#include "tpgm/study/run_record.h"

namespace tpgm {

/// The accuracy on one test in percent, for one or several seeds.
struct Score {
  std::string test;
  bool id = false;
  std::vector<double> values;

  double mean() const;
  /// The sample standard deviation (n − 1); 0 for one seed.
  double deviation() const;
};

struct ResultRow {
  std::string name;
  std::vector<Score> scores;  ///< empty: the row failed
  Hits hits = {};             ///< of its runs; may be unknown
  /// The mean over the tests that are (or are not) in-distribution; NaN without any.
  double average(bool id) const;
};

/// The scores of the runs of one row, one run for each seed.
std::vector<Score> scores_of(const std::vector<RunResult>& results);

/// The row with the largest number in a column; nothing without numbers, or if another is printed alike.
std::optional<size_t> best_of_column(const std::vector<std::vector<double>>& rows, size_t column);

/// Adds arrows to a table where the row of a cell differs significantly from the reference, and a note that says
/// so. `line` is the row of the table; each cell has the tests of its column, none for a column without arrows.
/// Does nothing if paired_difference() is not known.
void compare_with(const Hits& reference, const Hits& row, size_t line,
                  const std::vector<std::vector<std::string>>& tests, Table& table);
/// The note: what the arrows compare with, over how many seeds at most.
std::string arrow_note(const std::string& reference, size_t seeds);

/// Columns: in-distribution tests, other tests, averages, and changes in percent relative to the row
/// `reference`. All rows must have the same tests. The best of each column is marked, unless several are.
/// Accuracies that differ significantly from those of the row `reference` (see compare_with()) have an arrow.
/// `titles` replace the names of tests.
Table results_table(const std::vector<ResultRow>& rows, const std::string& caption = "",
                    const std::vector<std::pair<std::string, std::string>>& titles = {},
                    size_t reference = 0);

}  // namespace tpgm
