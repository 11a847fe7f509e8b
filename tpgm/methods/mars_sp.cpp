#include "tpgm/methods/mars_sp.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>

namespace tpgm {
MarsSp::MarsSp(const ModuleView& model, MarsSpOptions options)
    : MarsSp(model, model.named_parameters(), std::move(options)) {}

MarsSp::MarsSp(const ModuleView& model, const NamedTensors& anchor, MarsSpOptions options)
    : AnchoredMethod("MarsSp", model, anchor, options, options.norm()),
      radii_(at::full({displacements_.size()}, options.radius(), displacements_.scalar_options())) {
  TORCH_CHECK(options.radius() > 0, "[MarsSp] radius must be positive, not ", options.radius());
}

void MarsSp::after_step(const Closure&) {
  poll();
  displacements_.measure();
  displacements_.project(radii_);
  post();
}

std::optional<HasDiagnosis::Diagnosis> MarsSp::diagnosis() {
  constexpr double kRounding = 1e-3;  // of projected weights
  displacements_.measure();
  check();
  const double farthest = displacements_.largest().max().item<double>(), radius = radii_[0].item<double>();
  if (farthest == 0 || farthest >= (1 - kRounding) * radius) return std::nullopt;
  return Diagnosis{
      Finding::kNoEffect,
      fmt::format("no tensor reaches the radius {:.3g}, the farthest is at {:.3g}", radius, farthest),
      fmt::format("a `radius` well below {:.2g}", farthest)};
}

}  // namespace tpgm
