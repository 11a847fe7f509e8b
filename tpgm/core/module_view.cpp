#include "tpgm/core/module_view.h"

#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <memory>
#include <utility>
#include <vector>

namespace tpgm {
namespace {

std::function<void()> evaluate(torch::nn::Module& module) {
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> children;
  for (const auto& child : module.modules(/*include_self=*/false))
    children.emplace_back(child, child->is_training());
  const auto put_back = [&module, was_training = module.is_training(), children = std::move(children)] {
    module.train(was_training);
    for (const auto& [child, training] : children)
      child->train(training);  // parents come before their children
  };
  module.eval();
  return put_back;
}

}  // namespace

ModuleView::ModuleView(torch::nn::Module& module) : ModuleView(std::as_const(module)) {
  evaluate_ = [&module] { return evaluate(module); };
}

ModuleView::ModuleView(const torch::nn::Module& module)
    : parameters_([&module] { return module.named_parameters(); }),
      buffers_([&module] { return module.named_buffers(); }) {}

ModuleView::ModuleView(Tensors parameters, Tensors buffers, Evaluate evaluate)
    : parameters_(std::move(parameters)), buffers_(std::move(buffers)), evaluate_(std::move(evaluate)) {}

EvalMode::EvalMode(const ModuleView& module) {
  TORCH_CHECK(module.evaluate_,
              "[EvalMode] a constant module cannot be put into evaluation; give one that is not");
  put_back_ = module.evaluate_();
}

EvalMode::~EvalMode() { put_back_(); }

NamedTensors named_tensors(const ModuleView& module) {
  auto tensors = module.named_parameters();
  tensors.update(module.named_buffers());
  return tensors;
}

}  // namespace tpgm
