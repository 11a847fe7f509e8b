// The exponential moving average (EMA) of the weights.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <vector>

#include "tpgm/core/selection.h"

namespace tpgm {

/// average ← decay · average + (1 − decay) · weights, over parameters and floating-point buffers (timm's
/// ModelEmaV2); other buffers are copied. With a warm-up, as in timm's ModelEmaV3, the decay of update n
/// (from 0) is at most 1 − (1 + n)^(−2/3): the first update copies the weights, and the initial weights soon
/// count little. The average has the type and device of the weights, and is updated in a few launches. A
/// tensor that the module has under several names is averaged once, under the first.
class Ema {
 public:
  /// Starts from the weights of the module and keeps references to its tensors, which must not change device
  /// or type. Throws unless 0 <= decay < 1.
  Ema(torch::nn::Module& module, double decay, bool warmup = false);

  /// Averages in the current weights. Throws between two calls of swap().
  void update();
  /// Exchanges the average and the weights of the module in place; a second call restores both.
  void swap();

  /// The average as copies on the CPU, by the names of the module, also between two calls of swap(); with a
  /// warm-up also ".updates", the number of updates.
  NamedTensors state_dict() const;
  /// Resumes bit-exactly from a state; from one without ".updates", as after the warm-up. Throws, naming the
  /// tensor and changing nothing, if names, shapes or types differ, and between two calls of swap().
  void load_state_dict(const NamedTensors& state);

 private:
  struct Pairs {
    std::vector<at::Tensor> weights, averages;
  };
  double decay_;
  bool warmup_;
  int64_t updates_ = 0;
  NamedTensors weights_, averages_;
  std::vector<Pairs> floating_;  // the same tensors, grouped by type and device
  Pairs others_;
  bool swapped_ = false;
};

}  // namespace tpgm
