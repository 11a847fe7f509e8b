// What `tpgm train` and the commands that run it share.
#pragma once

#include <string>

#include "tpgm/train/options.h"

namespace tpgm::tools {

/// Prepares and trains, with progress on stderr, in options.output, or from where `resume` stands. Returns
/// the exit status. The result goes to stdout: a table, or JSON.
int train_one(const TrainOptions& options, bool resume, bool json);

/// `--resume`: resumes the run in a folder. `settings` may only be Trait::kResumable.
int resume_run(const std::string& run, Settings settings, bool json);

/// What --dry-run says.
void print_plan(const TrainOptions& options);

}  // namespace tpgm::tools
