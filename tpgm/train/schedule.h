// The learning rate of every step.
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
struct Words<Sched> {
  static constexpr std::pair<Sched, const char*> all[] = {
      {Sched::kCosine, "cosine"}, {Sched::kStep, "step"}, {Sched::kConstant, "constant"}};
};

/// A stretch of training with a schedule of its own: linear probing before fine-tuning, say.
struct Phase {
  std::string name;
  int64_t epochs = 0;
  double lr = 0;
  int64_t warmup_epochs = 0;
};

struct ScheduleOptions {
  TORCH_ARG(Sched, sched) = Sched::kCosine;
  /// Change the rate at every step, or (false) at every epoch, as timm's schedulers do by default.
  TORCH_ARG(bool, on_updates) = true;
  TORCH_ARG(double, min_lr) = 0;
  TORCH_ARG(double, warmup_lr) = 0;
  TORCH_ARG(int64_t, decay_epochs) = 10;
  TORCH_ARG(double, decay_rate) = 0.1;
};

/// With t the position in the phase (a step, or an epoch if not on_updates), w its warm-up and T its length
/// in the same unit: warm-up is warmup_lr + t (lr − warmup_lr) / w for t < w; then cosine is min_lr + (lr −
/// min_lr) (1 + cos(π t / T)) / 2, as timm's with t counted from the start of the warm-up; step is lr ·
/// decay_rate^⌊t / decay_epochs⌋ in epochs; constant is lr.
class Schedule {
 public:
  /// Throws, naming the phase and the option, for what makes no schedule. A phase may have no epochs.
  Schedule(std::vector<Phase> phases, int64_t steps_per_epoch, const ScheduleOptions& options);

  int64_t steps() const;
  /// Of steps 0 to steps(); the last is where the last phase's curve ends.
  double lr(int64_t step) const;
  /// The place of the phase of a step among those that were given; the last one's for step = steps().
  size_t phase(int64_t step) const;
  const std::vector<Phase>& phases() const { return phases_; }

 private:
  struct Place {
    size_t phase;
    int64_t step;  // from the beginning of the phase
  };
  Place place(const char* call, int64_t step) const;

  std::vector<Phase> phases_;
  int64_t steps_per_epoch_;
  ScheduleOptions options_;
};

}  // namespace tpgm
