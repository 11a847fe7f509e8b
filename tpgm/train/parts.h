// The parts of a training loop that the options alone describe.
#pragma once

#include <vector>

#include "tpgm/data/mix.h"
#include "tpgm/models/classifier.h"
#include "tpgm/train/optim.h"
#include "tpgm/train/options.h"
#include "tpgm/train/schedule.h"
#include "tpgm/train/step.h"

namespace tpgm {

/// Linear probing where the options have epochs of it, then the method.
std::vector<Phase> phases_of(const TrainOptions& options);
ScheduleOptions schedule_of(const TrainOptions& options);
Optimizer optimizer_of(const TrainOptions& options, const Classifier& model);
MixOptions mix_of(const TrainOptions& options);
StepOptions step_of(const TrainOptions& options);

/// While it lives, the whole process takes the kernels that are the fastest here, or with `deterministic`
/// only such as give the same bits each time. Puts back what was before.
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
