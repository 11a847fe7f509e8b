// Runs as processes of their own, some side by side, and what came of each.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tpgm/study/run_record.h"
#include "tpgm/train/options.h"

namespace tpgm {

/// A run to be made: `settings` decide all of it, its folder included.
struct Job {
  std::string name;   ///< "lr=0.001,seed=0", for messages
  Settings settings;  ///< with "output", and absolute paths
  Settings swept;     ///< the part of them that the sweep varies, without the seed
  std::string seed;
  double work = 1;  ///< how long it takes, relative to others
};

struct JobResult {
  Job job;
  std::optional<RunResult> result;  ///< nothing: it failed
  std::string error;                ///< the last line it said, then
};

/// What a process is to do.
struct RunStart {
  std::filesystem::path recipe, folder;
  bool resume = false;  ///< the run in `folder`; else `recipe` begins one, which says the same folder
  Settings settings;    ///< that may be other than the recipe's: Trait::kResumable
};

/// A program by its path, and its arguments from argv[0] on.
struct Process {
  std::string program;
  std::vector<std::string> arguments;
};

/// Where run_jobs() is.
struct JobsProgress {
  size_t done = 0, all = 0;
  std::vector<std::string> running;    ///< names of jobs
  std::optional<double> seconds_left;  ///< nothing: no run has shown yet how long it takes
};

struct JobCallbacks {
  /// Sentences for the user: which run is finished, which failed.
  std::function<void(const std::string&)> say;
  /// Called many times a second.
  std::function<void(const JobsProgress&)> progress;
  /// Asked many times a second: true to stop.
  std::function<bool()> stop;
};

struct JobOptions {
  int64_t side_by_side = 1;
  /// The process that makes a run: one that leaves a finished run folder and returns 0, and that saves itself
  /// and ends on SIGTERM. What it prints goes to the log of the run.
  std::function<Process(const RunStart&)> process;
  /// What lines of its log begin with, which messages leave out.
  std::string log_prefix;
  JobCallbacks callbacks;
};

/// What the jobs are a part of, for progress: runs that were made before them, in how many seconds, and those
/// that come after them.
struct PlanContext {
  size_t before = 0, after = 0;
  double work_before = 0, seconds_before = 0, work_after = 0;
};

/// Runs what is not finished yet, `side_by_side` at a time, in processes that share the cores; runs that were
/// interrupted are resumed. Beside the folder OUTPUT of a run lie its recipe, OUTPUT.toml, and what it says,
/// OUTPUT.log. A failed run does not end the others. Several callers may be given the same jobs: each run is
/// made by one of them.
///
/// Throws, before anything runs, if a folder holds a run of another recipe, and when stop() came true, after
/// all runs have saved themselves: calling it again resumes them.
std::vector<JobResult> run_jobs(const std::vector<Job>& jobs, const JobOptions& options,
                                const PlanContext& context = {});

}  // namespace tpgm
