// SPD, selective projection decay: weight decay towards the anchor for tensors whose gradient asks for it
// (Tian et al., NeurIPS 2024).
#pragma once

#include <torch/arg.h>

#include <optional>
#include <string>
#include <vector>

#include "tpgm/methods/anchored_method.h"

namespace tpgm {

struct SpdOptions : AnchoredOptions<SpdOptions> {
  /// λ, the strength of the decay; the authors sweep 0.5 to 3.
  TORCH_ARG(double, lambda) = 1;

 public:
  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("lambda", self.lambda(), "strength of the decay");
    visit_anchored(self, visit);
  }
};

/// After the optimizer's step to θ̂, a tensor with ⟨g, θ_{t−1} − θ₀⟩ > 0 (moving towards the anchor would
/// lower the loss) moves back towards the anchor by the factor λ·r. Here r = clamp((n̂ − n_{t−1}) / n̂, 0, 1)
/// is the share of its distance that this step added. Other tensors are not changed. The state
/// between steps is only for diagnosis().
class Spd final : public AnchoredMethod, public HasDiagnosis {
 public:
  using Options = SpdOptions;

  explicit Spd(const ModuleView& model, SpdOptions options = {});
  Spd(const ModuleView& model, const NamedTensors& anchor, SpdOptions options = {});

  void before_step() override;
  void after_step(const Closure& radius_loss) override;
  std::optional<StepPlan> next_step() const override { return StepPlan(); }
  NamedTensors state_dict() const override;
  void load_state_dict(const NamedTensors& state) override;
  /// Finding::kNoEffect if a step takes back less than a hundredth of what it adds to the distances.
  std::optional<Diagnosis> diagnosis() override;

 private:
  SpdOptions options_;
  std::optional<at::Tensor> astray_;  // whether each tensor moves back in the present step
  at::Tensor distance_before_;        // n_{t−1} of each tensor
  at::Tensor grown_, taken_back_;  // by how much each distance grew in the last step, and how much of it went
};

}  // namespace tpgm
