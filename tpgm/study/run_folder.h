// Writes the folder of a run: its recipe, logs, checkpoints and result. run_record.h reads it.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "tpgm/study/run_record.h"
#include "tpgm/train/options.h"
#include "tpgm/train/run_log.h"

namespace tpgm {

/// The files:
///     recipe.toml           the effective recipe: `tpgm train -c recipe.toml` makes the same run
///     environment.json      versions, device, threads, command
///     log.jsonl             a line for each log step, epoch, checkpoint and test
///     summary.csv           a line for each epoch
///     events.out.tfevents.* the same for TensorBoard, with histograms of ratios
///     radii.json            radii and ratios of each tensor over time, for methods that have them: "names",
///                           and for each time an entry of "steps", "radii", "ratios" (empty: not known yet)
///                           and "radius_steps" (the radius step of finish(); null: during training)
///     last.safetensors      the weights of the last epoch
///     best.safetensors      the weights of the best epoch on selection data; at the end, the result
///     predictions.safetensors  the predicted classes of the tests, see RunPredictions
///     resume.safetensors    the state to resume from
///     result.json           the tests, and the fingerprint of the tested weights; exists once the run is
///                           finished
///
/// Every file except the logs is replaced atomically. When a run resumes, logs are truncated to the state
/// that it resumes from, so that nothing is in them twice.
class RunFolder : public RunLog {
 public:
  using Json = RunLog::Json;

  /// Throws where create() would, and changes nothing. True if create() will delete a run.
  static bool check_new(const std::filesystem::path& path, bool overwrite = false);
  /// Creates a new run. Throws unless the folder is empty or does not exist, or holds a run that was killed
  /// before it saved anything, or holds any run and `overwrite` is set: the files of that run are deleted first,
  /// and others stay.
  static RunFolder create(const std::filesystem::path& path, const TrainOptions& options,
                          const RunEnvironment& environment, bool overwrite = false);
  /// Opens an unfinished run. Throws if there is none, or if it is finished.
  static RunFolder open(const std::filesystem::path& path);
  /// Removes what a finished run left if it was killed while it cleaned up: its state and temporary files.
  static void clean_up(const std::filesystem::path& path);
  RunFolder(RunFolder&&) noexcept;
  ~RunFolder() override;

  const std::filesystem::path& path() const override;

  void log(const Json& line) override;
  void epoch(const Json& row) override;
  void scalar(const std::string& tag, double value, int64_t step) override;
  void radii(int64_t step, const NamedNumbers& radii, const NamedNumbers& ratios,
             std::optional<int64_t> radius_step = std::nullopt) override;
  void save_weights(const std::string& name, const NamedTensors& tensors, const Metadata& metadata) override;
  Weights load_weights(const std::string& name) const override;
  void save_predictions(const NamedTensors& tests) override;
  std::filesystem::path save_text(const std::string& name, const std::string& text) override;
  void save_state(const NamedTensors& tensors, Json numbers) override;
  std::optional<State> load_state() override;
  std::filesystem::path state_path() const override;
  void finish(const Json& result) override;

 private:
  struct Impl;
  explicit RunFolder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tpgm
