// The part of a model that core and methods use: its tensors and its mode.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/ordered_dict.h>

#include <functional>

#include "tpgm/io/named_tensors.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace tpgm {

/// The parameters and buffers of a model by name, and its switch between train() and eval(). A
/// torch::nn::Module converts to it implicitly; any other model provides the three functions. The model must
/// outlive it.
class ModuleView {
 public:
  /// Called every time, because parameters may change. Tensors come in the order of the model; a tied tensor
  /// comes under each of its names. Names are paths with dots, as in state_dict().
  using Tensors = std::function<NamedTensors()>;
  /// Puts the whole model into eval mode, and returns a function that restores the modes.
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

/// Keeps the model in eval mode while it lives; its destructor restores the mode of every submodule.
class EvalMode {
 public:
  explicit EvalMode(const ModuleView& module);
  ~EvalMode();
  EvalMode(const EvalMode&) = delete;
  EvalMode& operator=(const EvalMode&) = delete;

 private:
  std::function<void()> put_back_;
};

/// Parameters, then buffers (no copies).
NamedTensors named_tensors(const ModuleView& module);

}  // namespace tpgm
