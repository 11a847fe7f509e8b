#include "tpgm/methods/spd.h"

#include <ATen/ops/clamp.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>

#include <cmath>

namespace tpgm {
Spd::Spd(torch::nn::Module& module, SpdOptions options)
    : Spd(module, module.named_parameters(), std::move(options)) {}

Spd::Spd(torch::nn::Module& module, const NamedTensors& anchor, SpdOptions options)
    : AnchoredMethod("Spd", module, anchor, options.exclude(), Norm::kL2, options.anchor_storage()),
      options_(std::move(options)) {
  TORCH_CHECK(options_.lambda() >= 0 && std::isfinite(options_.lambda()),
              "[Spd] lambda must not be negative, and is ", options_.lambda());
}

void Spd::before_step() {
  constraints_.poll();
  // The slope is ⟨g, Δ⟩ / n, of which only the sign matters; the radii do not, because all rows count.
  auto [slopes, distance] =
      constraints_.measure_slopes(constraints_.gradients(), constraints_.largest(), kernels::Rows::kAll);
  distance_before_ = std::move(distance);
  astray_ = slopes > 0;
}

void Spd::after_step(const Closure&) {
  TORCH_CHECK(astray_, "[Spd] after_step() without before_step(); call it after backward()");
  constraints_.measure();
  const auto& distance = constraints_.largest();
  const auto added = at::clamp((distance - distance_before_) / distance, 0, 1);
  const auto pulled = astray_->logical_and(distance > 0);
  constraints_.interpolate(at::where(pulled, 1 - options_.lambda() * added, at::ones_like(distance)));
  astray_.reset();
  distance_before_.reset();
  constraints_.post();
}

void Spd::load_state_dict(const NamedTensors& state) {
  AnchoredMethod::load_state_dict(state);
  astray_.reset();
}

}  // namespace tpgm
