// A run on disk: its recipe, logs, checkpoints and result.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "tpgm/io/safetensors_writer.h"
#include "tpgm/io/state_dict.h"
#include "tpgm/methods/method.h"
#include "tpgm/train/options.h"

namespace tpgm {

/// What is in it:
///     recipe.toml           the effective recipe: `tpgm train -c` of it gives the same run
///     environment.json      versions, device, threads, command
///     log.jsonl             a line for every log step, epoch, checkpoint and test
///     summary.csv           a line for every epoch
///     events.out.tfevents.* the same for TensorBoard, with histograms of ratios
///     radii.json            radii and ratios of each tensor over time, where the method has them:
///                           "names"; for each time an entry of "steps", "radii", "ratios" (empty: not known
///                           yet) and "radius_steps", how far the method's last act was; null: during
///                           training
///     last.safetensors      the weights of the last epoch
///     best.safetensors      those of the best epoch on selection data; at the end, the result
///     predictions.safetensors  what the result takes each picture of each test for: see save_predictions
///     resume.safetensors    everything that --resume needs
///     result.json           the tests; there once the run is finished
///
/// Every file but the logs appears complete or not at all. Logs are cut back to where they were when a run
/// resumes, so that nothing is in them twice.
class RunFolder {
 public:
  using Json = nlohmann::ordered_json;

  /// Throws if the folder holds anything.
  static void check_new(const std::filesystem::path& path);
  /// A new run: throws if the folder holds anything.
  static RunFolder create(const std::filesystem::path& path, const TrainOptions& options,
                          const Json& environment);
  /// A run that was begun: throws if there is none, or it is finished.
  static RunFolder open(const std::filesystem::path& path);
  RunFolder(RunFolder&&) noexcept;
  ~RunFolder();

  const std::filesystem::path& path() const;
  bool resumable() const;  ///< has a state to go on from

  void log(const Json& line);
  /// A row of summary.csv; the first one's keys are the columns.
  void epoch(const Json& row);
  void scalar(const std::string& tag, double value, int64_t step);
  /// `radius_step`: of the method's last act, after so many steps of it. What is there already stays.
  void radii(int64_t step, const NamedNumbers& radii, const NamedNumbers& ratios,
             std::optional<int64_t> radius_step = std::nullopt);

  /// "best" or "last".
  void save_weights(const std::string& name, const NamedTensors& tensors, const Metadata& metadata);

  /// For each test by its name the number of the predicted class of each picture, int32, in the order of the
  /// test's subset; −1: it could not be read.
  void save_predictions(const NamedTensors& tests);

  /// The state of a run; the logs are flushed and their sizes go with it.
  void save_state(const NamedTensors& tensors, Json numbers);
  struct State {
    NamedTensors tensors;
    Json numbers;
  };
  /// The last one saved; cuts the logs back to it. Nothing if there is none: then the logs begin anew.
  std::optional<State> load_state();

  /// The run is finished: result.json, and no more state to resume from.
  void finish(const Json& result);

 private:
  struct Impl;
  explicit RunFolder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Of a finished run; nothing if it is not, or is none. Throws for a damaged file.
std::optional<RunFolder::Json> load_result(const std::filesystem::path& run);

/// True if the folder has a recipe.toml.
bool is_run(const std::filesystem::path& path);

}  // namespace tpgm
