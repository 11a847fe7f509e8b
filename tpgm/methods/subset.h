// Methods that train only a part of the model: LP (the head), PF (BatchNorm and the head) and BitFit (biases
// and the head).
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
    visit("head", self.head(), "parameters of the head, which always train", SetBy::kLoop);
  }
};

/// The constructor freezes (requires_grad = false, no .grad) every parameter outside of the subset. An
/// optimizer may still hold all parameters: it skips those without a gradient.
///
/// In train() mode the running statistics of BatchNorm still follow the training data. Keep the backbone in
/// eval() mode if its features must not change.
class Subset : public Method, public Capturable {
 public:
  using Options = SubsetOptions;
  static constexpr bool kTrainsAll = false;

  /// Makes the frozen parameters trainable again.
  void unfreeze();

  std::optional<StepPlan> next_step() const override { return StepPlan(); }

 protected:
  using Keep = std::function<bool(const std::string& path, const std::string& own)>;
  /// Messages begin with [name]. keep(path, own) decides for parameters outside of the head. `path` is that
  /// of the module, with a dot at its end; `own` is the name of the parameter in the module.
  Subset(const std::string& name, const ModuleView& model, const SubsetOptions& options, const Keep& keep);

 private:
  std::vector<at::Tensor> frozen_;
};

/// Linear probing: only the head trains.
class Lp final : public Subset {
 public:
  static constexpr bool kHeadOnly = true;

  explicit Lp(const ModuleView& model, SubsetOptions options = {});
};

/// PF, partial fusion in TPGM's paper (Kanavati and Tsuneki, Partial Transfusion, MIDL 2021): the weights and
/// biases of BatchNorm and the head train.
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
