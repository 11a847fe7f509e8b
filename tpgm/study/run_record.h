// What the files of a run folder say, with types.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace tpgm {

/// environment.json: where a run was made, and by what. Empty where an older version did not write it.
struct RunEnvironment {
  std::string command, version, libtorch, device;
  int64_t threads = 0;
  std::string host, started;  ///< started: "2026-11-16T12:34:56Z"

  /// This process, now.
  static RunEnvironment here(c10::Device device, std::string command);
};

/// A test of result.json.
struct RunTest {
  std::string name;
  bool id = false;                                         ///< in-distribution
  int64_t images = 0;                                      ///< that were scored
  int64_t scored_classes = 0;                              ///< 0: an older version did not write it
  double top1 = std::numeric_limits<double>::quiet_NaN();  ///< in per cent; NaN: no image could be read

  /// True if both were scored on the same images over as many classes, as far as the files say.
  bool same_data(const RunTest& other) const;
};

/// result.json: there once a run is finished.
struct RunResult {
  std::vector<RunTest> tests;
  double selection =
      std::numeric_limits<double>::quiet_NaN();  ///< accuracy in per cent; NaN: no selection data
  double seconds = 0;
  std::string json;  ///< all of the file
};

/// radii.json: radii and ratios over time, of methods that have them.
struct RadiusHistory {
  struct Entry {
    int64_t step = 0;  ///< of training
    std::optional<int64_t>
        radius_step;             ///< while radii are learned at the end: how many steps of that were made
    std::vector<double> radii;   ///< of each name
    std::vector<double> ratios;  ///< of each name; empty: not known yet
  };
  std::vector<std::string> names;  ///< of tensors
  std::vector<Entry> entries;
};

/// A line of summary.csv; NaN for what is not in it.
struct EpochRecord {
  double epoch = 0, train_loss = 0, selection_accuracy = 0;
};
struct EpochHistory {
  std::vector<EpochRecord> epochs;
  std::string csv;  ///< all of the file: the same for runs that were trained alike
};

/// True if the folder has a recipe.toml, without which it is no run.
bool is_run(const std::filesystem::path& path);

/// Each reads a file of the run in the folder. Nothing if it is not there; throws, naming the file, if it is
/// damaged.
std::optional<RunResult> read_result(const std::filesystem::path& run);
std::optional<RadiusHistory> read_radii(const std::filesystem::path& run);
/// No number depends on these two, so that damaged ones are as good as none.
std::optional<RunEnvironment> read_environment(const std::filesystem::path& run);
EpochHistory read_epochs(const std::filesystem::path& run);

/// The text of the files.
std::string to_text(const RunEnvironment& environment);
std::string to_text(const RadiusHistory& history);

}  // namespace tpgm
