// The parts of `tpgm train`: one run, resuming one, and the plan of one.
#pragma once

#include <string>

#include "tpgm/train/options.h"

namespace tpgm::tools {

/// Trains in the run folder options.output, with progress on stderr; `resume`: from its last checkpoint.
/// Prints the result as a table or JSON. Returns the exit status.
int train_one(const TrainOptions& options, bool resume, bool json);

/// `--resume`: resumes the run in a folder. `settings` may only be Trait::kResumable.
int resume_run(const std::string& run, Settings settings, bool json);

/// Prints what --dry-run shows.
void print_plan(const TrainOptions& options);

}  // namespace tpgm::tools
