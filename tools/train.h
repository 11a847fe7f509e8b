// The parts of `tpgm train`: one run, resuming one, and the plan of one.
#pragma once

#include <string>

#include "tpgm/train/options.h"

namespace tpgm::tools {

/// How a run begins: in a new folder, in place of the run that is there, or from that run's last checkpoint.
enum class Start { kNew, kOverwrite, kResume };

/// Trains in the run folder options.output, with progress on stderr. Prints the result as a table or JSON.
/// Returns the exit status.
int train_one(const TrainOptions& options, Start start, bool json);

/// `--resume`: resumes the run in a folder. `settings` may only be Trait::kResumable.
int resume_run(const std::string& run, Settings settings, bool json);

/// Prints what --dry-run shows.
void print_plan(const TrainOptions& options);

}  // namespace tpgm::tools
