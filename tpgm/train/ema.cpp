// One pass over average and weights per type: lerp reads both once and writes once.
#include "tpgm/train/ema.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <unordered_set>

#include "tpgm/base/names.h"

namespace tpgm {
namespace {

constexpr const char* kUpdates = ".updates";  // no name of a tensor begins with a dot
constexpr double kPower = 2.0 / 3;            // of timm's warm-up

}  // namespace

Ema::Ema(torch::nn::Module& module, double decay, bool warmup) : decay_(decay), warmup_(warmup) {
  TORCH_CHECK(decay >= 0 && decay < 1, "[Ema] decay must be at least 0 and less than 1, not ", decay);
  const at::NoGradGuard no_grad;
  std::unordered_set<const at::TensorImpl*> seen;
  for (const auto& item : named_tensors(module)) {
    const at::Tensor& weights = item.value();
    if (!weights.defined() || !seen.insert(weights.unsafeGetTensorImpl()).second) continue;
    const auto average = weights.detach().clone();
    weights_.insert(item.key(), weights);
    averages_.insert(item.key(), average);
    Pairs* pairs = &others_;
    if (weights.is_floating_point()) {
      // Tensors of several types in one call would be worked on one by one.
      auto place = std::find_if(floating_.begin(), floating_.end(), [&](const Pairs& each) {
        return each.averages[0].scalar_type() == average.scalar_type() &&
               each.averages[0].device() == average.device();
      });
      if (place == floating_.end()) place = floating_.insert(place, Pairs{});
      pairs = &*place;
    }
    pairs->weights.push_back(weights);
    pairs->averages.push_back(average);
  }
}

void Ema::update() {
  TORCH_CHECK(!swapped_,
              "[Ema::update] the module holds the average; call swap() once more before training continues");
  const at::NoGradGuard no_grad;
  double decay = decay_;
  if (warmup_) decay = std::min(decay, 1 - std::pow(1 + static_cast<double>(updates_), -kPower));
  for (const Pairs& pairs : floating_) at::_foreach_lerp_(pairs.averages, pairs.weights, 1 - decay);
  ++updates_;
  if (!others_.weights.empty()) at::_foreach_copy_(others_.averages, others_.weights);
}

void Ema::swap() {
  const at::NoGradGuard no_grad;
  // By values, not by storages, because captured graphs and methods hold addresses of the weights. One by one,
  // so that the room for one tensor is enough.
  for (size_t k = 0; k < weights_.size(); ++k) {
    at::Tensor weights = weights_[k].value(), average = averages_[k].value();
    const auto held = weights.clone();
    weights.copy_(average);
    average.copy_(held);
  }
  swapped_ = !swapped_;
}

NamedTensors Ema::state_dict() const {
  NamedTensors state;
  for (const auto& item : swapped_ ? weights_ : averages_) {
    state.insert(item.key(), item.value().detach().to(at::kCPU, item.value().scalar_type(),
                                                      /*non_blocking=*/false, /*copy=*/true));
  }
  if (warmup_) state.insert(kUpdates, at::scalar_tensor(updates_, at::kLong));
  return state;
}

void Ema::load_state_dict(const NamedTensors& state) {
  const std::string call = "[Ema::load_state_dict] ";
  TORCH_CHECK(!swapped_, call, "the module holds the average; call swap() once more before loading another");
  for (const auto& item : averages_) {
    const at::Tensor* value = state.find(item.key());
    TORCH_CHECK(value != nullptr, call, "the state has no '", item.key(), "'; it is of another model");
    TORCH_CHECK(value->sizes() == item.value().sizes() && value->scalar_type() == item.value().scalar_type(),
                call, "'", item.key(), "' is ", value->scalar_type(), " ", value->sizes(),
                " in the state and ", item.value().scalar_type(), " ", item.value().sizes(),
                " in the model; load the state of this one");
  }
  const at::Tensor* updates = warmup_ ? state.find(kUpdates) : nullptr;
  TORCH_CHECK(!updates || (updates->numel() == 1 && updates->scalar_type() == at::kLong), call, "'", kUpdates,
              "' is not a count; the state is damaged");
  for (const auto& item : state) {
    TORCH_CHECK(averages_.contains(item.key()) || (updates && item.key() == kUpdates), call,
                "the model has no '", item.key(), "'", the_nearest(item.key(), averages_.keys()),
                ". The state is of another model");
  }
  const at::NoGradGuard no_grad;
  for (auto& item : averages_) item.value().copy_(state[item.key()]);
  updates_ = updates ? updates->item<int64_t>() : std::numeric_limits<int64_t>::max() / 2;
}

}  // namespace tpgm
