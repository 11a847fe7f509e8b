// What the trainer costs beyond the step it runs.
#pragma once

#include "benchmarks/step.h"

namespace tpgm::benchmarks {

/// Medians of a step, in ms. `bare` is forward, cross-entropy, backward and the optimizer in a row; `trainer`
/// the same through Trainer, with logs, progress and a run folder. The two take turns on models of the same
/// sizes.
struct LoopTimes {
  double bare_ms = 0, trainer_ms = 0;
  double trainer_graph_ms = 0;  ///< the step replayed from a CUDA graph; 0 on the CPU
};

/// Of the options only those of the model, the batch and the device count, and the numbers of steps.
LoopTimes measure_loop(const StepOptions& options);

}  // namespace tpgm::benchmarks
