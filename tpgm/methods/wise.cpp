#include "tpgm/methods/wise.h"

#include <ATen/ops/full.h>

#include <cmath>

#include "tpgm/base/call.h"

namespace tpgm {

Wise::Wise(const ModuleView& model, WiseOptions options)
    : Wise(model, named_tensors(model), std::move(options)) {}

Wise::Wise(const ModuleView& model, const NamedTensors& anchor, WiseOptions options) try
    : AnchoredMethod("Wise", select_with_buffers(model, anchor, options.exclude()), Norm::kL2,
                     options.anchor_storage()),
      options_(std::move(options)) {
  TORCH_CHECK(std::isfinite(options_.ratio()), "ratio must be a finite number, not ", options_.ratio());
} catch (...) {
  rethrow_from("Wise");
}

void Wise::finish(const Closure&) {
  TORCH_CHECK(!finished_, "[Wise] finish() was called before; the model is interpolated already");
  displacements_.measure();
  displacements_.interpolate(
      at::full({displacements_.size()}, options_.ratio(), displacements_.scalar_options()));
  displacements_.flag().check();
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
