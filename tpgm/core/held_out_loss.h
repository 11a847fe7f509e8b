// Evaluates a loss on held-out data without side effects.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "tpgm/core/module_view.h"

namespace tpgm {

/// Returns the loss of one batch as a scalar tensor with its autograd graph. Must not call backward().
using Closure = std::function<at::Tensor()>;

/// Runs closures with the module in eval() mode and returns their loss and gradients.
///
/// Afterwards everything else is as before: .grad, the training flag of every submodule, buffers, and the
/// global random generators. Closures have a random stream of their own, which continues from call to call: a
/// closure that draws its batch with torch::randint gets fresh batches and does not change the order of the
/// training data. During capture (see capturing()) the generators are left alone, and closures must not draw
/// random numbers.
class HeldOutLoss {
 public:
  /// Messages begin with [owner]. The random stream of the closures starts from the current global seed.
  HeldOutLoss(std::string owner, ModuleView module, at::Device device);

  struct Result {
    at::Tensor loss;  ///< Detached.
    std::vector<at::Tensor>
        gradients;  ///< One per parameter; undefined where the loss does not depend on it.
  };
  /// With `values` (one for each parameter, of its shape), the closure sees these in place of the parameters'
  /// own values, which are not touched; the gradients then have the types of `values`. A parameter of the
  /// module that shares memory with one of them sees the same part of its value (in its own type). Throws,
  /// with everything restored, if the closure throws, its loss is not a scalar or depends on none of the
  /// `parameters`, or the closure detectably changes a buffer of the module.
  Result evaluate(const Closure& closure, const std::vector<at::Tensor>& parameters,
                  const std::vector<at::Tensor>& values = {});

  /// The state of the closures' random stream.
  NamedTensors state_dict() const;
  void load_state_dict(const NamedTensors& state);

 private:
  struct Stream {
    std::string name;
    at::Generator generator;
    at::Tensor state;
  };
  std::string owner_;
  ModuleView module_;
  at::Device device_;
  std::vector<Stream> streams_;
};

}  // namespace tpgm
