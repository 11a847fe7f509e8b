// Estimates the memory of a run before it starts.
#pragma once

#include <cstdint>

#include "tpgm/train/setup.h"

namespace tpgm {

/// In bytes. Activations are measured in the forward and backward passes of two and of four images and scaled
/// to the batch size; the rest is counted.
struct MemoryEstimate {
  int64_t weights = 0;  ///< parameters and buffers
  int64_t gradients = 0;
  int64_t optimizer = 0;
  int64_t anchor = 0;  ///< the anchor of the method
  int64_t ema = 0;
  int64_t activations = 0;  ///< the peak within a step, with temporaries

  int64_t total() const { return weights + gradients + optimizer + anchor + ema + activations; }
};

/// Leaves the model as it was, including the running statistics of BatchNorms. On a CPU it measures in fp32
/// even if the options ask for bf16.
MemoryEstimate estimate_memory(Setup& setup);

}  // namespace tpgm
