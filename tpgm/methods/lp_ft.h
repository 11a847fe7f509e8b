// LP-FT: linear probing first, then fine-tuning of everything from its result (Kumar et al., ICLR 2022).
#pragma once

#include <torch/arg.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tpgm/methods/subset.h"

namespace tpgm {

struct LpFtOptions {
  TORCH_ARG(std::vector<std::string>, head) = { "head.*" };
  /// Steps of the first phase. 0: until start_fine_tuning() is called.
  TORCH_ARG(int64_t, lp_steps) = 0;

 public:
  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("head", self.head(), "parameters of the head, which always train", SetBy::kLoop);
    visit("lp_steps", self.lp_steps(),
          "steps of linear probing before fine-tuning starts; 0: the loop decides", SetBy::kLoop);
  }
};

/// The first phase is Lp. In the second phase every parameter that was trainable before trains again.
class LpFt final : public Method, public Capturable, public HasPhases {
 public:
  using Options = LpFtOptions;
  static constexpr bool kTrainsAll = false;

  explicit LpFt(const ModuleView& model, LpFtOptions options = {});

  void start_fine_tuning();
  void next_phase() override { start_fine_tuning(); }
  bool probing() const { return probing_; }

  void after_step(const Closure& radius_loss) override;
  /// All steps are of one kind: the phases differ only in the parameters that train.
  std::optional<StepPlan> next_step() const override { return StepPlan(); }
  void replayed() override { after_step(nullptr); }
  NamedTensors state_dict() const override;
  void load_state_dict(const NamedTensors& state) override;

 private:
  LpFtOptions options_;
  Lp lp_;
  int64_t step_ = 0;
  bool probing_ = true;
};

}  // namespace tpgm
