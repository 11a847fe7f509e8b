// The parts of a training loop that the options alone describe.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tpgm/data/mix.h"
#include "tpgm/methods/options.h"
#include "tpgm/models/classifier.h"
#include "tpgm/train/optimizer.h"
#include "tpgm/train/options.h"
#include "tpgm/train/schedule.h"
#include "tpgm/train/step.h"

namespace tpgm {

/// A phase of linear probing if the options have epochs for it, then the phase of the method.
std::vector<Phase> phases_of(const TrainOptions& options);
ScheduleOptions schedule_of(const TrainOptions& options);
OptimOptions optim_of(const TrainOptions& options);
Optimizer optimizer_of(const TrainOptions& options, const Classifier& model);
MixOptions mix_of(const TrainOptions& options);
StepOptions step_of(const TrainOptions& options);

/// When the method learns radii; nothing if it has none.
std::optional<RadiusUpdates> radius_updates_of(const TrainOptions& options);
/// How many radius steps the method takes after the last training step.
int64_t final_radius_steps(const TrainOptions& options);

/// While it lives, the whole process uses the kernels that cuDNN measures to be the fastest, or with
/// `deterministic` only those that compute the same bits each time. The destructor restores the flags.
class KernelFlags {
 public:
  explicit KernelFlags(bool deterministic);
  ~KernelFlags();
  KernelFlags(const KernelFlags&) = delete;
  KernelFlags& operator=(const KernelFlags&) = delete;

 private:
  bool benchmark_, deterministic_, algorithms_, warn_only_;
};

}  // namespace tpgm
