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
std::vector<JobResult> run_jobs(const std::vector<Job>& jobs, int64_t side_by_side, const std::string& what);

}  // namespace tpgm::tools
