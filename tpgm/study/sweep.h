// A sweep: every combination of some options' values, each for several seeds, and the best of them.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tpgm/report/table.h"
#include "tpgm/study/cost.h"
#include "tpgm/study/jobs.h"
#include "tpgm/study/results.h"
#include "tpgm/train/recipe.h"

namespace tpgm {

/// Every combination of recipe.sweep ("lr=1e-3,1e-2") and recipe.seeds, in folders below settings["output"].
/// Throws for keys that are unknown or swept twice, and for values that make_options() refuses.
std::vector<Job> expand(const Recipe& recipe);

/// Throws if there are several combinations for one method and no selection data to
/// choose by: known before hours of training, not after.
void check_choosable(const std::vector<Job>& jobs, DataSizes& sizes);

/// Of results that differ in seeds alone, grouped by what was swept: the group whose mean accuracy on
/// selection data is the highest among those in which no run failed (the first of equals); empty if all have
/// failures. Throws if there are several and no accuracies to choose by.
std::vector<JobResult> best_of(const std::vector<JobResult>& results);

/// Mean accuracy on selection data, in per cent; NaN if there is none.
double mean_selection(const std::vector<JobResult>& group);

/// "lr=0.01, mu=0.1"; empty for none.
std::string chosen_text(const Settings& swept);

/// A method, by the best of its combinations.
struct SweepRow {
  std::string method;
  std::vector<JobResult> best;  ///< a run for each seed; empty: no combination is without a failed run
  std::vector<Score> scores;    ///< of those runs
  std::string chosen;           ///< their chosen_text(), without the method

  /// "ft: lr=0.01; 2 seeds; selection 65.00 %".
  std::string note() const;
};

struct SweepResult {
  std::vector<JobResult> runs;
  std::vector<SweepRow> rows;  ///< in the order of the sweep

  size_t failed() const;
  /// A row for each method; nothing where none has numbers.
  std::optional<Table> table() const;
};

/// Makes the runs that expand() gave and chooses among them. Beside the runs it leaves sweep.csv, with every
/// run, and where there is a table() table.tex, table.md and table.csv.
SweepResult run_sweep(const std::vector<Job>& jobs, const JobOptions& options);

nlohmann::ordered_json to_json(const SweepResult& result);

}  // namespace tpgm
