#include "tpgm/nn/recompute.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <utility>

#include "tpgm/nn/operands.h"
#include "tpgm/nn/precision.h"

namespace tpgm {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// What the second run needs besides tensors, in a form that an autograd graph can hold.
struct Kept : torch::CustomClassHolder {
  std::function<at::Tensor(const at::Tensor&)> run;
  AutocastState autocast;
};

struct Recompute : torch::autograd::Function<Recompute> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, at::TensorList parameters,
                            const c10::intrusive_ptr<Kept>& kept) {
    tensor_list saved{x};
    saved.insert(saved.end(), parameters.begin(), parameters.end());
    context->save_for_backward(std::move(saved));
    context->saved_data["kept"] = c10::IValue::make_capsule(kept);
    const Autocast restored(kept->autocast);
    return kept->run(x);
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& grads) {
    check_first_derivative("a recomputed part (activation checkpointing)");
    auto inputs = context->get_saved_variables();
    const auto kept = c10::static_intrusive_pointer_cast<Kept>(context->saved_data["kept"].toCapsule());
    inputs[0] = inputs[0].detach().requires_grad_(context->needs_input_grad(0));
    at::Tensor output;
    {
      const at::AutoGradMode with_graph(true);
      const Autocast restored(kept->autocast);
      output = kept->run(inputs[0]);
    }
    tensor_list wanted;
    for (const auto& input : inputs) {
      if (input.requires_grad()) wanted.push_back(input);
    }
    auto found = torch::autograd::grad({output}, wanted, grads, std::nullopt, false, /*allow_unused=*/true);
    tensor_list result;
    size_t next = 0;
    for (const auto& input : inputs)
      result.push_back(input.requires_grad() ? std::move(found[next++]) : at::Tensor());
    result.emplace_back();  // for `kept`
    return result;
  }
};

}  // namespace

at::Tensor recomputed(const std::function<at::Tensor(const at::Tensor&)>& run, const at::Tensor& x,
                      const std::vector<at::Tensor>& parameters) {
  if (!at::GradMode::is_enabled()) return run(x);
  auto kept = c10::make_intrusive<Kept>();
  kept->run = run;
  kept->autocast = AutocastState::current(x.device().type()).without_cache();
  return Recompute::apply(x, at::TensorList(parameters), kept);
}

}  // namespace tpgm
