// Learning rate schedules: the learning rate of every step.
#pragma once

#include <torch/arg.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tpgm/base/text.h"

namespace tpgm {

enum class Sched { kCosine, kStep, kConstant };
template <>
struct Keywords<Sched> {
  static constexpr std::pair<Sched, const char*> all[] = {
      {Sched::kCosine, "cosine"}, {Sched::kStep, "step"}, {Sched::kConstant, "constant"}};
};

/// A part of training with a schedule of its own, such as linear probing before fine-tuning.
struct Phase {
  std::string name;
  int64_t epochs = 0;
  double lr = 0;
  int64_t warmup_epochs = 0;
};

struct ScheduleOptions {
  TORCH_ARG(Sched, sched) = Sched::kCosine;
  /// Update the learning rate at every step, or (false) at every epoch, as timm does by default.
  TORCH_ARG(bool, on_updates) = true;
  TORCH_ARG(double, min_lr) = 0;
  TORCH_ARG(double, warmup_lr) = 0;
  TORCH_ARG(int64_t, decay_epochs) = 10;
  TORCH_ARG(double, decay_rate) = 0.1;
};

/// Let t be the position in the phase (in steps, or in epochs without on_updates), w the length of its
/// warm-up and T its length in the same unit. The learning rate is
///   - in the warm-up, t < w: warmup_lr + t (lr − warmup_lr) / w;
///   - cosine: min_lr + (lr − min_lr) (1 + cos(π t / T)) / 2, as timm's, where t includes the warm-up;
///   - step: lr · decay_rate^⌊t / decay_epochs⌋, with t in epochs;
///   - constant: lr.
class Schedule {
 public:
  /// Throws, naming phase and option, for values that make no schedule. A phase may have 0 epochs.
  Schedule(std::vector<Phase> phases, int64_t steps_per_epoch, const ScheduleOptions& options);

  int64_t steps() const;
  /// The learning rate of steps 0 to steps(); that of steps() is the end of the curve of the last phase.
  double lr(int64_t step) const;
  /// The index of the phase of a step; for step = steps() that of the last phase.
  size_t phase(int64_t step) const;
  const std::vector<Phase>& phases() const { return phases_; }

 private:
  struct Place {
    size_t phase;
    int64_t step;  // from the beginning of the phase
  };
  Place place(int64_t step) const;

  std::vector<Phase> phases_;
  int64_t steps_per_epoch_;
  ScheduleOptions options_;
};

}  // namespace tpgm
