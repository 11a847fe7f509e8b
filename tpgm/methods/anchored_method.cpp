#include "tpgm/methods/anchored_method.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/util/Exception.h>

#include <cmath>

namespace tpgm {

AnchoredMethod::AnchoredMethod(const std::string& name, const std::vector<Selected>& selected, Norm norm,
                               AnchorStorage storage)
    : name_(name), displacements_(name_, selected, norm, storage) {}

double AnchoredMethod::relative_distance() const {
  double moved = 0, anchor = 0;
  for (size_t i = 0; i < displacements_.tensors().size(); ++i) {
    const at::Tensor now = displacements_.tensors()[i].detach().to(at::kDouble);
    const at::Tensor before = displacements_.anchors()[i].to(now.options());
    moved += (now - before).square().sum().item<double>();
    anchor += before.square().sum().item<double>();
  }
  return std::sqrt(moved / anchor);
}

void AnchoredMethod::finish(const Closure&) { displacements_.flag().check(); }

void AnchoredMethod::replayed() {
  poll();
  post();
}

NamedTensors AnchoredMethod::state_dict() const {
  NamedTensors state;
  state.insert("method." + name_, at::scalar_tensor(1, at::kLong));
  put(state, "norm", static_cast<int64_t>(displacements_.norm()));
  put(state, "anchor", displacements_.anchor_fingerprint());
  return state;
}

void AnchoredMethod::load_state_dict(const NamedTensors& state) {
  get_int(state, "method." + name_);
  TORCH_CHECK(get_int(state, "norm") == static_cast<int64_t>(displacements_.norm()), "[", name_,
              "] the state was saved with another norm; build the method with the same options");
  TORCH_CHECK(
      get_int(state, "anchor") == displacements_.anchor_fingerprint(), "[", name_,
      "] the state belongs to another anchor. Build the method while the model holds the pre-trained weights "
      "(or give it them), with the same exclude and anchor_storage, and load the checkpoint after that");
}

void AnchoredMethod::put(NamedTensors& state, const std::string& name, int64_t value) {
  state.insert(name, at::scalar_tensor(value, at::kLong));
}

void AnchoredMethod::load_numbers(const NamedTensors& state, const std::string& name,
                                  at::Tensor& numbers) const {
  const auto* saved = state.find(name);
  TORCH_CHECK(!saved || saved->sizes() == numbers.sizes(), "[", name_, "] the state has '", name,
              "' of another number of tensors; it was saved for another model");
  saved ? numbers.copy_(*saved) : numbers.zero_();
}

int64_t AnchoredMethod::get_int(const NamedTensors& state, const std::string& name) const {
  const auto* value = state.find(name);
  TORCH_CHECK(value && value->numel() == 1 && value->scalar_type() == at::kLong, "[", name_,
              "] the state has no '", name, "'; it was not saved by this method");
  return value->item<int64_t>();
}

}  // namespace tpgm
