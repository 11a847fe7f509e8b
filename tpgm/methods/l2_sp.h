// L2-SP: a penalty on the squared distance from the anchor (Li et al., ICML 2018).
#pragma once

#include <torch/arg.h>

#include <string>
#include <vector>

#include "tpgm/methods/anchored_method.h"
#include "tpgm/methods/options.h"

namespace tpgm {

struct L2SpOptions {
  /// Weight of the penalty. The paper's best: 1e-2 (CLIP), 1e-3 (MoCo-v3).
  TORCH_ARG(double, mu) = 1e-2;
  TORCH_ARG(std::vector<std::string>, exclude);
  TORCH_ARG(AnchorStorage, anchor_storage) = AnchorStorage::kWeights;

 public:
  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("mu", self.mu(), "weight of the squared distance in the loss");
    visit("exclude", self.exclude(), "parameters to leave unconstrained");
    visit("anchor_storage", self.anchor_storage(),
          "where to keep the anchor: in the weights' type, in bf16, or in host memory");
  }
};

/// Trains on loss + mu · ‖θ − θ₀‖² by adding 2·mu·(θ − θ₀) to the gradients before the optimizer's step: to
/// the optimizer it is part of the loss, apart from its weight decay. A parameter without a gradient gets
/// one.
/// After an error (NaN or Inf) the gradients are undefined: zero them.
class L2Sp final : public AnchoredMethod {
 public:
  using Options = L2SpOptions;

  explicit L2Sp(torch::nn::Module& module, L2SpOptions options = {});
  L2Sp(torch::nn::Module& module, const NamedTensors& anchor, L2SpOptions options = {});

  void before_step() override;
  std::optional<StepPlan> next_step() const override { return StepPlan(); }

 private:
  L2SpOptions options_;
};

}  // namespace tpgm
