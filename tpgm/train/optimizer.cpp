// Sorts the parameters of each group into the lists of tensors that LibTorch's fused kernels take. The
// kernels assume that parameter, gradient and state have the same strides and do not check it; this file
// makes it so.
#include "tpgm/train/optimizer.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "tpgm/base/call.h"
#include "tpgm/base/names.h"
#include "tpgm/core/cuda_stream.h"
#include "tpgm/core/memory_order.h"
#include "tpgm/train/optimizers/algorithm.h"

namespace tpgm {
namespace {

constexpr const char* kAlgorithm = "optimizer";  // the key of a state dict that has the number of its Opt

// What is kept for a parameter, in the order of the algorithm's state(). Empty before its first step.
using State = std::vector<at::Tensor>;

bool is_non_negative(double value) { return value >= 0 && std::isfinite(value); }

// `tensor` with the strides of `like`; a copy only if its elements are in another order.
at::Tensor laid_out_as(const at::Tensor& tensor, const at::Tensor& like) {
  if (tensor.strides() == like.strides()) return tensor;
  if (same_order(tensor, like)) return tensor.as_strided(like.sizes(), like.strides());
  return empty_in_order_of(like, tensor.scalar_type()).copy_(tensor);
}

// The first that fits, or a new one.
template <class Batches, class Fits>
auto& find_or_add(Batches& batches, Fits&& fits) {
  const auto place = std::find_if(batches.begin(), batches.end(), fits);
  return place != batches.end() ? *place : batches.emplace_back();
}

bool alike(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.device() == b.device();
}

void check_options(const OptimOptions& options) {
  TORCH_CHECK(is_non_negative(options.momentum()), "momentum must be at least 0, not ", options.momentum());
  for (const double beta : options.betas()) {
    TORCH_CHECK(beta >= 0 && beta < 1, "betas must be at least 0 and less than 1, not ", beta);
  }
  TORCH_CHECK(is_non_negative(options.eps()), "eps must be at least 0, not ", options.eps());
}

void check_parameter(const std::string& name, const at::Tensor& parameter) {
  TORCH_CHECK(parameter.layout() == at::kStrided && parameter.is_non_overlapping_and_dense(), "parameter '",
              name, "' is not dense: it is sparse, or a slice of another tensor; give a clone of it");
}

void check_groups(const std::vector<ParameterGroup>& groups) {
  std::unordered_set<std::string> names;
  std::unordered_map<const at::TensorImpl*, std::string> seen;
  for (const ParameterGroup& group : groups) {
    TORCH_CHECK(is_non_negative(group.lr_scale), "lr_scale must be at least 0, not ", group.lr_scale);
    TORCH_CHECK(is_non_negative(group.weight_decay), "weight_decay must be at least 0, not ",
                group.weight_decay);
    for (const auto& item : group.parameters) {
      const auto& [name, parameter] = item.pair();
      TORCH_CHECK(parameter.defined() && parameter.is_floating_point() && parameter.is_leaf(), "'", name,
                  "' is not a parameter: give floating-point leaves, as a module has them");
      check_parameter(name, parameter);
      TORCH_CHECK(names.insert(name).second, "parameter '", name, "' is in two groups; give it in one");
      const auto [place, is_new] = seen.emplace(parameter.unsafeGetTensorImpl(), name);
      TORCH_CHECK(is_new, "'", place->second, "' and '", name,
                  "' are the same tensor and would take every step twice; give it once");
    }
  }
}

// The learning rates of the groups on a CUDA device, where captured steps read them.
struct DeviceRates {
  at::Device device;
  at::Tensor lr, scales;   // lr as it is set, and lr_scale of each group; float64
  at::Tensor group_rates;  // lr · scales, float32 as the kernels take them
};

}  // namespace

struct Optimizer::Impl {
  std::vector<ParameterGroup> groups;
  OptimOptions options;
  OptimizerAlgorithm algorithm;
  std::vector<StateTensor> kept;           // what the algorithm keeps of a parameter
  std::vector<std::vector<State>> states;  // of the groups' parameters
  double lr = 0;
  std::vector<DeviceRates> rates;  // of the CUDA devices that have parameters
  int64_t generation = 0;

  void reset() {
    ++generation;
    states.clear();
    for (const ParameterGroup& group : groups) {
      states.emplace_back(group.parameters.size());
    }
  }

  // Created at the first use, because the module may move before its first step.
  DeviceRates& rates_on(at::Device device) {
    for (DeviceRates& each : rates) {
      if (each.device == device) return each;
    }
    std::vector<double> scales;
    for (const ParameterGroup& group : groups) scales.push_back(group.lr_scale);
    const auto options = at::TensorOptions(at::kDouble).device(device);
    return rates.emplace_back(device, at::zeros({}, options).fill_(lr),
                              at::tensor(scales, at::kDouble).to(device),
                              at::zeros({static_cast<int64_t>(groups.size())}, options.dtype(at::kFloat)));
  }

  std::vector<ParameterBatch> batches(size_t g) {
    std::vector<ParameterBatch> result;
    const auto& parameters = groups[g].parameters;
    for (size_t k = 0; k < parameters.size(); ++k) {
      const std::string& name = parameters[k].key();
      const at::Tensor& parameter = parameters[k].value();
      const at::Tensor& gradient = parameter.grad();
      if (!gradient.defined()) continue;
      check_parameter(name, parameter);
      TORCH_CHECK(gradient.layout() == at::kStrided, "the gradient of '", name, "' is sparse; make it dense");
      State& state = states[g][k];
      const bool first_step = state.size() < kept.size();
      if (first_step) {
        TORCH_CHECK(!capturing(parameter.device()), "'", name,
                    "' has its first gradient in a step that is being captured; take one before");
        state.clear();
        for (const StateTensor& each : kept) {
          state.push_back(each.is_step_count
                              ? at::zeros({}, parameter.options().dtype(at::kFloat).requires_grad(false))
                              : at::zeros_like(parameter));
        }
      }
      ParameterBatch& batch = find_or_add(result, [&](const ParameterBatch& each) {
        return alike(each.parameters[0], parameter) && each.first_step == first_step;
      });
      batch.first_step = first_step;
      batch.state.resize(kept.size());
      batch.parameters.push_back(parameter);
      batch.gradients.push_back(laid_out_as(gradient, parameter));
      for (size_t i = 0; i < kept.size(); ++i) {
        if (!kept[i].is_step_count) {
          TORCH_CHECK(alike(state[i], parameter), "'", name, "' is ", parameter.scalar_type(), " on ",
                      parameter.device(), ", its state ", state[i].scalar_type(), " on ", state[i].device(),
                      "; call reset(), or build the optimizer after moving the model");
          state[i] = laid_out_as(state[i], parameter);
        }
        batch.state[i].push_back(state[i]);
      }
    }
    return result;
  }
};

Optimizer::Optimizer(std::vector<ParameterGroup> groups, const OptimOptions& options) try
    : impl_(std::make_unique<Impl>()) {
  check_options(options);
  check_groups(groups);
  impl_->groups = std::move(groups);
  impl_->options = options;
  impl_->algorithm = algorithm_of(options.opt());
  impl_->kept = impl_->algorithm.state(options);
  reset();
} catch (...) {
  rethrow_from("Optimizer");
}

Optimizer::~Optimizer() = default;

void Optimizer::step(double lr) {
  set_lr(lr);
  step();
}

void Optimizer::set_lr(double lr) {
  TORCH_CHECK(is_non_negative(lr), "[Optimizer::set_lr] the learning rate must be at least 0, not ", lr);
  impl_->lr = lr;
  for (const DeviceRates& rates : impl_->rates) rates.lr.fill_(lr);
}

void Optimizer::step() try {
  const at::NoGradGuard no_grad;
  std::vector<at::Device> computed;  // devices whose group_rates are those of this step
  for (size_t g = 0; g < impl_->groups.size(); ++g) {
    const double weight_decay = impl_->groups[g].weight_decay;
    for (ParameterBatch& batch : impl_->batches(g)) {
      const at::Device device = batch.parameters[0].device();
      if (device.is_cpu()) {
        impl_->algorithm.step(batch, impl_->options, weight_decay, impl_->lr * impl_->groups[g].lr_scale);
        continue;
      }
      DeviceRates& rates = impl_->rates_on(device);
      if (std::find(computed.begin(), computed.end(), device) == computed.end()) {
        rates.group_rates.copy_(rates.lr * rates.scales);
        computed.push_back(device);
      }
      impl_->algorithm.step(batch, impl_->options, weight_decay, rates.group_rates[static_cast<int64_t>(g)]);
    }
  }
} catch (...) {
  rethrow_from("Optimizer::step");
}

void Optimizer::zero_grad() {
  for (const ParameterGroup& group : impl_->groups) {
    for (const auto& item : group.parameters) {
      item.value().mutable_grad().reset();
    }
  }
}

at::Tensor Optimizer::clip_grad_norm(double max_norm) {
  TORCH_CHECK(max_norm >= 0, "[Optimizer::clip_grad_norm] the largest norm must be at least 0, not ",
              max_norm);
  const at::NoGradGuard no_grad;
  std::vector<std::vector<at::Tensor>> batches;
  at::TensorOptions options(at::kFloat);
  for (auto group = impl_->groups.rbegin(); group != impl_->groups.rend(); ++group) {
    if (!group->parameters.is_empty()) options = options.device(group->parameters[0].value().device());
  }
  for (const ParameterGroup& group : impl_->groups) {
    for (const auto& item : group.parameters) {
      const at::Tensor& gradient = item.value().grad();
      if (!gradient.defined()) continue;
      find_or_add(batches, [&](const auto& each) { return alike(each[0], gradient); }).push_back(gradient);
    }
  }
  if (batches.empty()) return at::zeros({}, options);
  std::vector<at::Tensor> norms;
  for (const auto& gradients : batches) {
    for (const at::Tensor& norm : at::_foreach_norm(gradients)) {
      norms.push_back(norm.to(options.device()));
    }
  }
  const auto norm = at::linalg_vector_norm(at::stack(norms), 2);
  // Multiplies even if the factor is 1: to branch on it would synchronize.
  const auto factor = at::clamp((norm + 1e-6).reciprocal() * max_norm, std::nullopt, 1.0);
  for (const auto& gradients : batches) {
    at::_foreach_mul_(gradients, factor.to(gradients[0].device()));
  }
  return norm;
}

void Optimizer::reset() { impl_->reset(); }

int64_t Optimizer::generation() const { return impl_->generation; }

const std::vector<ParameterGroup>& Optimizer::groups() const { return impl_->groups; }

NamedTensors Optimizer::state_dict() const {
  NamedTensors result;
  result.insert(kAlgorithm, at::scalar_tensor(static_cast<int64_t>(impl_->options.opt()), at::kLong));
  for (size_t g = 0; g < impl_->groups.size(); ++g) {
    const auto& parameters = impl_->groups[g].parameters;
    for (size_t k = 0; k < parameters.size(); ++k) {
      const State& state = impl_->states[g][k];
      for (size_t i = 0; i < state.size(); ++i) {
        const at::Tensor& value = state[i];
        result.insert(parameters[k].key() + "." + impl_->kept[i].name,
                      value.to(at::kCPU, value.scalar_type(), /*non_blocking=*/false, /*copy=*/true));
      }
    }
  }
  return result;
}

void Optimizer::load_state_dict(const NamedTensors& state) {
  const std::string call = "[Optimizer::load_state_dict] ";
  const at::NoGradGuard no_grad;
  const Opt opt = impl_->options.opt();
  const at::Tensor* algorithm = state.find(kAlgorithm);
  TORCH_CHECK(algorithm != nullptr && algorithm->numel() == 1 && algorithm->scalar_type() == at::kLong, call,
              "the state has no '", kAlgorithm, "', and is not one of an Optimizer");
  const auto code = algorithm->item<int64_t>();
  const auto has_code = [&](const auto& each) { return static_cast<int64_t>(each.first) == code; };
  TORCH_CHECK(std::any_of(std::begin(Keywords<Opt>::all), std::end(Keywords<Opt>::all), has_code), call, "'",
              kAlgorithm, "' is ", code,
              ", which stands for no optimizer; the state is damaged or of a later version");
  TORCH_CHECK(code == static_cast<int64_t>(opt), call, "the state was saved by ",
              to_text(static_cast<Opt>(code)), ", and this is ", to_text(opt),
              "; build the optimizer with the same options");

  std::vector<std::vector<State>> loaded;
  std::unordered_set<std::string> known;
  for (const ParameterGroup& group : impl_->groups) {
    auto& states = loaded.emplace_back(group.parameters.size());
    for (size_t k = 0; k < states.size(); ++k) {
      const auto& [name, parameter] = group.parameters[k].pair();
      std::string absent;
      for (const StateTensor& each : impl_->kept) {
        const std::string key = name + "." + each.name;
        const at::Tensor* value = state.find(key);
        known.insert(key);
        if (value == nullptr) {
          absent = key;
          continue;
        }
        const auto dtype = each.is_step_count ? at::kFloat : parameter.scalar_type();
        const auto sizes = each.is_step_count ? at::IntArrayRef() : parameter.sizes();
        TORCH_CHECK(value->scalar_type() == dtype && value->sizes() == sizes, call, "'", key, "' is ",
                    value->scalar_type(), " ", value->sizes(), " in the state, and should be ", dtype, " ",
                    sizes, "; the state is of another model");
        if (each.is_step_count) {
          const auto count = value->item<float>();
          TORCH_CHECK(count >= 0 && count == std::floor(count), call, "'", key, "' is ", count,
                      ", which is not a count of steps; the state is damaged");
          states[k].push_back(
              value->to(parameter.device(), at::kFloat, /*non_blocking=*/false, /*copy=*/true));
        } else {
          states[k].push_back(at::empty_like(parameter).copy_(*value));
        }
      }
      TORCH_CHECK(states[k].empty() || absent.empty(), call, "the state has no '", absent,
                  "', only the rest of what belongs to '", name, "'; it is damaged");
    }
  }
  for (const auto& item : state) {
    if (item.key() == kAlgorithm || known.contains(item.key())) continue;
    TORCH_CHECK(!known.empty(), call, "the state has '", item.key(),
                "', and this optimizer keeps nothing: it has no momentum, or no parameters");
    TORCH_CHECK(false, call, "the state has '", item.key(), "', which is of no parameter here",
                the_nearest(item.key(), {known.begin(), known.end()}),
                ". Build the optimizer with the parameters and options that it was saved with");
  }
  impl_->states = std::move(loaded);
  ++impl_->generation;
}

int64_t state_tensors_per_parameter(const OptimOptions& options) {
  const auto kept = algorithm_of(options.opt()).state(options);
  return std::count_if(kept.begin(), kept.end(), [](const StateTensor& each) { return !each.is_step_count; });
}

}  // namespace tpgm
