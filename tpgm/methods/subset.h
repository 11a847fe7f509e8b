// Methods that train a part of the model: LP (the head), PF (BatchNorm and the head), BitFit (biases and the
// head).
#pragma once

#include <torch/arg.h>

#include <functional>
#include <string>
#include <vector>

#include "tpgm/core/module_view.h"
#include "tpgm/methods/method.h"
#include "tpgm/methods/options.h"

namespace tpgm {

struct SubsetOptions {
  /// Globs of the head's parameters.
  TORCH_ARG(std::vector<std::string>, head) = { "head.*" };

 public:
  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("head", self.head(), "parameters of the head, which always train");
  }
};

/// Freezes (requires_grad = false, no .grad) every parameter that is not part of the subset, when it is
/// built. An optimizer may hold all parameters: it skips those without a gradient.
///
/// BatchNorm's running statistics still follow the training data while the module is in train() mode; for
/// features that stay exactly as they were, keep the backbone in eval() mode.
class Subset : public Method, public Capturable {
 public:
  using Options = SubsetOptions;

  /// Makes everything trainable again that was so before.
  void unfreeze();

  std::optional<StepPlan> next_step() const override { return StepPlan(); }

 protected:
  using Keep = std::function<bool(const std::string& path, const std::string& own)>;
  /// keep(path of the module that holds it, with a dot behind, own name) decides on parameters outside the
  /// head.
  Subset(const std::string& owner, const ModuleView& model, const SubsetOptions& options, const Keep& keep);

 private:
  std::vector<at::Tensor> frozen_;
};

/// Linear probing: only the head trains.
class Lp final : public Subset {
 public:
  explicit Lp(const ModuleView& model, SubsetOptions options = {});
};

/// Partial Fusion (Kanavati and Tsuneki, 2021): BatchNorm's weights and biases and the head train.
class Pf final : public Subset {
 public:
  explicit Pf(const ModuleView& model, SubsetOptions options = {});
};

/// BitFit (Zaken et al., ACL 2022): biases and the head train.
class BitFit final : public Subset {
 public:
  explicit BitFit(const ModuleView& model, SubsetOptions options = {});
};

}  // namespace tpgm
