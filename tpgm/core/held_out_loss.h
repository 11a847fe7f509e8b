// Evaluates a loss on held-out data, and leaves no trace.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "tpgm/core/module_view.h"

namespace tpgm {

/// Returns the loss of one batch as a scalar tensor with its graph. Does not call backward().
using Closure = std::function<at::Tensor()>;

/// Runs closures with the module in eval() mode and returns their loss and gradients.
///
/// Afterwards everything else is as before: the gradients in .grad, the training flag of every submodule,
/// buffers, and the global random streams. Closures have a random stream of their own that goes on from call
/// to call, so one that draws its batch with torch::randint sees fresh batches and does not disturb the
/// training data's order. While a graph is captured (see capturing()) they have none, and must draw
/// nothing: the random streams are left alone.
class HeldOutLoss {
 public:
  /// `owner` is for messages. The closures' stream starts from the global seed of this moment.
  HeldOutLoss(std::string owner, ModuleView module, at::Device device);

  struct Result {
    at::Tensor loss;  ///< Detached.
    std::vector<at::Tensor>
        gradients;  ///< One per parameter; undefined where the loss does not depend on it.
  };
  /// With `values` (one for each parameter, of its shape), the parameters hold those meanwhile, and their own
  /// are not touched; the gradients are then of the values' types. A parameter of the module that shares
  /// memory with one of them sees the same part of its value (in its own type). Throws, with everything put
  /// back, if the closure throws, its loss is not a scalar or depends on none of the `parameters`, or it is
  /// seen to change a buffer of the module.
  Result evaluate(const Closure& closure, const std::vector<at::Tensor>& parameters,
                  const std::vector<at::Tensor>& values = {});

  /// The closures' random stream, to save and to load.
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
