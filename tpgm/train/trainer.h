// The training loop.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tpgm/data/loader.h"
#include "tpgm/train/ema.h"
#include "tpgm/train/evaluate.h"
#include "tpgm/train/optim.h"
#include "tpgm/train/run_folder.h"
#include "tpgm/train/schedule.h"
#include "tpgm/train/setup.h"
#include "tpgm/train/step.h"

namespace tpgm {

/// Where batches come from: a Loader, or anything that gives the same batches for the same (epoch, number).
struct BatchSource {
  int64_t batches = 0;  ///< of an epoch
  std::function<void(int64_t epoch, int64_t first)> start;
  std::function<std::optional<Batch>()> next;
  /// Names a picture of a batch, for messages.
  std::function<std::string(int64_t index)> place;
};
/// The loader must outlive it.
BatchSource batches_of(Loader& loader);

/// Where a run is, for a progress line.
struct TrainProgress {
  std::string phase;  ///< "ft", or "lp" of lp-ft
  int64_t epoch = 0, epochs = 0, step = 0, steps = 0;
  double images_s = 0, loss = 0, accuracy = 0, seconds_left = 0;
};

struct TrainCallbacks {
  std::function<void(const TrainProgress&)> progress;
  /// Sentences for the user: evaluations, the phase, what was skipped.
  std::function<void(const std::string&)> say;
  /// Asked after every step, and while the method does its last act: true to save and return.
  std::function<bool()> stop;
};

struct TestResult {
  std::string name;
  bool id = false;
  Accuracy accuracy;
};

struct TrainResult {
  bool finished = false;  ///< false: stopped; the run folder has its state
  int64_t steps = 0, skipped_steps = 0;
  int64_t best_epoch = 0;  ///< 0: before the first
  double selection = 0;    ///< accuracy of the result on selection data, %; NaN without any
  std::vector<TestResult> tests;
  double seconds = 0;
};

/// Runs what `prepare` set up. Every random choice is a function of (seed, epoch, batch), so the state of a
/// run is its weights, its method, its optimizer and a few counters.
class Trainer {
 public:
  /// Without a folder nothing is written, and nothing can be resumed. Refers to both. `train`: batches from
  /// elsewhere than the setup's data.
  Trainer(Setup& setup, RunFolder* folder, TrainCallbacks callbacks = {},
          std::optional<BatchSource> train = std::nullopt);
  ~Trainer();

  /// Goes on where the folder's state is, if it has one; to the end, or until stop(). Throws for a loss that
  /// is not finite (or skips the step, if the options say so), naming step, files and the last good state.
  TrainResult run();

 private:
  struct Stopped {};  // thrown where stop() is asked in the middle of something
  struct Pending;
  struct Clock;

  void train_epoch();
  void train_step();
  void end_epoch();
  void finish();
  bool done() const;

  TrainingStep::RadiusBatch next_radius_batch();
  void note_radii();
  std::optional<Accuracy> select();
  void keep_best();
  void load_best();
  void check_weights() const;
  void save_state();
  void load_state();
  void read_losses(size_t leave);
  template <class Work>
  auto or_for_a_loss(Work&& work);
  [[noreturn]] void stop_for(double loss, const Pending& pending);
  void log_step();
  void say_skipped_pictures();
  void say(const std::string& text) const;
  bool stop_asked() const { return callbacks_.stop && callbacks_.stop(); }

  Setup& setup_;
  RunFolder* folder_;
  TrainCallbacks callbacks_;
  const TrainOptions& options_;
  Classifier& model_;
  Method& method_;

  std::unique_ptr<Loader> train_loader_, radius_loader_, selection_loader_;
  BatchSource train_, radius_;
  int64_t steps_per_epoch_;
  Schedule schedule_;
  Optimizer optimizer_;
  TrainingStep training_step_;
  std::unique_ptr<Ema> ema_;

  // What a state has beside tensors.
  int64_t step_ = 0, epochs_done_ = 0, best_epoch_ = 0, radius_batches_ = 0, skipped_ = 0;
  double best_ = -1;                                            // accuracy on selection data, %
  double epoch_loss_ = 0, epoch_right_ = 0, epoch_images_ = 0;  // sums over the epoch
  double seconds_before_ = 0;                                   // in processes before this one

  std::deque<Pending> pending_;  // losses that were not read yet
  std::unique_ptr<Clock> clock_;
  std::string data_fingerprint_;
  NamedTensors best_weights_{"Tensor"};  // where there is no folder
  int64_t saved_step_ = -1, radius_epoch_ = -1, finish_began_ = 0;
  bool finishing_ = false, finished_best_ = false;
  // Of the last act, by its steps; they reach the folder when it is through.
  std::vector<std::pair<int64_t, NamedNumbers>> last_radii_;
  int64_t last_steps_ = 0, last_stride_ = 1;
  TrainResult result_;
};

/// For result.json, and for sweeps to read.
RunFolder::Json to_json(const TrainResult& result, const TrainOptions& options);

}  // namespace tpgm
