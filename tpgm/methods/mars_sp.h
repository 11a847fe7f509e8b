// MARS-SP: one fixed radius for every tensor (Gouk et al., ICLR 2021).
#pragma once

#include <torch/arg.h>

#include <string>
#include <vector>

#include "tpgm/methods/anchored_method.h"
#include "tpgm/methods/options.h"

namespace tpgm {

struct MarsSpOptions {
  /// The radius of every tensor; "inf" is plain fine-tuning. The paper's best: 64 (CLIP), 16 (MoCo-v3).
  TORCH_ARG(double, radius) = 64;
  TORCH_ARG(Norm, norm) = Norm::kMars;
  TORCH_ARG(std::vector<std::string>, exclude);
  TORCH_ARG(AnchorStorage, anchor_storage) = AnchorStorage::kWeights;

 public:
  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("radius", self.radius(), "radius of every tensor");
    visit("norm", self.norm(), "norm of the distance from the anchor");
    visit("exclude", self.exclude(), "parameters to leave unconstrained");
    visit("anchor_storage", self.anchor_storage(),
          "where to keep the anchor: in the weights' type, in bf16, or in host memory");
  }
};

/// Projects every tensor into the same fixed radius after every step.
class MarsSp final : public AnchoredMethod {
 public:
  using Options = MarsSpOptions;

  explicit MarsSp(torch::nn::Module& module, MarsSpOptions options = {});
  MarsSp(torch::nn::Module& module, const NamedTensors& anchor, MarsSpOptions options = {});

  void after_step(const Closure& radius_loss) override;
  std::optional<StepPlan> next_step() const override { return StepPlan(); }

 private:
  at::Tensor radii_;
};

}  // namespace tpgm
