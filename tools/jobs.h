// Runs as processes of their own, some side by side, and what came of each.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tpgm/train/options.h"
#include "tpgm/train/run_folder.h"

namespace tpgm::tools {

/// A run to be made: `settings` decide all of it, its folder included.
struct Job {
  std::string name;   ///< "lr=0.001,seed=0", for messages
  Settings settings;  ///< with "output", and absolute paths
  Settings swept;     ///< the part of them that the sweep varies, without the seed
  std::string seed;
  double work = 1;  ///< how long it takes, relative to others
};

/// What the jobs are a part of, for the progress line: runs that were made before them, in how many seconds,
/// and those that come after them.
struct Whole {
  size_t before = 0, after = 0;
  double work_before = 0, seconds_before = 0, work_after = 0;
};

struct JobResult {
  const Job* job = nullptr;
  std::optional<RunFolder::Json> result;  ///< nothing: it failed
  std::string error;                      ///< the last line it said, then
};

/// Runs what is not finished yet, `side_by_side` at a time, as `tpgm train` processes that share the cores;
/// those that were interrupted go on. Beside the folder OUTPUT of a run lie its recipe, OUTPUT.toml, and what
/// it says, OUTPUT.log. A failed run does not end the others. Several processes may be given the same jobs:
/// each run is made by one of them. `what` begins lines on stderr: "tpgm train".
///
/// Throws, before anything runs, if a folder holds a run of another recipe, and when a signal came, after all
/// runs have saved themselves: calling it again goes on.
std::vector<JobResult> run_jobs(const std::vector<Job>& jobs, int64_t side_by_side, const std::string& what,
                                const Whole& whole = {});

}  // namespace tpgm::tools
