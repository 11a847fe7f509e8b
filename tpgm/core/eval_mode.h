// A module in evaluation for a while.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <utility>
#include <vector>

namespace tpgm {

/// eval() while it lives; every submodule's training flag is put back on destruction.
class EvalMode {
 public:
  explicit EvalMode(torch::nn::Module& module) : module_(module), was_training_(module.is_training()) {
    for (const auto& child : module.modules(/*include_self=*/false))
      children_.emplace_back(child, child->is_training());
    module.eval();
  }
  ~EvalMode() {
    module_.train(was_training_);
    for (const auto& [child, training] : children_)  // parents come before their children
      child->train(training);
  }
  EvalMode(const EvalMode&) = delete;
  EvalMode& operator=(const EvalMode&) = delete;

 private:
  torch::nn::Module& module_;
  bool was_training_;
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> children_;
};

}  // namespace tpgm
