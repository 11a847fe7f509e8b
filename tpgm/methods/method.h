// The seam between a training loop and a fine-tuning method: three hooks, a check and a state. What only some
// loops and methods have beside them are interfaces of their own.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/ordered_dict.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tpgm/core/held_out_loss.h"
#include "tpgm/io/named_tensors.h"

namespace tpgm {

/// A fine-tuning method, attached to a model for one training run. A loop calls, in every step,
///
///     optimizer.zero_grad();
///     loss.backward();
///     method.before_step();
///     optimizer.step();
///     method.after_step(radius_loss);
///
/// and `method.finish(radius_loss)` once, after the last. `radius_loss` returns the loss of a fresh batch of
/// radius data (held out, never training data); methods that learn nothing from it never call it, and it may
/// be empty.
///
/// A method refers to the model, which must outlive it, stay on its device and keep its types.
class Method {
 public:
  virtual ~Method() = default;
  Method(const Method&) = delete;
  Method& operator=(const Method&) = delete;

  /// After backward(), before the optimizer's step: may read and change the gradients.
  virtual void before_step() {}
  /// After the optimizer's step: may change the weights. A loop may have dropped the gradients by then.
  virtual void after_step(const Closure& radius_loss) { (void)radius_loss; }
  /// After the last step.
  virtual void finish(const Closure& radius_loss) { (void)radius_loss; }

  /// True if after_step() or finish() calls its closure.
  virtual bool needs_radius_data() const { return false; }

  /// Throws if a NaN or Inf was seen that has not been reported yet. Hooks report by themselves: on the CPU
  /// at once, on CUDA a step or so later, because they do not wait for the device. This call waits; make it
  /// where you read the loss, or between before_step() and the optimizer's step to keep bad gradients out of
  /// the weights.
  virtual void check() {}

  /// Everything the method needs to resume bit for bit in another process, except the weights and the anchor.
  /// All tensors are copies on the CPU.
  virtual NamedTensors state_dict() const { return NamedTensors(); }
  /// Takes over a state saved by the same method, built with the same model, anchor and options.
  virtual void load_state_dict(const NamedTensors& state) { (void)state; }

 protected:
  Method() = default;
};

/// For logs: what a method constrains, and how far. Derive from it beside Method; loops find it by
/// dynamic_cast.
class HasRadii {
 public:
  virtual ~HasRadii() = default;
  /// The tensors that are held against the anchor.
  virtual std::vector<std::string> constrained() const = 0;
  /// γ of each tensor, and what its displacement was last multiplied by; empty if there are none (yet). Both
  /// wait for the device.
  virtual NamedNumbers radii() const { return NamedNumbers(); }
  virtual NamedNumbers ratios() const { return NamedNumbers(); }
};

/// What a method that is no HasRadii gives: nothing.
std::vector<std::string> constrained_by(const Method& method);
NamedNumbers radii_of(const Method& method);
NamedNumbers ratios_of(const Method& method);

/// What a step does on the device. Steps of one kind launch the same kernels on the same memory, so that a
/// loop may capture one of them (in a CUDA graph) and replay it in place of the others.
struct StepPlan {
  int kind = 0;
  int64_t radius_losses = 0;  ///< how often after_step() calls its closure
};

/// For loops that make steps cheaper: by capturing whole steps in CUDA graphs, and by evaluating radius
/// losses in bfloat16. Derive from it beside Method; loops find it by dynamic_cast, and run the steps of
/// other methods as they are.
class Capturable {
 public:
  virtual ~Capturable() = default;
  /// What the next step will do; none: it cannot be captured. A method that says something here keeps what it
  /// needs from step to step in memory of its own that stays where it is, does in a step of one kind the same
  /// whatever the numbers on the device are, and waits for nothing. It is asked again before every step.
  virtual std::optional<StepPlan> next_step() const { return std::nullopt; }
  /// A captured step was replayed in place of before_step() and after_step(): counters on the host move on.
  /// Throws as hooks do.
  virtual void replayed() {}

  /// The radius losses from now on read these parameters in bfloat16 alone, as autocast's matrix products do:
  /// a method that evaluates them at other weights may then make those in that type. Replaces what was said
  /// before; with none, they read parameters as they are.
  virtual void read_in_bfloat16(const std::vector<at::Tensor>& parameters) { (void)parameters; }
};

/// For methods of several phases, each with a schedule of its own, that the loop begins; loops find it by
/// dynamic_cast.
class HasPhases {
 public:
  virtual ~HasPhases() = default;
  virtual void next_phase() = 0;
};

}  // namespace tpgm
