// A sweep: all combinations of values of some options, each for several seeds, and the best of them.
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

/// All combinations of recipe.sweep ("lr=1e-3,1e-2") and recipe.seeds, in folders below settings["output"].
/// Throws for keys that are unknown or swept twice, and for values that make_options() refuses.
std::vector<Job> expand(const Recipe& recipe);

/// Throws if a method has several combinations and there are no selection data to choose by: an error before
/// hours of training, not after them.
void check_choosable(const std::vector<Job>& jobs, DataSizes& sizes);

/// Groups results that differ only in the seed, and returns the group with the highest mean accuracy on
/// selection data (the first of equals). Groups with a failed run are left out; empty if all have one. Throws
/// if there are several groups and no accuracies to choose by.
///
/// With Choose::kOneSe, returns instead the group nearest to the anchor (by the mean of
/// RunResult::relative_distance) among those whose mean accuracy is within one standard_error() of the highest.
/// Methods without an anchor have no distance: the highest is returned then.
std::vector<JobResult> best_of(const std::vector<JobResult>& results, Choose choose = Choose::kBest);

/// Mean accuracy on selection data, in percent; NaN if there is none.
double mean_selection(const std::vector<JobResult>& group);

/// The standard error of mean_selection() in percent: that of a share of so many images, and that of a mean
/// over so many seeds, as independent errors. All seeds have the same images, so more seeds do not reduce the
/// first. Results of older versions have no number of images, and only the second.
double standard_error(const std::vector<JobResult>& group);

/// "lr=0.01, mu=0.1"; empty for none.
std::string chosen_text(const Settings& swept);

/// The best combination of a method.
struct SweepRow {
  std::string method;
  std::vector<JobResult> best;    ///< a run for each seed; empty: every combination has a failed run
  std::vector<Score> scores;      ///< of those runs
  std::string chosen;             ///< their chosen_text(), without the method
  Choose choose = Choose::kBest;  ///< how they were chosen: kBest also where there are no distances

  /// "ft: lr=0.01; 2 seeds; selection 65.00 %"; " (one-se)" behind it with that rule.
  std::string note() const;
};

struct SweepResult {
  std::vector<JobResult> runs;
  std::vector<SweepRow> rows;  ///< in the order of the sweep

  size_t failed() const;
  /// A row for each method; empty if no method has numbers.
  std::optional<Table> table() const;
};

/// Makes the runs of expand() and chooses the best. Writes sweep.csv with all runs beside them, and
/// table.tex, table.md and table.csv if there is a table().
SweepResult run_sweep(const std::vector<Job>& jobs, const JobOptions& options, Choose choose = Choose::kBest);

nlohmann::ordered_json to_json(const SweepResult& result);

}  // namespace tpgm
