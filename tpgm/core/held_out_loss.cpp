#include "tpgm/core/held_out_loss.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "tpgm/core/cuda_stream.h"
#include "tpgm/core/memory_order.h"

namespace tpgm {
namespace {

// Used in destructors: an error there (for example of a CUDA device that has already failed) must not hide
// the first one.
template <class Call>
void regardless(Call&& call) noexcept {
  try {
    call();
  } catch (...) {
  }
}

at::Tensor get_state(at::Generator& generator) {
  const std::scoped_lock lock(generator.mutex());
  return generator.get_state();
}

void set_state(at::Generator& generator, const at::Tensor& state) {
  const std::scoped_lock lock(generator.mutex());
  generator.set_state(state);
}

// The generator continues from `state` while this lives. The destructor stores its new state there, and
// restores the generator.
class BorrowedStream {
 public:
  BorrowedStream(at::Generator& generator, at::Tensor& state)
      : generator_(generator), state_(state), global_(get_state(generator)) {
    set_state(generator_, state_);
  }
  ~BorrowedStream() {
    regardless([this] {
      state_ = get_state(generator_);
      set_state(generator_, global_);
    });
  }
  BorrowedStream(const BorrowedStream&) = delete;
  BorrowedStream& operator=(const BorrowedStream&) = delete;

 private:
  at::Generator& generator_;
  at::Tensor& state_;
  at::Tensor global_;
};

// The initial state of a separate random stream, derived from the seed of the generator, which is not
// changed.
at::Tensor forked_state(at::Generator& generator) {
  const auto global = get_state(generator);
  {
    const std::scoped_lock lock(generator.mutex());
    generator.set_current_seed(generator.current_seed() ^ 0x7067'6d72'6164'6969u);
  }
  const auto forked = get_state(generator);
  set_state(generator, global);
  return forked;
}

// Takes .grad from the parameters so that the closure cannot change it; the destructor puts it back. No
// values are copied.
class ParkedGradients {
 public:
  explicit ParkedGradients(const NamedTensors& parameters) : parameters_(parameters.values()) {
    for (auto& parameter : parameters_) {
      gradients_.push_back(parameter.grad());
      parameter.mutable_grad().reset();
    }
  }
  ~ParkedGradients() {
    for (auto k = parameters_.size();
         k-- > 0;)  // in reverse: the gradient of a tied parameter was taken at its first name
      parameters_[k].mutable_grad() = gradients_[k];
  }
  ParkedGradients(const ParkedGradients&) = delete;
  ParkedGradients& operator=(const ParkedGradients&) = delete;

  // True if backward() was called meanwhile.
  bool any_new() const {
    return std::any_of(parameters_.begin(), parameters_.end(),
                       [](const auto& each) { return each.grad().defined(); });
  }

 private:
  std::vector<at::Tensor> parameters_, gradients_;
};

// Copies the values of a module's buffers; the destructor restores them. Buffers of one type are copied in
// one call.
class UnchangedBuffers {
 public:
  explicit UnchangedBuffers(const NamedTensors& buffers) {
    const at::NoGradGuard no_grad;
    for (const auto& buffer : buffers) {
      auto& group = groups_[buffer.value().scalar_type()];
      group.buffers.push_back(buffer.value());
      group.values.push_back(at::empty_like(buffer.value()));
    }
    for (auto& [type, group] : groups_) at::_foreach_copy_(group.values, group.buffers);
  }
  ~UnchangedBuffers() {
    regardless([this] {
      const at::NoGradGuard no_grad;
      for (auto& [type, group] : groups_) at::_foreach_copy_(group.buffers, group.values);
    });
  }
  UnchangedBuffers(const UnchangedBuffers&) = delete;
  UnchangedBuffers& operator=(const UnchangedBuffers&) = delete;

 private:
  struct Group {
    std::vector<at::Tensor> buffers, values;
  };
  std::map<at::ScalarType, Group> groups_;
};

// Gives parameters other values; the destructor restores their own.
class OtherValues {
 public:
  OtherValues(const std::string& owner, const NamedTensors& all, const std::vector<at::Tensor>& parameters,
              const std::vector<at::Tensor>& values)
      : OtherValues() {  // so that the destructor runs if this constructor throws
    if (values.empty()) return;
    std::unordered_map<const void*, std::vector<size_t>> in_storage;
    std::unordered_set<const at::TensorImpl*> given;
    for (size_t k = 0; k < parameters.size(); ++k)
      if (given.insert(parameters[k].unsafeGetTensorImpl()).second && parameters[k].numel() > 0)
        in_storage[parameters[k].storage().unsafeGetStorageImpl()].push_back(k);
    // First, because only the original memory shows which parameters share it.
    std::vector<std::pair<at::Tensor, at::Tensor>> others;
    for (const auto& item : all) {
      const auto& other = item.value();
      if (!given.insert(other.unsafeGetTensorImpl()).second || other.numel() == 0) continue;
      const auto place = in_storage.find(other.storage().unsafeGetStorageImpl());
      for (const auto k : place == in_storage.end() ? std::vector<size_t>() : place->second)
        if (overlap(other, parameters[k]))
          others.emplace_back(other, as_view_of(values[k], other, parameters[k], item.key(), owner));
    }
    for (size_t k = 0; k < parameters.size(); ++k) replace(parameters[k], values[k]);
    for (const auto& [other, value] : others) replace(other, value);
    at::autocast::clear_cache();  // it may contain casts of the original values
  }
  ~OtherValues() {
    for (auto each = replaced_.rbegin(); each != replaced_.rend(); ++each) each->first.set_data(each->second);
    if (!replaced_.empty()) at::autocast::clear_cache();
  }
  OtherValues(const OtherValues&) = delete;
  OtherValues& operator=(const OtherValues&) = delete;

 private:
  // The end of a dense tensor in its storage.
  static int64_t end_of(const at::Tensor& tensor) {
    int64_t last = tensor.storage_offset();
    for (int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
    return last + 1;
  }

  static bool overlap(const at::Tensor& a, const at::Tensor& b) {
    return a.storage_offset() < end_of(b) && b.storage_offset() < end_of(a);
  }

  // The part of `value` that `other` sees if `other` is a view of the parameter's memory.
  static at::Tensor as_view_of(const at::Tensor& value, const at::Tensor& other, const at::Tensor& parameter,
                               const std::string& name, const std::string& owner) {
    TORCH_CHECK(parameter.is_non_overlapping_and_dense() && same_order(value, parameter) &&
                    other.storage_offset() >= parameter.storage_offset() &&
                    end_of(other) <= end_of(parameter),
                "[", owner, "] parameter '", name,
                "' shares a part of its memory with another parameter; give them one tensor, or memory of "
                "their own");
    return value.to(other.scalar_type())
        .as_strided(other.sizes(), other.strides(), other.storage_offset() - parameter.storage_offset());
  }

  void replace(const at::Tensor& parameter, const at::Tensor& value) {
    replaced_.emplace_back(parameter, parameter.variable_data());
    replaced_.back().first.set_data(value);
  }

  OtherValues() = default;

  std::vector<std::pair<at::Tensor, at::Tensor>> replaced_;
};

}  // namespace

HeldOutLoss::HeldOutLoss(std::string owner, ModuleView module, at::Device device)
    : owner_(std::move(owner)), module_(std::move(module)), device_(device) {
  const auto fork = [this](const char* name, at::Generator generator) {
    const auto state = forked_state(generator);
    streams_.push_back({name, generator, state});
  };
  fork("cpu", at::globalContext().defaultGenerator(at::kCPU));
  if (!device.is_cpu()) fork("device", at::globalContext().defaultGenerator(device));
}

HeldOutLoss::Result HeldOutLoss::evaluate(const Closure& closure, const std::vector<at::Tensor>& parameters,
                                          const std::vector<at::Tensor>& values) {
  TORCH_CHECK(closure, "[", owner_, "] needs a closure that returns the loss of a batch of held-out data");
  TORCH_CHECK(!c10::InferenceMode::is_enabled(), "[", owner_,
              "] cannot learn radii in inference mode; use NoGradGuard around evaluation instead");
  const auto named = module_.named_parameters(), buffers = module_.named_buffers();
  std::vector<uint32_t> versions;
  for (const auto& buffer : buffers) versions.push_back(buffer.value()._version());
  // All are restored, because BatchNorm may change its statistics without changing their version.
  const UnchangedBuffers unchanged(buffers);
  const OtherValues other_values(owner_, named, parameters, values);
  const ParkedGradients gradients_of_training(named);
  const EvalMode eval_mode(module_);
  std::vector<std::unique_ptr<BorrowedStream>> borrowed;
  for (auto& stream : capturing(device_) ? std::span<Stream>() : std::span(streams_))
    borrowed.push_back(std::make_unique<BorrowedStream>(stream.generator, stream.state));
  const at::AutoGradMode with_grad(true);

  const auto loss = closure();
  TORCH_CHECK(!gradients_of_training.any_new(), "[", owner_,
              "] the closure called backward(); it must only return the loss, with its graph");
  TORCH_CHECK(
      loss.defined() && loss.numel() == 1, "[", owner_, "] the closure returned ",
      loss.defined() ? "a tensor of " + std::to_string(loss.numel()) + " elements" : "an undefined tensor",
      "; it must return the loss, a scalar");
  size_t index = 0;
  for (const auto& buffer : buffers) {
    TORCH_CHECK(buffer.value()._version() == versions[index++], "[", owner_, "] the closure changed buffer '",
                buffer.key(), "'; radius data must not leak into the model: leave the module in eval() mode");
  }

  Result result;
  result.gradients.resize(parameters.size());
  std::vector<at::Tensor> inputs;
  std::vector<size_t> places;
  for (size_t k = 0; k < parameters.size(); ++k) {
    if (parameters[k].requires_grad()) {
      inputs.push_back(parameters[k]);
      places.push_back(k);
    }
  }
  TORCH_CHECK(
      loss.requires_grad() && !inputs.empty(), "[", owner_,
      "] the closure's loss does not depend on the model's parameters; return the loss with its graph, "
      "without calling backward(), detach() or item() on it");
  const auto gradients = torch::autograd::grad({loss}, inputs, /*grad_outputs=*/{}, /*retain_graph=*/false,
                                               /*create_graph=*/false, /*allow_unused=*/true);
  bool any = false;
  for (size_t i = 0; i < places.size(); ++i) {
    result.gradients[places[i]] = gradients[i];
    any = any || gradients[i].defined();
  }
  TORCH_CHECK(any, "[", owner_,
              "] the closure's loss depends on none of the constrained parameters; does it use "
              "another model than the method was built with?");
  result.loss = loss.detach();
  return result;
}

NamedTensors HeldOutLoss::state_dict() const {
  NamedTensors state;
  for (const auto& stream : streams_) state.insert("random." + stream.name, stream.state.clone());
  return state;
}

void HeldOutLoss::load_state_dict(const NamedTensors& state) {
  for (auto& stream : streams_) {
    // A state saved on another type of device has no stream for this one, which then keeps its own.
    if (const auto* saved = state.find("random." + stream.name)) stream.state = saved->clone();
  }
}

}  // namespace tpgm
