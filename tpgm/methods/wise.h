// WISE: interpolation between the pre-trained and the fine-tuned model (Wortsman et al., CVPR 2022).
#pragma once

#include <torch/arg.h>

#include <string>
#include <vector>

#include "tpgm/methods/anchored_method.h"

namespace tpgm {

struct WiseOptions : AnchoredOptions<WiseOptions> {
  /// 0 is the pre-trained model, 1 the fine-tuned one.
  TORCH_ARG(double, ratio) = 0.5;

 public:
  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("ratio", self.ratio(), "interpolation ratio; 0: the pre-trained model, 1: the fine-tuned model");
    visit_anchored(self, visit, "parameters and buffers to keep as fine-tuned");
  }
};

/// Plain fine-tuning. finish() then replaces all parameters and floating-point buffers (also BatchNorm's
/// running statistics) by θ₀ + ratio · (θ − θ₀). Integer buffers are not changed.
class Wise final : public AnchoredMethod {
 public:
  using Options = WiseOptions;

  explicit Wise(const ModuleView& model, WiseOptions options = {});
  /// `anchor` must contain the buffers, too.
  Wise(const ModuleView& model, const NamedTensors& anchor, WiseOptions options = {});

  /// May be called only once: a second call would interpolate again.
  void finish(const Closure& radius_loss) override;
  std::optional<StepPlan> next_step() const override { return StepPlan(); }
  NamedTensors state_dict() const override;
  void load_state_dict(const NamedTensors& state) override;

 private:
  WiseOptions options_;
  bool finished_ = false;
};

}  // namespace tpgm
