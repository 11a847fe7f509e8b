// Optimizers over groups of parameters: the algorithms of torch.optim in a few fused kernels per step. An
// algorithm is a file in optimizers/ (algorithm.h is its interface).
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/arg.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tpgm/base/text.h"
#include "tpgm/core/selection.h"

namespace tpgm {

/// State dicts store the number: new values go to the end.
enum class Opt { kSgd, kAdam, kAdamW };
template <>
struct Keywords<Opt> {
  static constexpr std::pair<Opt, const char*> all[] = {
      {Opt::kSgd, "sgd"}, {Opt::kAdam, "adam"}, {Opt::kAdamW, "adamw"}};
};

struct OptimOptions {
  using Betas = std::array<double, 2>;
  TORCH_ARG(Opt, opt) = Opt::kAdamW;
  TORCH_ARG(double, momentum) = 0.9;         ///< SGD; 0: no momentum
  TORCH_ARG(bool, nesterov) = true;          ///< SGD; has no effect without momentum
  TORCH_ARG(Betas, betas) = { 0.9, 0.999 };  ///< Adam, AdamW
  TORCH_ARG(double, eps) = 1e-8;             ///< Adam, AdamW
};

/// Parameters with the same learning rate and weight decay.
struct ParameterGroup {
  NamedTensors parameters;
  double lr_scale = 1;      ///< factor on the learning rate that step() is given
  double weight_decay = 0;  ///< decoupled with AdamW, added to the gradient with SGD and Adam
};

/// How many tensors of a parameter's size and type the optimizer keeps for each parameter, for memory
/// estimates: 2 for Adam, 0 for SGD without momentum.
int64_t state_tensors_per_parameter(const OptimOptions& options);

/// Computes what torch.optim.SGD, Adam and AdamW compute with fused = true: each group in one or a few
/// launches, without host synchronization. A parameter without a gradient is skipped, and has no state before
/// its first gradient: as in torch.optim, each parameter counts its own steps.
///
/// Parameters may be float32, float64, bfloat16 or float16; those of different types and devices may share a
/// group. The state has the type of its parameter. It follows the parameter when its memory format changes,
/// but not to another device or type: call reset() then, or build the optimizer after moving the model.
///
/// On CUDA the learning rate is an fp32 number on the device, as the kernels take it: step() can be captured
/// in a CUDA graph and replayed with another learning rate, once every parameter with a gradient has a state.
class Optimizer {
 public:
  /// Keeps references to the parameters. Throws if a parameter is not a dense floating-point leaf or occurs
  /// twice, under one name or two; the error names it.
  Optimizer(std::vector<ParameterGroup> groups, const OptimOptions& options);
  ~Optimizer();

  /// Takes a step with learning rate lr · lr_scale in each group: set_lr(lr), then step().
  void step(double lr);
  /// Sets the learning rate of the following steps, including captured ones.
  void set_lr(double lr);
  /// Takes a step with the learning rate that was set.
  void step();
  /// Sets all gradients to none.
  void zero_grad();
  /// Scales all gradients so that their total norm is at most `max_norm` (torch.nn.utils.clip_grad_norm_).
  /// Returns the norm before scaling, on the device and without synchronization; 0 if there are no gradients.
  at::Tensor clip_grad_norm(double max_norm);
  /// Forgets the state (momenta, step counts) of all parameters.
  void reset();

  const std::vector<ParameterGroup>& groups() const;

  /// Changes whenever reset() or load_state_dict() has moved the state to other memory, so that a captured
  /// step must be captured again.
  int64_t generation() const;

  /// The state by the names of the parameters, as copies on the CPU: "NAME.momentum" with SGD,
  /// "NAME.exp_avg", "NAME.exp_avg_sq" and "NAME.step" with Adam and AdamW, for parameters that have had a
  /// gradient; and "optimizer", the number of the algorithm (Opt). After loading, steps are bit-exact
  /// continuations whatever the groups were, if the parameters have the same memory format. Loading throws,
  /// naming the tensor and changing nothing, if the state has other parameters, shapes or types, or is of
  /// another optimizer.
  NamedTensors state_dict() const;
  void load_state_dict(const NamedTensors& state);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tpgm
