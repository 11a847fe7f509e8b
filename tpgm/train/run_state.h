// What a run needs to resume bit for bit.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "tpgm/methods/method.h"
#include "tpgm/models/classifier.h"
#include "tpgm/train/ema.h"
#include "tpgm/train/loss_queue.h"
#include "tpgm/train/optim.h"
#include "tpgm/train/run_log.h"

namespace tpgm {

/// Everything beside tensors. Every random choice is a function of (seed, epoch, batch), so counters are
/// enough.
struct RunState {
  int64_t step = 0, epochs_done = 0;
  int64_t best_epoch = 0;  ///< 0: before the first
  double best = -1;        ///< accuracy on selection data, %
  int64_t radius_batches = 0, skipped = 0;
  LossSums epoch, window;  ///< since the epoch began, and since the last line of the log
  double seconds = 0;      ///< in all processes
  std::string data;        ///< fingerprint_of() them

  /// Calls visit(key, member of each state...) for each.
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
  }
};
RunLog::Json to_json(const RunState& state);
RunState run_state_of(const RunLog::Json& numbers);

/// What has tensors to save. Refers to all of it.
struct RunParts {
  Classifier& model;
  Optimizer& optimizer;
  Method& method;
  Ema* ema;            ///< may be null
  c10::Device device;  ///< whose random stream is part of the state, beside the CPU's
};
NamedTensors tensors_of(const RunParts& parts);
/// `file`: where they are from, for messages.
void load_tensors(const RunParts& parts, const NamedTensors& tensors, const std::filesystem::path& file);

/// A gradient can be infinite where the loss is not; such weights must not become a checkpoint. Throws,
/// with `advice` behind what happened.
void check_finite(const Classifier& model, int64_t step, const std::string& advice);

}  // namespace tpgm
