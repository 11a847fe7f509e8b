#include "tpgm/methods/subset.h"

#include <algorithm>

namespace tpgm {
namespace {

// Any module with running statistics of its own: torch::nn::BatchNorm*, and those of other libraries.
bool is_batch_norm(const torch::nn::Module& module) {
  const auto buffers = module.named_buffers(/*recurse=*/false);
  return buffers.contains("running_mean") && buffers.contains("running_var");
}

// Calls f(owner of the parameter, its own name, its full name, the parameter).
template <class F>
void for_each_parameter(const torch::nn::Module& module, const std::string& prefix, F& f) {
  for (const auto& item : module.named_parameters(/*recurse=*/false))
    f(module, item.key(), prefix + item.key(), item.value());
  for (const auto& child : module.named_children())
    for_each_parameter(*child.value(), prefix + child.key() + ".", f);
}

}  // namespace

Subset::Subset(const std::string& owner, torch::nn::Module& module, const SubsetOptions& options,
               const Keep& keep) {
  check_globs(owner, "head", options.head(), module.named_parameters().keys());
  std::vector<at::Tensor> trained, others;
  auto sort = [&](const torch::nn::Module& direct, const std::string& own, const std::string& full,
                  const at::Tensor& parameter) {
    const bool head = std::any_of(options.head().begin(), options.head().end(),
                                  [&](const auto& glob) { return matches(glob, full); });
    (head || keep(direct, own) ? trained : others).push_back(parameter);
  };
  for_each_parameter(module, "", sort);
  for (auto& parameter : others) {
    // A tied parameter trains if any of its names does.
    const bool tied = std::any_of(trained.begin(), trained.end(),
                                  [&](const auto& each) { return each.is_same(parameter); });
    if (parameter.requires_grad() && !tied) {
      parameter.set_requires_grad(false);
      parameter.mutable_grad().reset();
      frozen_.push_back(parameter);
    }
  }
}

void Subset::unfreeze() {
  for (auto& parameter : frozen_) parameter.set_requires_grad(true);
  frozen_.clear();
}

Lp::Lp(torch::nn::Module& module, SubsetOptions options)
    : Subset("Lp", module, options, [](const auto&, const auto&) { return false; }) {}

Pf::Pf(torch::nn::Module& module, SubsetOptions options)
    : Subset("Pf", module, options, [](const auto& direct, const auto&) { return is_batch_norm(direct); }) {}

BitFit::BitFit(torch::nn::Module& module, SubsetOptions options)
    : Subset("BitFit", module, options,
             [](const auto&, const auto& own) { return own == "bias" || own.ends_with("_bias"); }) {}

}  // namespace tpgm
