// Finished runs as rows of one table: grouped by seed, named as people call them, in the order of methods().
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tpgm/study/results.h"
#include "tpgm/study/run_record.h"
#include "tpgm/study/summary.h"
#include "tpgm/train/options.h"

namespace tpgm {

struct FinishedRun {
  std::filesystem::path path;
  Settings settings;     ///< of its recipe.toml
  TrainOptions options;  ///< the same
  RunResult result;
};

/// Runs that differ in nothing but their seed.
struct ReportRow {
  std::string
      name;  ///< "FT", "WISE 0.5", "TPGM-C μ=0.001"; of several that would be called alike, with settings
  RowKind kind = RowKind::kOther;
  std::vector<FinishedRun> runs;  ///< one for each seed
  std::vector<Score> scores;

  const FinishedRun& run() const { return runs.front(); }
  const std::string& method() const { return run().options.method; }
  /// Nothing was trained, and nothing done at the end: the anchor itself.
  bool is_anchor() const { return kind == RowKind::kZeroShot || kind == RowKind::kPretrained; }
};

struct RunSet {
  std::vector<ReportRow> rows;
  size_t reference = 0;  ///< the row that changes are relative to: FT, or else the first
  std::vector<std::filesystem::path> unfinished;
  std::vector<std::string> notes;  ///< for the user: what was found and left out
};

/// Each of `paths` is a run, or a folder with runs at any depth. Throws for a path that is none, where no run
/// is finished, and for runs that were tested on different data, naming two.
RunSet load_runs(const std::vector<std::filesystem::path>& paths);

/// What makes a run what it is: its settings without circumstances, and with those of a run that it started
/// from (`weights`) in place of that run's path.
Settings identity_settings(const Settings& settings);

/// NaN of a text that is no number.
double to_number(const std::string& text);
/// An option of a run's method; 0 of methods without it.
double method_number(const TrainOptions& options, const std::string& key);

/// The rows for summary(), and for choosing one of several of a kind.
std::vector<SummaryRow> summary_rows(const RunSet& runs);
std::string summary(const RunSet& runs);

}  // namespace tpgm
