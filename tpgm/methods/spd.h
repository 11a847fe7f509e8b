// SPD, selective projection decay: weight decay towards the anchor where the step went astray (Tian et al.,
// 2024).
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

/// After the optimizer's step θ̂, a tensor whose gradient points away from the anchor (⟨g, θ_{t−1} − θ₀⟩ > 0:
/// going back would lower the loss) is pulled back by λ·r, r = clamp((n̂ − n_{t−1}) / n̂, 0, 1), the share of
/// its distance that this step added. Others are left alone. Keeps no state from step to step.
class Spd final : public AnchoredMethod {
 public:
  using Options = SpdOptions;

  explicit Spd(const ModuleView& model, SpdOptions options = {});
  Spd(const ModuleView& model, const NamedTensors& anchor, SpdOptions options = {});

  void before_step() override;
  void after_step(const Closure& radius_loss) override;
  std::optional<StepPlan> next_step() const override { return StepPlan(); }
  void load_state_dict(const NamedTensors& state) override;

 private:
  SpdOptions options_;
  std::optional<at::Tensor> astray_;  // per tensor, for the step under way
  at::Tensor distance_before_;        // the same
};

}  // namespace tpgm
