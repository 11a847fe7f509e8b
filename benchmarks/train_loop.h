// What the trainer costs beyond the step it runs.
#pragma once

#include "benchmarks/step.h"

namespace tpgm::benchmarks {

/// Medians in ms of the step alone, and of the same through Trainer with logs, progress and a run folder. The
/// two take turns, on models of the same sizes.
struct LoopTimes {
  double step_ms = 0, trainer_ms = 0;
};

/// Of the options only those of the model, the batch and the device count, and the numbers of steps.
LoopTimes measure_loop(const StepOptions& options, const StepSetting& setting);

}  // namespace tpgm::benchmarks
