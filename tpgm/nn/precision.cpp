// Autocast and channels-last.
#include "tpgm/nn/precision.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <iterator>

namespace tpgm {
namespace {

void set(const AutocastState& state) {
  at::autocast::set_autocast_enabled(state.device, state.enabled);
  at::autocast::set_autocast_dtype(state.device, state.dtype);
  at::autocast::set_autocast_cache_enabled(state.cached);
}

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

thread_local const CastWeights* cast_weights = nullptr;

tensor_list copies_in(at::ScalarType type, at::TensorList tensors) {
  tensor_list copies;
  for (const auto& tensor : tensors) copies.push_back(at::empty_like(tensor, tensor.options().dtype(type)));
  if (!copies.empty()) at::_foreach_copy_(copies, tensors);
  return copies;
}

bool is_cast(const at::Tensor& tensor) {
  return tensor.is_cuda() && tensor.scalar_type() == at::kFloat &&
         at::autocast::is_autocast_enabled(at::kCUDA);
}

struct CastTogether : torch::autograd::Function<CastTogether> {
  static tensor_list forward(AutogradContext* context, at::TensorList weights, at::ScalarType type) {
    context->set_materialize_grads(false);
    return copies_in(type, weights);
  }

  static tensor_list backward(AutogradContext*, const tensor_list& grads) {
    tensor_list given, result(grads.size() + 1);
    for (const auto& grad : grads) {
      if (grad.defined()) given.push_back(grad);
    }
    const auto wide = copies_in(at::kFloat, given);
    for (size_t i = 0, next = 0; i < grads.size(); ++i) {
      if (grads[i].defined()) result[i] = wide[next++];
    }
    return result;
  }
};

}  // namespace

at::Tensor autocasted(const at::Tensor& tensor) {
  const auto device = tensor.device().type();
  if (!at::autocast::is_autocast_enabled(device)) return tensor;
  if (cast_weights != nullptr) {
    const auto place = cast_weights->casts_.find(tensor.unsafeGetTensorImpl());
    if (place != cast_weights->casts_.end()) return place->second;
  }
  return at::autocast::cached_cast(at::autocast::get_autocast_dtype(device), tensor, device);
}

at::Tensor value_in(at::ScalarType type, const at::Tensor& tensor) {
  if (cast_weights != nullptr) {
    const auto place = cast_weights->values_.find(tensor.unsafeGetTensorImpl());
    if (place != cast_weights->values_.end() && place->second.scalar_type() == type) return place->second;
  }
  return tensor.to(type);
}

CastWeights::CastWeights(const std::vector<at::Tensor>& weights, const std::vector<at::Tensor>& biases)
    : before_(cast_weights) {
  // Apart: autograd computes the gradients of a function for all of its arguments if one needs them.
  std::vector<at::Tensor> trained, frozen;
  for (const auto& weight : weights) {
    if (!is_cast(weight)) continue;
    (weight.requires_grad() && at::GradMode::is_enabled() ? trained : frozen).push_back(weight);
  }
  cast(trained, casts_);
  cast(frozen, casts_);
  std::vector<at::Tensor> constants;
  std::ranges::copy_if(biases, std::back_inserter(constants), is_cast);
  const at::NoGradGuard no_grad;
  cast(constants, values_);
  cast_weights = this;
}

CastWeights::~CastWeights() { cast_weights = before_; }

void CastWeights::cast(const std::vector<at::Tensor>& tensors, Casts& casts) {
  if (tensors.empty()) return;
  const auto copies =
      CastTogether::apply(at::TensorList(tensors), at::autocast::get_autocast_dtype(at::kCUDA));
  for (size_t i = 0; i < tensors.size(); ++i) casts.emplace(tensors[i].unsafeGetTensorImpl(), copies[i]);
}

AutocastState AutocastState::current(c10::DeviceType device) {
  return {device, at::autocast::is_autocast_enabled(device), at::autocast::get_autocast_dtype(device),
          at::autocast::is_autocast_cache_enabled()};
}

AutocastState AutocastState::without_cache() const { return {device, enabled, dtype, false}; }

Autocast::Autocast(c10::DeviceType device, c10::ScalarType dtype)
    : Autocast(AutocastState{device, true, dtype}) {}

Autocast::Autocast(const AutocastState& state) : before_(AutocastState::current(state.device)) {
  at::autocast::increment_nesting();
  set(state);
}

Autocast::~Autocast() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  set(before_);
}

void to_channels_last(torch::nn::Module& module) {
  const at::NoGradGuard no_grad;
  for (auto& parameter : module.parameters()) {
    if (parameter.dim() == 4) parameter.set_data(parameter.contiguous(at::MemoryFormat::ChannelsLast));
  }
}

}  // namespace tpgm
