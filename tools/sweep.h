// A sweep: every combination of some options' values, each for several seeds, and the best of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/cost.h"
#include "tools/jobs.h"
#include "tpgm/train/recipe.h"

namespace tpgm::tools {

/// Every combination of recipe.sweep ("lr=1e-3,1e-2") and recipe.seeds, in folders below settings["output"].
/// Throws for keys that are unknown or swept twice, and for values that make_options() refuses.
std::vector<Job> expand(const Recipe& recipe);

/// Throws if there are several combinations for one method and no selection data to
/// choose by: known before hours of training, not after.
void check_choosable(const std::vector<Job>& jobs, DataSizes& sizes);

/// Of results that differ in seeds alone, grouped by what was swept: the group whose mean accuracy on
/// selection data is the highest among those in which no run failed (the first of equals); empty if all have
/// failures. Throws if there are several and no accuracies to choose by.
std::vector<const JobResult*> best_of(const std::vector<JobResult>& results);

/// Mean accuracy on selection data, in per cent; NaN if there is none.
double mean_selection(const std::vector<const JobResult*>& group);

/// "lr=0.01, mu=0.1"; empty for none.
std::string chosen_text(const Settings& swept);

/// `tpgm train --sweep`: all of it, then a table with a row per method, and OUTPUT/sweep.csv with every run.
/// Returns the exit status.
int run_sweep(const Recipe& recipe, int64_t side_by_side, bool dry_run, bool json);

}  // namespace tpgm::tools
