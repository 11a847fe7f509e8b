#include "tpgm/methods/mars_sp.h"

#include <ATen/ops/full.h>

namespace tpgm {
MarsSp::MarsSp(torch::nn::Module& module, MarsSpOptions options)
    : MarsSp(module, module.named_parameters(), std::move(options)) {}

MarsSp::MarsSp(torch::nn::Module& module, const NamedTensors& anchor, MarsSpOptions options)
    : AnchoredMethod("MarsSp", module, anchor, options.exclude(), options.norm(), options.anchor_storage()),
      radii_(at::full({constraints_.size()}, options.radius(), constraints_.scalar_options())) {
  TORCH_CHECK(options.radius() > 0, "[MarsSp] radius must be positive, and is ", options.radius());
}

void MarsSp::after_step(const Closure&) {
  constraints_.poll();
  constraints_.measure();
  constraints_.project(radii_);
  constraints_.post();
}

}  // namespace tpgm
