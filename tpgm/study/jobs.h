// Runs jobs, each a training run in a process of its own, several in parallel.
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

/// A run to make: `settings` describe it completely, including its folder.
struct Job {
  std::string name;   ///< "lr=0.001,seed=0", for messages
  Settings settings;  ///< including "output"; paths are absolute
  Settings swept;     ///< the settings that the sweep varies, without the seed
  std::string seed;
  double work = 1;  ///< its duration relative to other jobs
};

struct JobResult {
  Job job;
  std::optional<RunResult> result;  ///< empty: it failed
  std::string error;                ///< the last line of the log of a failed run
};

/// The task of a process.
struct RunStart {
  std::filesystem::path recipe, folder;
  bool resume =
      false;  ///< resume the run in `folder`; otherwise begin one with `recipe`, whose output is `folder`
  Settings settings;  ///< settings that override the recipe: Trait::kResumable
};

/// The path of a program, and its arguments including argv[0].
struct Process {
  std::string program;
  std::vector<std::string> arguments;
};

/// The progress of run_jobs().
struct JobsProgress {
  size_t done = 0, all = 0;
  std::vector<std::string> running;    ///< names of jobs
  std::optional<double> seconds_left;  ///< empty before the first run allows an estimate
};

struct JobCallbacks {
  /// Receives messages for the user: which run is finished, which failed.
  std::function<void(const std::string&)> say;
  /// Called many times a second.
  std::function<void(const JobsProgress&)> progress;
  /// Called many times a second; true: stop.
  std::function<bool()> stop;
};

struct JobOptions {
  int64_t side_by_side = 1;
  /// The process that makes a run. It must leave a finished run folder and return 0; on SIGTERM it must save
  /// its state and end. Its output goes to the log of the run.
  std::function<Process(const RunStart&)> process;
  /// A prefix of its log lines that messages leave out.
  std::string log_prefix;
  JobCallbacks callbacks;
};

/// The plan that the jobs are a part of, for progress: the runs made before them with their duration, and the
/// runs after them.
struct PlanContext {
  size_t before = 0, after = 0;
  double work_before = 0, seconds_before = 0, work_after = 0;
};

/// Makes the runs that are not finished, `side_by_side` at a time, in processes that share the cores.
/// Interrupted runs are resumed. A run in the folder OUTPUT has its recipe in OUTPUT.toml and its output in
/// OUTPUT.log. A failed run does not end the others. Several processes may call this with the same jobs: each
/// run is made by one of them.
///
/// Throws before the first run if a folder holds a run of another recipe. Throws when stop() is true, after
/// all runs have saved their states; another call resumes them.
std::vector<JobResult> run_jobs(const std::vector<Job>& jobs, const JobOptions& options,
                                const PlanContext& context = {});

}  // namespace tpgm
