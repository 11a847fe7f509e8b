#include "tpgm/core/probe.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>

#include <map>
#include <mutex>

namespace tpgm {
namespace {

/// Every submodule's training flag, put back on destruction.
class EvalMode {
 public:
  explicit EvalMode(torch::nn::Module& module) : module_(module), was_training_(module.is_training()) {
    for (const auto& child : module.modules(/*include_self=*/false)) {
      children_.emplace_back(child, child->is_training());
    }
    module.eval();
  }
  ~EvalMode() {
    module_.train(was_training_);
    for (const auto& [child, training] : children_) {  // parents come before their children
      child->train(training);
    }
  }
  EvalMode(const EvalMode&) = delete;
  EvalMode& operator=(const EvalMode&) = delete;

 private:
  torch::nn::Module& module_;
  bool was_training_;
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> children_;
};

at::Tensor get_state(at::Generator& generator) {
  const std::scoped_lock lock(generator.mutex());
  return generator.get_state();
}

void set_state(at::Generator& generator, const at::Tensor& state) {
  const std::scoped_lock lock(generator.mutex());
  generator.set_state(state);
}

/// The generator runs from `state` while this lives; then `state` has where it got to, and the generator is
/// as it was.
class BorrowedStream {
 public:
  BorrowedStream(at::Generator& generator, at::Tensor& state)
      : generator_(generator), state_(state), global_(get_state(generator)) {
    if (state_.defined()) {
      set_state(generator_, state_);
    } else {
      const std::scoped_lock lock(generator_.mutex());
      generator_.set_current_seed(generator_.current_seed() ^ 0x7067'6d72'6164'6969u);
    }
  }
  ~BorrowedStream() {
    state_ = get_state(generator_);
    set_state(generator_, global_);
  }
  BorrowedStream(const BorrowedStream&) = delete;
  BorrowedStream& operator=(const BorrowedStream&) = delete;

 private:
  at::Generator& generator_;
  at::Tensor& state_;
  at::Tensor global_;
};

/// The values of a module's buffers, put back on destruction. All of one type are copied in one go.
class UnchangedBuffers {
 public:
  explicit UnchangedBuffers(const NamedTensors& buffers) {
    const at::NoGradGuard no_grad;
    for (const auto& buffer : buffers) {
      auto& group = groups_[buffer.value().scalar_type()];
      group.buffers.push_back(buffer.value());
      group.values.push_back(at::empty_like(buffer.value()));
    }
    for (auto& [type, group] : groups_) {
      at::_foreach_copy_(group.values, group.buffers);
    }
  }
  ~UnchangedBuffers() {
    const at::NoGradGuard no_grad;
    for (auto& [type, group] : groups_) {
      at::_foreach_copy_(group.buffers, group.values);
    }
  }
  UnchangedBuffers(const UnchangedBuffers&) = delete;
  UnchangedBuffers& operator=(const UnchangedBuffers&) = delete;

 private:
  struct Group {
    std::vector<at::Tensor> buffers, values;
  };
  std::map<at::ScalarType, Group> groups_;
};

}  // namespace

Probe::Probe(std::string owner, torch::nn::Module& module, at::Device device)
    : owner_(std::move(owner)), module_(&module) {
  streams_.push_back({"cpu", at::globalContext().defaultGenerator(at::kCPU), {}});
  if (!device.is_cpu()) {
    streams_.push_back({"device", at::globalContext().defaultGenerator(device), {}});
  }
}

Probe::Result Probe::evaluate(const Closure& closure, const std::vector<at::Tensor>& parameters) {
  TORCH_CHECK(closure, "[", owner_, "] needs a closure that returns the loss of a batch of held-out data");
  TORCH_CHECK(!c10::InferenceMode::is_enabled(), "[", owner_,
              "] cannot learn radii in inference mode; use NoGradGuard around evaluation instead");
  const auto buffers = module_->named_buffers();
  std::vector<std::uint32_t> versions;
  for (const auto& buffer : buffers) {
    versions.push_back(buffer.value()._version());
  }
  // BatchNorm does not always own up to a change of its statistics (their version stays), so all are put
  // back.
  const UnchangedBuffers unchanged(buffers);
  const EvalMode eval_mode(*module_);
  std::vector<std::unique_ptr<BorrowedStream>> borrowed;
  for (auto& stream : streams_) {
    borrowed.push_back(std::make_unique<BorrowedStream>(stream.generator, stream.state));
  }
  const at::AutoGradMode with_grad(true);

  const auto loss = closure();
  TORCH_CHECK(
      loss.defined() && loss.numel() == 1, "[", owner_, "] the closure returned ",
      loss.defined() ? "a tensor of " + std::to_string(loss.numel()) + " elements" : "an undefined tensor",
      "; it must return the loss, a scalar");
  std::size_t index = 0;
  for (const auto& buffer : buffers) {
    TORCH_CHECK(buffer.value()._version() == versions[index++], "[", owner_, "] the closure changed buffer '",
                buffer.key(), "'; radius data must not leak into the model: leave the module in eval() mode");
  }

  Result result;
  result.gradients.resize(parameters.size());
  std::vector<at::Tensor> inputs;
  std::vector<std::size_t> places;
  for (std::size_t k = 0; k < parameters.size(); ++k) {
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
  for (std::size_t i = 0; i < places.size(); ++i) {
    result.gradients[places[i]] = gradients[i];
    any = any || gradients[i].defined();
  }
  TORCH_CHECK(any, "[", owner_,
              "] the closure's loss depends on none of the constrained parameters; does it use "
              "another model than the method was built with?");
  result.loss = loss.detach();
  return result;
}

NamedTensors Probe::state_dict() const {
  NamedTensors state;
  for (const auto& stream : streams_) {
    if (stream.state.defined()) {
      state.insert("random." + stream.name, stream.state.clone());
    }
  }
  return state;
}

void Probe::load_state_dict(const NamedTensors& state) {
  for (auto& stream : streams_) {
    const auto* saved = state.find("random." + stream.name);
    stream.state = saved ? saved->clone() : at::Tensor();
  }
}

}  // namespace tpgm
