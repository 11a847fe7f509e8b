// The state from which a run resumes bit-exactly.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "tpgm/methods/method.h"
#include "tpgm/models/classifier.h"
#include "tpgm/train/ema.h"
#include "tpgm/train/loss_queue.h"
#include "tpgm/train/optimizer.h"
#include "tpgm/train/run_log.h"

namespace tpgm {

/// The state besides tensors. Every random choice is a function of seed, epoch and batch, so counters
/// suffice.
struct RunState {
  int64_t step = 0, epochs_done = 0;
  int64_t best_epoch = 0;  ///< 0: before the first
  double best = -1;        ///< accuracy on selection data, %
  int64_t radius_batches = 0, skipped = 0;
  LossSums epoch, window;  ///< since the beginning of the epoch, and since the last log line
  double seconds = 0;      ///< in all processes of the run
  std::string data;        ///< fingerprint_of() the data
  double first_loss = -1;  ///< the mean training loss at the first log line; −1: not known yet
  std::string diagnosis;   ///< what was said of HasDiagnosis::diagnosis(); empty: nothing

  /// Calls visit(key, member of each state...) for each member.
  template <class Visit, class... Self>
  static void fields(Visit&& visit, Self&... self) {
    visit("step", self.step...);
    visit("data", self.data...);
    visit("epochs_done", self.epochs_done...);
    visit("best_epoch", self.best_epoch...);
    visit("best", self.best...);
    visit("radius_batches", self.radius_batches...);
    visit("skipped", self.skipped...);
    visit("epoch_loss", self.epoch.loss...);
    visit("epoch_right", self.epoch.correct...);
    visit("epoch_images", self.epoch.images...);
    visit("window_loss", self.window.loss...);
    visit("window_right", self.window.correct...);
    visit("window_images", self.window.images...);
    visit("seconds", self.seconds...);
    visit("first_loss", self.first_loss...);
    visit("diagnosis", self.diagnosis...);
  }
  /// Whether version 0.1.0 did not write the key.
  static bool is_newer(std::string_view key) { return key == "first_loss" || key == "diagnosis"; }
};
RunLog::Json to_json(const RunState& state);
/// Throws, naming `file`, if a number is missing, or if they are not those of a run of so many epochs.
RunState run_state_of(const RunLog::Json& numbers, int64_t epochs, int64_t steps_per_epoch,
                      const std::filesystem::path& file);

/// The same; throws Malformed.
RunState parse_run_state(const RunLog::Json& numbers, int64_t epochs, int64_t steps_per_epoch);

/// References to the parts of a run that have tensors to save.
struct RunParts {
  Classifier& model;
  Optimizer& optimizer;
  Method& method;
  Ema* ema;            ///< may be null
  c10::Device device;  ///< its random generator is part of the state, like that of the CPU
};
NamedTensors tensors_of(const RunParts& parts);
/// `file` is where the tensors come from, for messages.
void load_tensors(const RunParts& parts, const NamedTensors& tensors, const std::filesystem::path& file);

/// Throws, with `advice` at the end of the message, if a weight is NaN or Inf. A gradient can be infinite
/// although the loss is finite; such weights must not become a checkpoint.
void check_finite(const Classifier& model, int64_t step, const std::string& advice);

}  // namespace tpgm
