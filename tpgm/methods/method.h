// The interface between a training loop and a fine-tuning method: three hooks, a check and a state. Features
// that only some methods have (radii, a diagnosis, CUDA graphs, phases) are interfaces of their own.
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
/// and `method.finish(radius_loss)` once after the last step. `radius_loss` returns the loss of a fresh batch
/// of radius data (held out, never training data). It may be empty for methods whose needs_radius_data() is
/// false.
///
/// The model must outlive the method, and keep its device and types.
class Method {
 public:
  virtual ~Method() = default;
  Method(const Method&) = delete;
  Method& operator=(const Method&) = delete;

  /// Derived classes that freeze parameters in some of their steps, which are cheaper then, set this to
  /// false.
  static constexpr bool kTrainsAll = true;
  /// Derived classes that train nothing but the head set this to true.
  static constexpr bool kHeadOnly = false;

  /// Called after backward() and before optimizer.step(): may read and change the gradients.
  virtual void before_step() {}
  /// Called after optimizer.step(): may change the weights. The gradients may be gone by then.
  virtual void after_step(const Closure& radius_loss) { (void)radius_loss; }
  /// Called after the last step.
  virtual void finish(const Closure& radius_loss) { (void)radius_loss; }

  /// True if after_step() or finish() calls its closure.
  virtual bool needs_radius_data() const { return false; }

  /// Throws if there was a NaN or Inf that was not reported yet. Hooks throw by themselves: on the CPU at
  /// once, on CUDA a step or so later, because they do not wait for the device. check() waits: call it where
  /// you read the loss, or between before_step() and optimizer.step() to keep bad gradients out of the
  /// weights.
  virtual void check() {}

  /// Everything that a bit-exact resume in another process needs, except the weights and the anchor. All
  /// tensors are copies on the CPU.
  virtual NamedTensors state_dict() const { return NamedTensors(); }
  /// Loads a state saved by the same method, built with the same model, anchor and options.
  virtual void load_state_dict(const NamedTensors& state) { (void)state; }

 protected:
  Method() = default;
};

/// Radii for logs. A method derives from it in addition to Method; loops find it by dynamic_cast.
class HasRadii {
 public:
  virtual ~HasRadii() = default;
  /// The names of the constrained tensors.
  virtual std::vector<std::string> constrained() const = 0;
  /// γ of each tensor, and the ratio of its last projection; empty if there are none (yet). Both wait for the
  /// device.
  virtual NamedNumbers radii() const { return NamedNumbers(); }
  virtual NamedNumbers ratios() const { return NamedNumbers(); }
};

/// The same of any method; empty if it does not implement HasRadii.
std::vector<std::string> constrained_by(const Method& method);
NamedNumbers radii_of(const Method& method);
NamedNumbers ratios_of(const Method& method);

/// What a method sees in its own numbers: whether its strength suits the run. A method derives from it in
/// addition to Method; loops find it by dynamic_cast.
class HasDiagnosis {
 public:
  virtual ~HasDiagnosis() = default;
  enum class Finding {
    kHeld,      ///< The method holds the weights at the anchor.
    kNoEffect,  ///< The method changes nothing: the run is plain fine-tuning.
  };
  struct Diagnosis {
    Finding finding;
    std::string numbers;  ///< what shows it: "67 % of the ratios are below 0.01"
    std::string remedy;   ///< what to try, with options as `key`
  };
  /// About the last step; none if all is well, before the first step, and where it cannot be known. Waits for
  /// the device. Methods that are resumed from a state know the step before it.
  virtual std::optional<Diagnosis> diagnosis() = 0;
};
std::optional<HasDiagnosis::Diagnosis> diagnosis_of(Method& method);

/// What a step does on the device. Steps of one kind launch the same kernels on the same memory, so a loop
/// may capture one of them in a CUDA graph and replay it in place of the others.
struct StepPlan {
  int kind = 0;
  int64_t radius_losses = 0;  ///< how often after_step() calls its closure
};

/// Lets a loop make steps cheaper: capture whole steps in CUDA graphs, and evaluate radius losses in
/// bfloat16. A method derives from it in addition to Method; loops find it by dynamic_cast, and run the steps
/// of other methods eagerly.
class Capturable {
 public:
  virtual ~Capturable() = default;
  /// The plan of the next step; none if it cannot be captured. Loops call this before every step. A method
  /// that returns a plan promises that its state between steps stays in the same memory, that steps of one
  /// kind launch the same work whatever the values on the device are, and that they never wait for the
  /// device.
  virtual std::optional<StepPlan> next_step() const { return std::nullopt; }
  /// Called after a captured step was replayed in place of before_step() and after_step(): advances counters
  /// on the host. Throws like the hooks.
  virtual void replayed() {}

  /// Declares that radius losses read these parameters only in bfloat16, as matmuls under autocast do. A
  /// method that evaluates radius losses at other weights may then make those in bfloat16. Each call replaces
  /// the list of the call before.
  virtual void read_in_bfloat16(const std::vector<at::Tensor>& parameters) { (void)parameters; }
};

/// Phases, each with a schedule of its own, that the loop starts. The first is linear probing, until the
/// first next_phase(). A method derives from it in addition to Method; loops find it by dynamic_cast.
class HasPhases {
 public:
  virtual ~HasPhases() = default;
  virtual void next_phase() = 0;
};

}  // namespace tpgm
