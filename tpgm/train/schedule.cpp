// timm's formulas, with its order of operations, so that learning rates are the same to the bit.
#include "tpgm/train/schedule.h"

#include <c10/util/Exception.h>

#include <cmath>
#include <numbers>
#include <utility>

#include "tpgm/base/call.h"

namespace tpgm {

Schedule::Schedule(std::vector<Phase> phases, int64_t steps_per_epoch, const ScheduleOptions& options)
    : phases_(std::move(phases)), steps_per_epoch_(steps_per_epoch), options_(options) {
  const auto is_rate = [](double value) { return value >= 0 && std::isfinite(value); };
  TORCH_CHECK(!phases_.empty(), "[Schedule] there are no phases; give at least one");
  TORCH_CHECK(steps_per_epoch_ >= 1, "[Schedule] an epoch has ", steps_per_epoch_,
              " steps; it needs at least one: fewer images in a batch, or a larger data set");
  TORCH_CHECK(is_rate(options_.min_lr()), "[Schedule] the learning rate min_lr must be at least 0, not ",
              options_.min_lr());
  TORCH_CHECK(is_rate(options_.warmup_lr()),
              "[Schedule] the learning rate warmup_lr must be at least 0, not ", options_.warmup_lr());
  TORCH_CHECK(options_.decay_epochs() >= 1, "[Schedule] decay_epochs must be at least 1, not ",
              options_.decay_epochs());
  TORCH_CHECK(is_rate(options_.decay_rate()), "[Schedule] decay_rate must be at least 0, not ",
              options_.decay_rate());
  for (const Phase& phase : phases_) {
    TORCH_CHECK(phase.epochs >= 0, "[Schedule] phase '", phase.name, "': epochs must be at least 0, not ",
                phase.epochs);
    TORCH_CHECK(is_rate(phase.lr), "[Schedule] phase '", phase.name,
                "': the learning rate must be at least 0, not ", phase.lr);
    TORCH_CHECK(phase.warmup_epochs >= 0, "[Schedule] phase '", phase.name,
                "': warmup_epochs must be at least 0, not ", phase.warmup_epochs);
    TORCH_CHECK(phase.epochs == 0 || phase.warmup_epochs <= phase.epochs, "[Schedule] phase '", phase.name,
                "': ", phase.warmup_epochs, " epochs of warm-up do not fit into its ", phase.epochs,
                "; warm up for fewer or train for more");
  }
}

int64_t Schedule::steps() const {
  int64_t epochs = 0;
  for (const Phase& phase : phases_) {
    epochs += phase.epochs;
  }
  return epochs * steps_per_epoch_;
}

Schedule::Place Schedule::place(int64_t step) const {
  TORCH_CHECK(step >= 0 && step <= steps(), "step ", step, " is outside of the schedule, which has ", steps(),
              " steps");
  size_t k = 0;
  while (k + 1 < phases_.size() && step >= phases_[k].epochs * steps_per_epoch_) {
    step -= phases_[k].epochs * steps_per_epoch_;
    ++k;
  }
  return {k, step};
}

size_t Schedule::phase(int64_t step) const try { return place(step).phase; } catch (...) {
  rethrow_from("Schedule::phase");
}

double Schedule::lr(int64_t step) const try {
  const auto [k, offset] = place(step);
  const Phase& phase = phases_[k];
  const int64_t unit = options_.on_updates() ? steps_per_epoch_ : 1;
  const int64_t t = options_.on_updates() ? offset : offset / steps_per_epoch_;
  const int64_t warmup = phase.warmup_epochs * unit;
  const int64_t length = phase.epochs * unit;
  const auto time = static_cast<double>(t);
  if (t < warmup) {
    return options_.warmup_lr() + time * ((phase.lr - options_.warmup_lr()) / static_cast<double>(warmup));
  }
  switch (options_.sched()) {
    case Sched::kCosine: {
      if (t >= length) return options_.min_lr();
      const double angle = std::numbers::pi * time / static_cast<double>(length);
      return options_.min_lr() + 0.5 * (phase.lr - options_.min_lr()) * (1 + std::cos(angle));
    }
    case Sched::kStep:
      return phase.lr *
             std::pow(options_.decay_rate(), static_cast<double>(t / (options_.decay_epochs() * unit)));
    case Sched::kConstant:
      break;
  }
  return phase.lr;
} catch (...) {
  rethrow_from("Schedule::lr");
}

}  // namespace tpgm
