#include "tpgm/methods/mars_sp.h"

#include <ATen/ops/full.h>

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

}  // namespace tpgm
