// The training loop.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "tpgm/train/batches.h"
#include "tpgm/train/ema.h"
#include "tpgm/train/finish.h"
#include "tpgm/train/loss_queue.h"
#include "tpgm/train/optim.h"
#include "tpgm/train/progress.h"
#include "tpgm/train/run_log.h"
#include "tpgm/train/run_state.h"
#include "tpgm/train/schedule.h"
#include "tpgm/train/setup.h"
#include "tpgm/train/step.h"

namespace tpgm {

struct TrainCallbacks {
  std::function<void(const TrainProgress&)> progress;
  /// Sentences for the user: evaluations, the phase, what was skipped.
  std::function<void(const std::string&)> say;
  /// Asked after every step, and while the run finishes: true to save and return.
  std::function<bool()> stop;
};

/// Runs what prepare_run() set up: epochs of steps, an evaluation after each, and in the end the method's
/// finish() and the tests, with the weights of the best epoch.
class Trainer {
 public:
  /// Without a log nothing is written, and nothing can be resumed. Refers to both. `train`: batches from
  /// elsewhere than the setup's data.
  Trainer(Setup& setup, RunLog* log, TrainCallbacks callbacks = {},
          std::optional<BatchSource> train = std::nullopt);
  ~Trainer();

  /// Resumes where the log's state is, if it has one; to the end, or until stop(). Throws for a loss that is
  /// not finite (or skips the step, if the options say so), naming step, files and the last good state.
  TrainResult run();

 private:
  struct Stopped {};  // thrown where stop() is asked in the middle of something

  void train_epoch();
  void train_step();
  void begin_phase();
  bool take_step(StepLoss& loss, double lr);
  void end_epoch();
  void finish();
  bool done() const;

  TrainingStep::RadiusBatch next_radius_batch();
  std::optional<Accuracy> select();
  void keep_best();
  void load_best();
  void save_state();
  void load_state();
  void check_weights() const;
  void read_losses(size_t leave);
  template <class Work>
  auto or_for_a_loss(Work&& work);
  [[noreturn]] void stop_for(const StepLoss& loss, const LossSums& sums);
  void log_step();
  void log_epoch(const std::optional<Accuracy>& selected, bool better);
  void tell_progress();

  const std::string& phase_name() const { return schedule_.phases()[schedule_.phase(state_.step - 1)].name; }
  std::string last_good_state() const;
  void say(const std::string& text) const;
  bool stop_asked() const { return callbacks_.stop && callbacks_.stop(); }

  Setup& setup_;
  RunLog* log_;
  TrainCallbacks callbacks_;
  const TrainOptions& options_;
  Classifier& model_;
  Method& method_;

  RunState state_;
  std::unique_ptr<Loader> train_loader_, radius_loader_, selection_loader_;
  BatchSource train_;
  std::optional<RadiusBatches> radius_;
  int64_t steps_per_epoch_;
  Schedule schedule_;
  Optimizer optimizer_;
  TrainingStep training_step_;
  std::unique_ptr<Ema> ema_;
  RunParts parts_;

  LossQueue losses_;
  RunClock clock_;
  NamedTensors best_weights_{"Tensor"};  // where there is no log
  int64_t saved_step_ = -1;
  std::optional<FinishRadii> finishing_;  // since the method's finish() began
  int64_t radius_batches_before_ = 0;     // it
  bool finished_best_ = false;            // the best weights are those after it
  TrainResult result_;
};

}  // namespace tpgm
