#include "tpgm/methods/spd.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include <cmath>

namespace tpgm {
Spd::Spd(const ModuleView& model, SpdOptions options)
    : Spd(model, model.named_parameters(), std::move(options)) {}

Spd::Spd(const ModuleView& model, const NamedTensors& anchor, SpdOptions options)
    : AnchoredMethod("Spd", model, anchor, options, Norm::kL2),
      options_(std::move(options)),
      grown_(at::zeros({displacements_.size()}, displacements_.scalar_options())),
      taken_back_(at::zeros_like(grown_)) {
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
  const auto ratios = at::where(pulled, 1 - options_.lambda() * added, at::ones_like(distance));
  displacements_.interpolate(ratios);
  grown_.copy_(at::clamp_min(distance - distance_before_, 0));
  taken_back_.copy_((1 - ratios) * distance);
  astray_.reset();
  distance_before_.reset();
  post();
}

std::optional<HasDiagnosis::Diagnosis> Spd::diagnosis() {
  constexpr double kLittle = 0.01;
  const double grown = grown_.sum().item<double>(), back = taken_back_.sum().item<double>();
  if (grown == 0 || back >= kLittle * grown) return std::nullopt;
  return Diagnosis{
      Finding::kNoEffect,
      fmt::format("the last step took back {:.2g} % of what it added to the distances", 100 * back / grown),
      "a larger `lambda`, or another method: few gradients point back to the pre-trained weights"};
}

NamedTensors Spd::state_dict() const {
  auto state = AnchoredMethod::state_dict();
  state.insert("grown", grown_.cpu().clone());
  state.insert("taken_back", taken_back_.cpu().clone());
  return state;
}

void Spd::load_state_dict(const NamedTensors& state) {
  AnchoredMethod::load_state_dict(state);
  astray_.reset();
  load_numbers(state, "grown", grown_);
  load_numbers(state, "taken_back", taken_back_);
}

}  // namespace tpgm
