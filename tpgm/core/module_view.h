// What core and methods see of a model.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/ordered_dict.h>

#include <functional>

#include "tpgm/io/named_tensors.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace tpgm {

/// A model's parameters and buffers by name, and its switch between training and evaluation. A
/// torch::nn::Module becomes one by itself; a model of another kind gives the three functions. What is behind
/// it must outlive it.
class ModuleView {
 public:
  /// Asked anew each time, for parameters may get other names, memory or modes. In the model's order; a
  /// tensor that the model holds under several names comes under each of them. A name is the path to it:
  /// modules, then its own, with dots between.
  using Tensors = std::function<NamedTensors()>;
  /// Puts all of the model into evaluation, and gives back what undoes that.
  using Evaluate = std::function<std::function<void()>()>;

  ModuleView(torch::nn::Module& module);        // NOLINT(google-explicit-constructor): Tpgm tpgm(*model)
  ModuleView(const torch::nn::Module& module);  // NOLINT(google-explicit-constructor): cannot evaluate
  ModuleView(Tensors parameters, Tensors buffers, Evaluate evaluate);

  NamedTensors named_parameters() const { return parameters_(); }
  NamedTensors named_buffers() const { return buffers_(); }

 private:
  friend class EvalMode;
  Tensors parameters_, buffers_;
  Evaluate evaluate_;
};

/// The model is in evaluation while this lives; then every part of it is in the mode it was in.
class EvalMode {
 public:
  explicit EvalMode(const ModuleView& module);
  ~EvalMode();
  EvalMode(const EvalMode&) = delete;
  EvalMode& operator=(const EvalMode&) = delete;

 private:
  std::function<void()> put_back_;
};

/// Parameters and buffers as they are (no copies).
NamedTensors named_tensors(const ModuleView& module);

}  // namespace tpgm
