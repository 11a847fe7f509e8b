#include "tpgm/methods/subset.h"

#include <algorithm>

#include "tpgm/base/call.h"
#include "tpgm/base/names.h"

namespace tpgm {

Subset::Subset(const std::string& name, const ModuleView& model, const SubsetOptions& options,
               const Keep& keep) try {
  const auto parameters = model.named_parameters();
  check_globs("head", options.head(), parameters.keys());
  std::vector<at::Tensor> trained, others;
  for (const auto& item : parameters) {
    const auto& parameter = item.key();
    const bool head = std::any_of(options.head().begin(), options.head().end(),
                                  [&](const auto& glob) { return matches(glob, parameter); });
    const size_t own = parameter.rfind('.') + 1;  // 0 where there is no dot
    (head || keep(parameter.substr(0, own), parameter.substr(own)) ? trained : others)
        .push_back(item.value());
  }
  for (auto& parameter : others) {
    // A tied parameter trains if it does under any of its names.
    const bool tied = std::any_of(trained.begin(), trained.end(),
                                  [&](const auto& each) { return each.is_same(parameter); });
    if (parameter.requires_grad() && !tied) {
      parameter.set_requires_grad(false);
      parameter.mutable_grad().reset();
      frozen_.push_back(parameter);
    }
  }
} catch (...) {
  rethrow_from(name);
}

void Subset::unfreeze() {
  for (auto& parameter : frozen_) parameter.set_requires_grad(true);
  frozen_.clear();
}

Lp::Lp(const ModuleView& model, SubsetOptions options)
    : Subset("Lp", model, options, [](const auto&, const auto&) { return false; }) {}

// Every module with running statistics counts as BatchNorm, also those of other libraries.
Pf::Pf(const ModuleView& model, SubsetOptions options)
    : Subset("Pf", model, options, [buffers = model.named_buffers()](const auto& path, const auto&) {
        return buffers.contains(path + "running_mean") && buffers.contains(path + "running_var");
      }) {}

BitFit::BitFit(const ModuleView& model, SubsetOptions options)
    : Subset("BitFit", model, options,
             [](const auto&, const auto& own) { return own == "bias" || own.ends_with("_bias"); }) {}

}  // namespace tpgm
