#include "tpgm/methods/wise.h"

#include <ATen/ops/full.h>

#include <cmath>

namespace tpgm {

Wise::Wise(torch::nn::Module& module, WiseOptions options)
    : Wise(module, named_tensors(module), std::move(options)) {}

Wise::Wise(torch::nn::Module& module, const NamedTensors& anchor, WiseOptions options)
    : AnchoredMethod("Wise", select_with_buffers("Wise", module, anchor, options.exclude()), Norm::kL2,
                     options.anchor_storage()),
      options_(std::move(options)) {
  TORCH_CHECK(std::isfinite(options_.ratio()), "[Wise] ratio must be a number, and is ", options_.ratio());
}

void Wise::finish(const Closure&) {
  TORCH_CHECK(!finished_, "[Wise] finish() was called before; the model is interpolated already");
  constraints_.measure();
  constraints_.interpolate(at::full({constraints_.size()}, options_.ratio(), constraints_.scalar_options()));
  constraints_.check();
  finished_ = true;
}

NamedTensors Wise::state_dict() const {
  auto state = AnchoredMethod::state_dict();
  put(state, "finished", finished_);
  return state;
}

void Wise::load_state_dict(const NamedTensors& state) {
  AnchoredMethod::load_state_dict(state);
  finished_ = get_int(state, "finished") != 0;
}

}  // namespace tpgm
