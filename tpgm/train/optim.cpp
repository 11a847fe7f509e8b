// The groups as lists for LibTorch's fused kernels, which trust their callers: they walk over memory without
// a look at strides.
#include "tpgm/train/optim.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
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
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "tpgm/base/names.h"
#include "tpgm/core/cuda_stream.h"
#include "tpgm/core/memory_order.h"

namespace tpgm {
namespace {

constexpr const char* kWhich = "optimizer";  // the entry of a state that says whose it is
constexpr const char* kStep = "step";

// What is kept of a parameter: `first` is SGD's momentum or Adam's exp_avg. Undefined before its first step.
struct State {
  at::Tensor first, second, step;
};

// A part of the state and its name in state_dict().
struct Slot {
  const char* name;
  at::Tensor State::*tensor;
};

// Tensors that one call takes: of one type on one device, and with SGD all with a momentum or all without.
struct ParameterBatch {
  bool fresh = false;
  std::vector<at::Tensor> parameters, gradients, first, second, steps;
};

bool is_rate(double value) { return value >= 0 && std::isfinite(value); }

// `tensor` with the strides of `like`, as the kernels need it; a copy only if its elements lie otherwise.
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
  TORCH_CHECK(is_rate(options.momentum()), "[Optimizer] momentum must be at least 0, and is ",
              options.momentum());
  for (const double beta : options.betas()) {
    TORCH_CHECK(beta >= 0 && beta < 1, "[Optimizer] betas must be at least 0 and less than 1, and one is ",
                beta);
  }
  TORCH_CHECK(is_rate(options.eps()), "[Optimizer] eps must be at least 0, and is ", options.eps());
}

void check_parameter(const char* call, const std::string& name, const at::Tensor& parameter) {
  TORCH_CHECK(parameter.layout() == at::kStrided && parameter.is_non_overlapping_and_dense(), "[", call,
              "] parameter '", name,
              "' is not dense: it is sparse, or a slice of another tensor; give a clone of it");
}

void check_groups(const std::vector<ParameterGroup>& groups) {
  std::unordered_set<std::string> names;
  std::unordered_map<const at::TensorImpl*, std::string> seen;
  for (const ParameterGroup& group : groups) {
    TORCH_CHECK(is_rate(group.lr_scale), "[Optimizer] lr_scale must be at least 0, and is ", group.lr_scale);
    TORCH_CHECK(is_rate(group.weight_decay), "[Optimizer] weight_decay must be at least 0, and is ",
                group.weight_decay);
    for (const auto& item : group.parameters) {
      const auto& [name, parameter] = item.pair();
      TORCH_CHECK(parameter.defined() && parameter.is_floating_point() && parameter.is_leaf(),
                  "[Optimizer] '", name,
                  "' is no parameter: give floating-point leaves, as a module has them");
      check_parameter("Optimizer", name, parameter);
      TORCH_CHECK(names.insert(name).second, "[Optimizer] parameter '", name,
                  "' is in two groups; give it in one");
      const auto [place, is_new] = seen.emplace(parameter.unsafeGetTensorImpl(), name);
      TORCH_CHECK(is_new, "[Optimizer] '", place->second, "' and '", name,
                  "' are the same tensor and would take every step twice; give it once");
    }
  }
}

// The groups' rates on a CUDA device, where captured steps find them.
struct Rates {
  at::Device device;
  at::Tensor lr, scales;  // as they are set, in double
  at::Tensor rates;       // of the groups, as the kernels take them
};

// As torch.optim.SGD computes it tensor by tensor.
void plain_sgd(ParameterBatch& batch, const OptimOptions& options, double weight_decay, double lr) {
  auto steps = batch.gradients;
  if (weight_decay != 0) steps = at::_foreach_add(steps, batch.parameters, weight_decay);
  if (options.momentum() != 0) {
    if (batch.fresh) {
      at::_foreach_copy_(batch.first, steps);
    } else {
      at::_foreach_mul_(batch.first, options.momentum());
      at::_foreach_add_(batch.first, steps);
    }
    steps = options.nesterov() ? at::_foreach_add(steps, batch.first, options.momentum()) : batch.first;
  }
  at::_foreach_add_(batch.parameters, steps, -lr);
}

// `lr` is a number, or a tensor with one on the parameters' device.
template <class Rate>
void take_fused_step(ParameterBatch& batch, const OptimOptions& options, double weight_decay,
                     const Rate& lr) {
  const auto& [beta1, beta2] = options.betas();
  switch (options.opt()) {
    case Opt::kSgd:
      at::_fused_sgd_(batch.parameters, batch.gradients, batch.first, weight_decay, options.momentum(), lr,
                      /*dampening=*/0, options.nesterov() && options.momentum() != 0, /*maximize=*/false,
                      batch.fresh);
      return;
    case Opt::kAdam:
      at::_foreach_add_(batch.steps, 1);
      at::_fused_adam_(batch.parameters, batch.gradients, batch.first, batch.second, {}, batch.steps, lr,
                       beta1, beta2, weight_decay, options.eps(), /*amsgrad=*/false, /*maximize=*/false);
      return;
    case Opt::kAdamW:
      at::_foreach_add_(batch.steps, 1);
      at::_fused_adamw_(batch.parameters, batch.gradients, batch.first, batch.second, {}, batch.steps, lr,
                        beta1, beta2, weight_decay, options.eps(), /*amsgrad=*/false, /*maximize=*/false);
      return;
  }
}

void take_cpu_step(ParameterBatch& batch, const OptimOptions& options, double weight_decay, double lr) {
  if (options.opt() == Opt::kSgd && c10::elementSize(batch.parameters[0].scalar_type()) == 2) {
    // LibTorch's fused kernel (to 2.13 at least) moves only the elements behind the last whole vector.
    plain_sgd(batch, options, weight_decay, lr);
  } else {
    take_fused_step(batch, options, weight_decay, lr);
  }
}

}  // namespace

struct Optimizer::Impl {
  std::vector<ParameterGroup> groups;
  OptimOptions options;
  std::vector<std::vector<State>> states;  // of the groups' parameters
  double lr = 0;
  std::vector<Rates> rates;  // of the devices that have parameters, but for the CPU
  int64_t generation = 0;

  bool is_sgd() const { return options.opt() == Opt::kSgd; }
  std::vector<Slot> slots() const {
    if (!is_sgd()) return {{"exp_avg", &State::first}, {"exp_avg_sq", &State::second}, {kStep, &State::step}};
    if (options.momentum() != 0) return {{"momentum", &State::first}};
    return {};
  }

  void reset() {
    ++generation;
    states.clear();
    for (const ParameterGroup& group : groups) {
      states.emplace_back(group.parameters.size());
    }
  }

  // Made when it is first asked for: the module may move before its first step.
  Rates& rates_on(at::Device device) {
    for (Rates& each : rates) {
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
    const auto all_slots = slots();
    for (size_t k = 0; k < parameters.size(); ++k) {
      const std::string& name = parameters[k].key();
      const at::Tensor& parameter = parameters[k].value();
      const at::Tensor& gradient = parameter.grad();
      if (!gradient.defined()) continue;
      check_parameter("Optimizer::step", name, parameter);
      TORCH_CHECK(gradient.layout() == at::kStrided, "[Optimizer::step] the gradient of '", name,
                  "' is sparse; make it dense");
      State& state = states[g][k];
      const bool fresh = !all_slots.empty() && !state.first.defined();
      if (fresh) {
        TORCH_CHECK(!capturing(parameter.device()), "[Optimizer::step] '", name,
                    "' has its first gradient in a step that is being captured; take one before");
        // SGD's first step writes the momentum without a look at it.
        state.first = is_sgd() ? at::empty_like(parameter) : at::zeros_like(parameter);
        if (!is_sgd()) {
          state.second = at::zeros_like(parameter);
          state.step = at::zeros({}, parameter.options().dtype(at::kFloat).requires_grad(false));
        }
      }
      ParameterBatch& batch = find_or_add(result, [&](const ParameterBatch& each) {
        return alike(each.parameters[0], parameter) && (!is_sgd() || each.fresh == fresh);
      });
      if (batch.parameters.empty()) batch.fresh = fresh;
      batch.parameters.push_back(parameter);
      batch.gradients.push_back(laid_out_as(gradient, parameter));
      if (all_slots.empty()) continue;
      TORCH_CHECK(alike(state.first, parameter), "[Optimizer::step] '", name, "' is ",
                  parameter.scalar_type(), " on ", parameter.device(), ", its state ",
                  state.first.scalar_type(), " on ", state.first.device(),
                  "; call reset(), or build the optimizer after moving the model");
      state.first = laid_out_as(state.first, parameter);
      batch.first.push_back(state.first);
      if (is_sgd()) continue;
      state.second = laid_out_as(state.second, parameter);
      batch.second.push_back(state.second);
      batch.steps.push_back(state.step);
    }
    return result;
  }
};

Optimizer::Optimizer(std::vector<ParameterGroup> groups, const OptimOptions& options)
    : impl_(std::make_unique<Impl>()) {
  check_options(options);
  check_groups(groups);
  impl_->groups = std::move(groups);
  impl_->options = options;
  reset();
}

Optimizer::~Optimizer() = default;

void Optimizer::step(double lr) {
  set_lr(lr);
  step();
}

void Optimizer::set_lr(double lr) {
  TORCH_CHECK(is_rate(lr), "[Optimizer] lr must be a rate of at least 0, and is ", lr);
  impl_->lr = lr;
  for (const Rates& rates : impl_->rates) rates.lr.fill_(lr);
}

void Optimizer::step() {
  const at::NoGradGuard no_grad;
  std::vector<at::Device> computed;  // devices whose rates are those of this step
  for (size_t g = 0; g < impl_->groups.size(); ++g) {
    const double weight_decay = impl_->groups[g].weight_decay;
    for (ParameterBatch& batch : impl_->batches(g)) {
      const at::Device device = batch.parameters[0].device();
      if (device.is_cpu()) {
        take_cpu_step(batch, impl_->options, weight_decay, impl_->lr * impl_->groups[g].lr_scale);
        continue;
      }
      Rates& rates = impl_->rates_on(device);
      if (std::find(computed.begin(), computed.end(), device) == computed.end()) {
        rates.rates.copy_(rates.lr * rates.scales);
        computed.push_back(device);
      }
      take_fused_step(batch, impl_->options, weight_decay, rates.rates[static_cast<int64_t>(g)]);
    }
  }
}

void Optimizer::zero_grad() {
  for (const ParameterGroup& group : impl_->groups) {
    for (const auto& item : group.parameters) {
      item.value().mutable_grad().reset();
    }
  }
}

at::Tensor Optimizer::clip_grad_norm(double most) {
  TORCH_CHECK(most >= 0, "[Optimizer::clip_grad_norm] the largest norm must be at least 0, and is ", most);
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
  // Multiplied in any case: to know whether it is 1 would mean to wait.
  const auto factor = at::clamp((norm + 1e-6).reciprocal() * most, std::nullopt, 1.0);
  for (const auto& gradients : batches) {
    at::_foreach_mul_(gradients, factor.to(gradients[0].device()));
  }
  return norm;
}

void Optimizer::reset() { impl_->reset(); }

std::int64_t Optimizer::generation() const { return impl_->generation; }

const std::vector<ParameterGroup>& Optimizer::groups() const { return impl_->groups; }

NamedTensors Optimizer::state_dict() const {
  NamedTensors result;
  result.insert(kWhich, at::scalar_tensor(static_cast<int64_t>(impl_->options.opt()), at::kLong));
  for (size_t g = 0; g < impl_->groups.size(); ++g) {
    const auto& parameters = impl_->groups[g].parameters;
    for (size_t k = 0; k < parameters.size(); ++k) {
      for (const Slot& slot : impl_->slots()) {
        const at::Tensor& value = impl_->states[g][k].*slot.tensor;
        if (!value.defined()) continue;
        result.insert(parameters[k].key() + "." + slot.name,
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
  const at::Tensor* which = state.find(kWhich);
  TORCH_CHECK(which != nullptr && which->numel() == 1 && which->scalar_type() == at::kLong, call,
              "the state has no '", kWhich, "', and is not one of an Optimizer");
  const auto code = which->item<int64_t>();
  TORCH_CHECK(code >= 0 && code <= static_cast<int64_t>(Opt::kAdamW), call, "'", kWhich, "' is ", code,
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
      size_t present = 0;
      for (const Slot& slot : impl_->slots()) {
        const std::string key = name + "." + slot.name;
        const at::Tensor* value = state.find(key);
        known.insert(key);
        if (value == nullptr) {
          absent = key;
          continue;
        }
        ++present;
        const bool is_step = slot.tensor == &State::step;
        const auto dtype = is_step ? at::kFloat : parameter.scalar_type();
        const auto sizes = is_step ? at::IntArrayRef() : parameter.sizes();
        TORCH_CHECK(value->scalar_type() == dtype && value->sizes() == sizes, call, "'", key, "' is ",
                    value->scalar_type(), " ", value->sizes(), " in the state, and should be ", dtype, " ",
                    sizes, "; the state is of another model");
        if (is_step) {
          const auto count = value->item<float>();
          TORCH_CHECK(count >= 0 && count == std::floor(count), call, "'", key, "' is ", count,
                      ", which is no count of steps; the state is damaged");
          states[k].step = value->to(parameter.device(), at::kFloat, /*non_blocking=*/false, /*copy=*/true);
        } else {
          states[k].*slot.tensor = at::empty_like(parameter).copy_(*value);
        }
      }
      TORCH_CHECK(present == 0 || absent.empty(), call, "the state has no '", absent,
                  "', only the rest of what belongs to '", name, "'; it is damaged");
    }
  }
  for (const auto& item : state) {
    if (item.key() == kWhich || known.contains(item.key())) continue;
    TORCH_CHECK(!known.empty(), call, "the state has '", item.key(),
                "', and this optimizer keeps nothing: it has no momentum, or no parameters");
    TORCH_CHECK(false, call, "the state has '", item.key(),
                "', which is of no parameter here; the nearest is '",
                nearest(item.key(), {known.begin(), known.end()}),
                "'. Build the optimizer with the parameters and options that it was saved with");
  }
  impl_->states = std::move(loaded);
  ++impl_->generation;
}

std::vector<ParameterGroup> parameter_groups(const NamedTensors& parameters,
                                             const std::vector<std::string>& blocks,
                                             const GroupOptions& options) {
  TORCH_CHECK(is_rate(options.weight_decay()), "[parameter_groups] weight_decay must be at least 0, and is ",
              options.weight_decay());
  TORCH_CHECK(options.layer_decay() > 0 && std::isfinite(options.layer_decay()),
              "[parameter_groups] layer_decay must be more than 0, and is ", options.layer_decay());
  TORCH_CHECK(is_rate(options.head_scale()), "[parameter_groups] head_scale must be at least 0, and is ",
              options.head_scale());
  TORCH_CHECK(options.layer_decay() == 1 || !blocks.empty(), "[parameter_groups] layer_decay is ",
              options.layer_decay(), ", and the model has no blocks to apply it to; leave it at 1");

  const auto in_block = [](const std::string& name, const std::string& block) {
    return name.starts_with(block) && (name.size() == block.size() || name[block.size()] == '.');
  };
  const auto rate_of = [&](const std::string& name) {
    if (in_block(name, "head")) return options.head_scale();
    size_t best = 0, length = 0;
    for (size_t b = 0; b < blocks.size(); ++b) {
      if (blocks[b].size() > length && in_block(name, blocks[b])) {
        best = b;
        length = blocks[b].size();  // of blocks within blocks the inner one
      }
    }
    return std::pow(options.layer_decay(), static_cast<double>(blocks.size() - best));
  };
  const auto decay_of = [&](const std::string& name, const at::Tensor& parameter) {
    const bool spared = parameter.dim() <= 1 || name == "bias" || name.ends_with(".bias");
    return spared && !options.decay_all() ? 0 : options.weight_decay();
  };

  std::vector<ParameterGroup> groups;
  std::map<std::pair<double, double>, size_t> places;
  std::unordered_set<const at::TensorImpl*> seen;
  for (const auto& item : parameters) {
    const auto& [name, parameter] = item.pair();
    if (!seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
    const std::pair key(rate_of(name), decay_of(name, parameter));
    const auto [place, is_new] = places.emplace(key, groups.size());
    if (is_new) {
      groups.push_back({.parameters = NamedTensors(), .lr_scale = key.first, .weight_decay = key.second});
    }
    groups[place->second].parameters.insert(name, parameter);
  }
  return groups;
}

}  // namespace tpgm
