#include "tpgm/methods/spd.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>

#include <cmath>

namespace tpgm {
Spd::Spd(const ModuleView& model, SpdOptions options)
    : Spd(model, model.named_parameters(), std::move(options)) {}

Spd::Spd(const ModuleView& model, const NamedTensors& anchor, SpdOptions options)
    : AnchoredMethod("Spd", model, anchor, options, Norm::kL2), options_(std::move(options)) {
  TORCH_CHECK(options_.lambda() >= 0 && std::isfinite(options_.lambda()),
              "[Spd] lambda must be at least 0, not ", options_.lambda());
}

void Spd::before_step() {
  poll();
  // Only the sign of ⟨g, Δ⟩ matters, and the radius gradient ⟨g, Δ⟩ / n has the same. With all rows counted
  // it does not depend on the radii.
  auto [radius_gradients, distance] = displacements_.measure_radius_gradients(
      displacements_.gradients(), displacements_.largest(), Rows::kAll);
  distance_before_ = std::move(distance);
  astray_ = radius_gradients > 0;
}

void Spd::after_step(const Closure&) {
  TORCH_CHECK(astray_, "[Spd] after_step() without before_step(); call it after backward()");
  displacements_.measure();
  const auto& distance = displacements_.largest();
  const auto added = at::clamp((distance - distance_before_) / distance, 0, 1);
  const auto pulled = astray_->logical_and(distance > 0);
  displacements_.interpolate(at::where(pulled, 1 - options_.lambda() * added, at::ones_like(distance)));
  astray_.reset();
  distance_before_.reset();
  post();
}

void Spd::load_state_dict(const NamedTensors& state) {
  AnchoredMethod::load_state_dict(state);
  astray_.reset();
}

}  // namespace tpgm
