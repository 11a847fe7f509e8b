// The training loop: phases of epochs, evaluation, checkpoints to resume from, and the final projection and
// tests.
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
#include "tpgm/train/optimizer.h"
#include "tpgm/train/progress.h"
#include "tpgm/train/run_log.h"
#include "tpgm/train/run_state.h"
#include "tpgm/train/schedule.h"
#include "tpgm/train/setup.h"
#include "tpgm/train/step.h"

namespace tpgm {

struct TrainCallbacks {
  std::function<void(const TrainProgress&)> progress;
  /// Called for each radius step while the method finishes, with its loss and before the radii move.
  std::function<void(const RadiusProgress&)> radii;
  /// Receives messages for the user: evaluations, phases, skipped steps and images.
  std::function<void(const std::string&)> say;
  /// Called after every step, and repeatedly while the run finishes; true: save the state and return.
  std::function<bool()> stop;
};

/// Trains a Setup of prepare_run(): epochs of steps, each followed by an evaluation on selection data; then
/// the method's finish() and the tests, both on the weights of the best epoch.
class Trainer {
 public:
  /// Keeps references to setup and log, which must outlive it. Without a log nothing is written, and the run
  /// cannot be resumed. `train` replaces the training batches of the setup's data.
  Trainer(Setup& setup, RunLog* log, TrainCallbacks callbacks = {},
          std::optional<BatchSource> train = std::nullopt);
  ~Trainer();

  /// Trains to the end or until stop(), resuming from the log's state if it has one. A loss that is not
  /// finite throws, naming the step, its files and the last good state, or skips the step if `on-nan` says
  /// so.
  TrainResult run();

 private:
  struct Stopped {};  // thrown when stop() is true within an evaluation or finish()

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
  void diagnose();
  void tell_progress();
  at::Tensor finishing_loss(int64_t steps);

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
  NamedTensors best_weights_{"Tensor"};  // without a log, which keeps them otherwise
  int64_t saved_step_ = -1;
  std::optional<FinishRadii> finishing_;  // set when the method's finish() begins
  int64_t finishing_steps_ = 0;           // radius steps of finish()
  bool finished_best_ = false;            // the best weights are those after finish()
  TrainResult result_;
};

}  // namespace tpgm
