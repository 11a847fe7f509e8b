// How much memory a run will take, before it does.
#pragma once

#include <cstdint>

#include "tpgm/train/setup.h"

namespace tpgm {

/// Bytes. Activations are measured: forward and backward of four and of two images, scaled to the batch;
/// all else is counted.
struct MemoryEstimate {
  int64_t weights = 0;  ///< parameters and buffers
  int64_t gradients = 0;
  int64_t optimizer = 0;
  int64_t anchor = 0;  ///< and what else the method keeps between steps
  int64_t ema = 0;
  int64_t activations = 0;  ///< the most at any moment of a step, with temporaries

  int64_t total() const { return weights + gradients + optimizer + anchor + ema + activations; }
};

/// Leaves the model as it was, but for BatchNorm's running statistics, which it puts back. In fp32 if the
/// options ask for bf16 and the device is a CPU.
MemoryEstimate estimate_memory(Setup& setup);

}  // namespace tpgm
