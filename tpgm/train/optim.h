// Optimizers over groups of parameters, as PyTorch's compute them, each step in a few kernels.
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

enum class Opt { kSgd, kAdam, kAdamW };
template <>
struct Words<Opt> {
  static constexpr std::pair<Opt, const char*> all[] = {
      {Opt::kSgd, "sgd"}, {Opt::kAdam, "adam"}, {Opt::kAdamW, "adamw"}};
};

struct OptimOptions {
  using Betas = std::array<double, 2>;
  TORCH_ARG(Opt, opt) = Opt::kAdamW;
  TORCH_ARG(double, momentum) = 0.9;  ///< of SGD; 0: none
  TORCH_ARG(bool, nesterov) = true;   ///< of SGD; has no effect without momentum
  TORCH_ARG(Betas, betas) = { 0.9, 0.999 };
  TORCH_ARG(double, eps) = 1e-8;
};

/// Parameters that share a rate and a decay.
struct ParameterGroup {
  NamedTensors parameters;
  double lr_scale = 1;      ///< times the rate that step() is given
  double weight_decay = 0;  ///< decoupled with AdamW, added to the gradient with SGD and Adam
};

/// What torch.optim.SGD, Adam and AdamW do with fused = true: every group in one or a few launches, no host
/// synchronisation. Parameters without a gradient are passed over, and have no state until they have one
/// (as torch.optim has it: their count of steps is their own).
///
/// float32, float64, bfloat16 and float16; parameters of several types and devices may share a group. The
/// state is of the parameters' type and follows them when they change their memory format, not to another
/// device or type: reset() then, or build the optimizer after moving the model.
///
/// On CUDA the rate is a number on the device (fp32, as the kernels take it there): step() can be captured in
/// a graph and replayed with another rate, once every parameter with a gradient has a state.
class Optimizer {
 public:
  /// Refers to the parameters. Throws, naming it, for one that is no dense floating-point leaf or is there
  /// twice, under one name or two.
  Optimizer(std::vector<ParameterGroup> groups, const OptimOptions& options);
  ~Optimizer();

  /// Takes a step with rate lr · lr_scale in each group: set_lr(lr), then step().
  void step(double lr);
  /// The rate of the steps from now on, captured ones among them.
  void set_lr(double lr);
  /// Takes a step with the rate that was set.
  void step();
  /// Gradients become none.
  void zero_grad();
  /// Scales all gradients so that their norm together is at most `most` (torch.nn.utils.clip_grad_norm_).
  /// Returns the norm before, on the device, without waiting; 0 if there are no gradients.
  at::Tensor clip_grad_norm(double most);
  /// As new: momenta and step counts are forgotten.
  void reset();

  const std::vector<ParameterGroup>& groups() const;

  /// Another number whenever reset() or load_state_dict() has put the state elsewhere in memory.
  std::int64_t generation() const;

  /// By the parameters' names; copies on the CPU. "NAME.momentum" of SGD, "NAME.exp_avg", "NAME.exp_avg_sq"
  /// and "NAME.step" of the others, for parameters that had a gradient; "optimizer", which one it is. Loading
  /// continues bit for bit, whatever the groups were, if the parameters have the same memory format. Throws,
  /// naming the tensor and changing nothing, for a state of other parameters, shapes, types or of another
  /// optimizer.
  NamedTensors state_dict() const;
  void load_state_dict(const NamedTensors& state);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct GroupOptions {
  TORCH_ARG(double, weight_decay) = 0;
  /// On biases and norms too: parameters of one dimension or called bias.
  TORCH_ARG(bool, decay_all) = false;
  /// Factor on the rate from each block to the one before it.
  TORCH_ARG(double, layer_decay) = 1;
  /// Factor on the head's rate.
  TORCH_ARG(double, head_scale) = 1;
};

/// The parameters of a classifier (models/classifier.h) in as few groups as they have rates and decays, in
/// their order; one under two names once, under the first. A parameter belongs to the head if its name begins
/// with "head.", or to the one of the `blocks`, input to output ("backbone.layer1.0"), that its name begins
/// with, or else to the first. With layer_decay the last block has factor layer_decay, the one before its
/// square, the head 1 · head_scale.
std::vector<ParameterGroup> parameter_groups(const NamedTensors& parameters,
                                             const std::vector<std::string>& blocks,
                                             const GroupOptions& options);

}  // namespace tpgm
