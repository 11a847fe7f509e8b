// Accuracies of several models on several tests, as the paper's tables have them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tpgm/report/table.h"
#include "tpgm/study/run_record.h"

namespace tpgm {

/// Of one test: in per cent, over one or several seeds.
struct Score {
  std::string test;
  bool id = false;
  std::vector<double> values;

  double mean() const;
  /// Of the population that the seeds are drawn from (n − 1); 0 of one.
  double deviation() const;
};

struct ResultRow {
  std::string name;
  std::vector<Score> scores;  ///< empty: the row failed, and has no numbers
  /// Over the tests that are (or are not) in-distribution; NaN without any.
  double average(bool id) const;
};

/// The scores of runs of one row, one for each seed.
std::vector<Score> scores_of(const std::vector<RunResult>& results);

/// Tests in distribution, tests out of it, averages, and changes relative to the row `reference` in per cent.
/// Every row has the same tests. The best of each column is marked. `titles` replace the names of tests.
Table results_table(const std::vector<ResultRow>& rows, const std::string& caption = "",
                    const std::vector<std::pair<std::string, std::string>>& titles = {},
                    size_t reference = 0);

}  // namespace tpgm
