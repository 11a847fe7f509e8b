#include "tpgm/methods/lp_ft.h"

#include <ATen/ops/scalar_tensor.h>

namespace tpgm {

namespace {

// Checked before the model is touched.
LpFtOptions checked(LpFtOptions options) {
  TORCH_CHECK(options.lp_steps() >= 0, "[LpFt] lp_steps must be at least 0, not ", options.lp_steps());
  return options;
}

}  // namespace

LpFt::LpFt(const ModuleView& model, LpFtOptions options)
    : options_(checked(std::move(options))), lp_(model, SubsetOptions().head(options_.head())) {}

void LpFt::start_fine_tuning() {
  lp_.unfreeze();
  probing_ = false;
}

void LpFt::after_step(const Closure&) {
  if (++step_ == options_.lp_steps()) start_fine_tuning();
}

NamedTensors LpFt::state_dict() const {
  NamedTensors state;
  state.insert("step", at::scalar_tensor(step_, at::kLong));
  state.insert("probing", at::scalar_tensor(probing_, at::kBool));
  return state;
}

void LpFt::load_state_dict(const NamedTensors& state) {
  TORCH_CHECK(state.contains("step") && state.contains("probing"),
              "[LpFt] the state has no 'step' or 'probing'; it was not saved by this method");
  const bool probing = state["probing"].item<bool>();
  TORCH_CHECK(probing_ || !probing,
              "[LpFt] cannot go back to probing; build the method anew, then load the state");
  if (!probing) start_fine_tuning();
  step_ = state["step"].item<int64_t>();
}

}  // namespace tpgm
