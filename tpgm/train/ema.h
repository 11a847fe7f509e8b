// The average of the weights over steps.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <vector>

#include "tpgm/core/selection.h"

namespace tpgm {

/// average ← decay · average + (1 − decay) · weights, over parameters and floating-point buffers (timm's
/// ModelEmaV2); other buffers are copied. With a warm-up, as timm's ModelEmaV3 has it, the n-th update (from
/// 0) takes at most 1 − (1 + n)^(−2/3) as its decay: the first takes the weights as they are, and the average
/// is soon one of the weights that were trained, and not mostly of those it began with. Kept in the weights'
/// type on their device, updated in a few launches. A tensor that the module has under several names counts
/// once, under the first.
class Ema {
 public:
  /// Begins with the module as it is; refers to its tensors, which must stay on their device and in their
  /// type. Throws unless 0 <= decay < 1.
  Ema(torch::nn::Module& module, double decay, bool warmup = false);

  /// Throws between two calls of swap().
  void update();
  /// Exchanges the average and the module's weights, in place; calling it twice changes nothing.
  void swap();

  /// The average, also between two calls of swap(). Copies on the CPU, by the module's names; with a warm-up
  /// also ".updates", how many there were.
  NamedTensors state_dict() const;
  /// Continues bit for bit; without ".updates" as after the warm-up. Throws, naming the tensor and changing
  /// nothing, for a state of other names, shapes or types, and between two calls of swap().
  void load_state_dict(const NamedTensors& state);

 private:
  struct Pairs {
    std::vector<at::Tensor> weights, averages;
  };
  double decay_;
  bool warmup_;
  int64_t updates_ = 0;
  NamedTensors weights_, averages_;
  std::vector<Pairs> floating_;  // the same tensors, those of one type and device together
  Pairs others_;
  bool swapped_ = false;
};

}  // namespace tpgm
