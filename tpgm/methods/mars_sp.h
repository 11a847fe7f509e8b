// MARS-SP: one fixed radius for every tensor (Gouk et al., ICLR 2021).
#pragma once

#include <torch/arg.h>

#include <string>
#include <vector>

#include "tpgm/methods/anchored_method.h"

namespace tpgm {

struct MarsSpOptions : AnchoredOptions<MarsSpOptions> {
  /// The radius of every tensor; "inf" is plain fine-tuning. The paper's best: 64 (CLIP), 16 (MoCo-v3).
  TORCH_ARG(double, radius) = 64;
  TORCH_ARG(Norm, norm) = Norm::kMars;

 public:
  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("radius", self.radius(), "radius of every tensor");
    visit("norm", self.norm(), "norm of the distance from the anchor");
    visit_anchored(self, visit);
  }
};

/// Projects every tensor into the same fixed radius after every step.
class MarsSp final : public AnchoredMethod, public HasDiagnosis {
 public:
  using Options = MarsSpOptions;

  explicit MarsSp(const ModuleView& model, MarsSpOptions options = {});
  MarsSp(const ModuleView& model, const NamedTensors& anchor, MarsSpOptions options = {});

  void after_step(const Closure& radius_loss) override;
  std::optional<StepPlan> next_step() const override { return StepPlan(); }
  /// Finding::kNoEffect if no tensor reaches the radius.
  std::optional<Diagnosis> diagnosis() override;

 private:
  at::Tensor radii_;
};

}  // namespace tpgm
