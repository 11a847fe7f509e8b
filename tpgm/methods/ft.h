// FT: plain fine-tuning of all layers, the baseline.
#pragma once

#include "tpgm/core/module_view.h"
#include "tpgm/methods/method.h"

namespace tpgm {

struct FtOptions {
  template <class Self, class Visit>
  static void fields(Self&, Visit&&) {}
};

/// Does nothing. With it, a training loop always has a method.
class Ft final : public Method, public Capturable {
 public:
  using Options = FtOptions;

  explicit Ft(const ModuleView&, FtOptions = {}) {}

  std::optional<StepPlan> next_step() const override { return StepPlan(); }
};

}  // namespace tpgm
