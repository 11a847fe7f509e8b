// Reads the files of a run folder.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tpgm/io/named_tensors.h"

namespace tpgm {

/// environment.json: the versions, command and machine of a run. Empty if an older version did not write it.
struct RunEnvironment {
  std::string command, version, libtorch, device;
  int64_t threads = 0;
  std::string host, started;  ///< started: "2026-11-16T12:34:56Z"

  /// The environment of this process.
  static RunEnvironment here(c10::Device device, std::string command);
};

/// A test of result.json. The words "pictures" and "right" as keys of our JSON and CSV files are their format,
/// which older versions and users' scripts know, and stay.
struct RunTest {
  std::string name;
  bool id = false;                                         ///< in-distribution
  int64_t images = 0;                                      ///< scored images
  int64_t skipped = 0;                                     ///< unreadable images
  int64_t scored_classes = 0;                              ///< 0 if an older version did not write it
  double top1 = std::numeric_limits<double>::quiet_NaN();  ///< in percent; NaN: no image could be read

  /// True if both tests have the same numbers of images and scored classes, as far as the files have them.
  bool same_data(const RunTest& other) const;
};

/// result.json, which exists once a run is finished.
struct RunResult {
  std::vector<RunTest> tests;
  double selection =
      std::numeric_limits<double>::quiet_NaN();  ///< accuracy in percent; NaN: no selection data
  double seconds = 0;
  std::string json;  ///< the text of the file
  /// weights_fingerprint() of what was tested; empty if an older version did not write it.
  std::string weights = {};
  int64_t selection_images = 0;  ///< 0 also if an older version did not write it
  /// ‖θ − θ₀‖ / ‖θ₀‖; NaN for methods without an anchor, and if an older version did not write it.
  double relative_distance = std::numeric_limits<double>::quiet_NaN();
  std::string diagnosis = {};  ///< what was wrong with the strength of the method, in a sentence; else empty
};

/// radii.json: radii and ratios over time, for methods that have them.
struct RadiusHistory {
  struct Entry {
    int64_t step = 0;                    ///< of training
    std::optional<int64_t> radius_step;  ///< the radius step of finish(); empty during training
    std::vector<double> radii;           ///< of each name
    std::vector<double> ratios;          ///< of each name; empty: not known yet
  };
  std::vector<std::string> names;  ///< of tensors
  std::vector<Entry> entries;
};

/// A line of summary.csv; NaN for missing values.
struct EpochRecord {
  double epoch = 0, train_loss = 0, selection_accuracy = 0;
};
struct EpochHistory {
  std::vector<EpochRecord> epochs;
  std::string csv;  ///< the text of the file; equal for runs that were trained alike
};

/// predictions.safetensors: the predicted classes of the tests.
struct RunPredictions {
  /// The class names in the order of the head, from the metadata of weights_of(); empty if it has none.
  std::vector<std::string> classes;
  /// By the name of each test: int32 [images], in the order of the subset of the test; −1 for unreadable
  /// images.
  NamedTensors tests;
  /// The same with the classes that are right, −1 for images without a label. Older versions did not write it:
  /// it is empty then.
  NamedTensors labels{"Tensor"};
};

/// Files of the run in the folder that other code opens: the effective recipe; its machine; the state to resume
/// from, of an unfinished run; the result of a finished one; the weights of the best epoch, which are the result once the run is finished; those of the last epoch; the
/// predicted classes of the tests.
std::filesystem::path recipe_of(const std::filesystem::path& run);
std::filesystem::path environment_of(const std::filesystem::path& run);
std::filesystem::path state_of(const std::filesystem::path& run);
std::filesystem::path result_of(const std::filesystem::path& run);
std::filesystem::path weights_of(const std::filesystem::path& run);
std::filesystem::path last_weights_of(const std::filesystem::path& run);
std::filesystem::path predictions_of(const std::filesystem::path& run);

/// The fingerprint of weights_of(run), which shows whether they are those that result.json is about. Empty if
/// they do not exist, and in a build without xxhash.
std::string weights_fingerprint(const std::filesystem::path& run);

/// True if the folder is that of a run: it has a recipe.
bool is_run(const std::filesystem::path& path);
/// True if the run in the folder is finished: it has a result.json.
bool is_finished(const std::filesystem::path& run);

/// Each reads a file of the run in the folder. Empty if the file does not exist. Throws, naming the file, if
/// it is damaged.
std::optional<RunResult> read_result(const std::filesystem::path& run);
std::optional<RadiusHistory> read_radii(const std::filesystem::path& run);
/// Empty also if the weights do not exist, because the classes are in their metadata.
std::optional<RunPredictions> read_predictions(const std::filesystem::path& run);
/// Damaged files are treated as missing, because no result depends on these two.
std::optional<RunEnvironment> read_environment(const std::filesystem::path& run);
EpochHistory read_epochs(const std::filesystem::path& run);

/// The content of these files from their text. The first two throw Malformed if it is damaged; the others leave out
/// what they cannot read, and parse_environment() is empty if the text is no JSON object.
RunResult parse_result(std::string_view text);
RadiusHistory parse_radii(std::string_view text);
std::optional<RunEnvironment> parse_environment(std::string_view text);
EpochHistory parse_epochs(std::string text);

/// The text of the files.
std::string to_text(const RunEnvironment& environment);
std::string to_text(const RadiusHistory& history);

}  // namespace tpgm
