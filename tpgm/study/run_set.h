// Finished runs as rows of a table: grouped by seed, named, and in the order of methods().
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
  TrainOptions options;  ///< of its recipe, with all options of its method
  RunResult result;
};

/// Runs that differ only in their seed.
struct ReportRow {
  std::string name;  ///< "FT", "WISE 0.5", "TPGM-C μ=0.001"; with settings that differ, if several rows had
                     ///< the same name
  RowKind kind = RowKind::kOther;
  std::vector<FinishedRun> runs;  ///< one for each seed
  std::vector<Score> scores;
  Hits hits;

  const FinishedRun& run() const { return runs.front(); }
  const std::string& method() const { return run().options.method; }
  /// True if the row is the anchor itself: nothing was trained or projected.
  bool is_anchor() const {
    return kind == RowKind::kZeroShot || kind == RowKind::kPretrained || kind == RowKind::kRandomHead;
  }
};

struct RunSet {
  std::vector<ReportRow> rows;
  size_t reference = 0;  ///< changes are relative to this row: FT, or else the first
  std::vector<std::filesystem::path> unfinished;
  std::vector<std::string> notes;  ///< for the user: runs that were left out, and why
};

/// Each of `paths` is a run, or a folder with runs at any depth. Runs in such a folder from which others
/// started are left out, with a note. Throws if a path has no runs, if no run is finished, or if runs were
/// tested on different data, naming two of them.
RunSet load_runs(const std::vector<std::filesystem::path>& paths);

/// The settings that identify a run: those without Trait::kCircumstance, each with the value that the run had,
/// whether its recipe names it or not. If it started from another run (`weights`), the settings of that run
/// replace its path.
Settings identity_settings(const TrainOptions& options);

/// NaN if the text is not a number.
double to_number(const std::string& text);
/// An option of the method of a run; 0 if the method does not have it.
double method_number(const TrainOptions& options, const std::string& key);

/// The rows for summary() and chosen().
std::vector<SummaryRow> summary_rows(const RunSet& runs);
std::string summary(const RunSet& runs);

}  // namespace tpgm
