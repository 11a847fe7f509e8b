// The time that the trainer adds to the step that it runs.
#pragma once

#include "benchmarks/step.h"

namespace tpgm::benchmarks {

/// Medians in ms of the step alone, and of the same through Trainer with logs, progress and a run folder. The
/// two take turns, on models of the same sizes.
struct LoopTimes {
  double step_ms = 0, trainer_ms = 0;
};

/// The rival's options do not count.
LoopTimes measure_loop(const StepOptions& options, const StepSetting& setting);

}  // namespace tpgm::benchmarks
