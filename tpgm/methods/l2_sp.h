// L2-SP: a penalty on the squared distance from the anchor (Li et al., ICML 2018).
#pragma once

#include <torch/arg.h>

#include <string>
#include <vector>

#include "tpgm/methods/anchored_method.h"

namespace tpgm {

struct L2SpOptions : AnchoredOptions<L2SpOptions> {
  /// Weight of the penalty. The paper's best: 1e-2 (CLIP), 1e-3 (MoCo-v3).
  TORCH_ARG(double, mu) = 1e-2;

 public:
  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("mu", self.mu(), "weight of the squared distance in the loss");
    visit_anchored(self, visit);
  }
};

/// Trains on loss + mu · ‖θ − θ₀‖² by adding 2·mu·(θ − θ₀) to the gradients before the step of the optimizer.
/// Parameters without a gradient get one. After an error (NaN or Inf) the gradients are undefined: zero them.
class L2Sp final : public AnchoredMethod, public HasDiagnosis {
 public:
  using Options = L2SpOptions;

  explicit L2Sp(const ModuleView& model, L2SpOptions options = {});
  L2Sp(const ModuleView& model, const NamedTensors& anchor, L2SpOptions options = {});

  void before_step() override;
  std::optional<StepPlan> next_step() const override { return StepPlan(); }
  NamedTensors state_dict() const override;
  void load_state_dict(const NamedTensors& state) override;
  /// Finding::kNoEffect if the gradient of the penalty is less than a thousandth of the loss's gradient along
  /// the displacement.
  std::optional<Diagnosis> diagnosis() override;

 private:
  L2SpOptions options_;
  at::Tensor distances_, along_;  // of each tensor: ‖Δ‖, and the gradient of the loss along Δ
};

}  // namespace tpgm
