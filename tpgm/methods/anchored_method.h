// The base class of methods that have an anchor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tpgm/base/call.h"
#include "tpgm/core/displacements.h"
#include "tpgm/core/module_view.h"
#include "tpgm/methods/anchored_options.h"
#include "tpgm/methods/method.h"

namespace tpgm {

/// A method on the trainable parameters of a model that are not excluded. A derived class uses
/// `displacements_` in its hooks, and calls poll() at the start of a step and post() at its end; see
/// examples/3-own-method.cpp. It overrides next_step() if its steps can be captured.
class AnchoredMethod : public Method, public HasRadii, public Capturable {
 public:
  const Displacements& displacements() const { return displacements_; }

  /// ‖θ − θ₀‖ / ‖θ₀‖ over all constrained tensors as one vector. Waits for the device.
  double relative_distance() const;

  std::vector<std::string> constrained() const override { return displacements_.names(); }
  void finish(const Closure& radius_loss) override;
  void check() override { displacements_.flag().check(); }
  void replayed() override;

  /// The state identifies the anchor; derived methods add to it. Loading it into a method with another anchor
  /// throws. This catches methods that were built after a checkpoint was loaded into the model, and so took
  /// half-trained weights for the anchor.
  NamedTensors state_dict() const override;
  void load_state_dict(const NamedTensors& state) override;

 protected:
  /// Messages begin with [name]. The anchor is copied.
  template <class Options>
  AnchoredMethod(const std::string& name, const ModuleView& model, const NamedTensors& anchor,
                 const AnchoredOptions<Options>& options, Norm norm) try
      : AnchoredMethod(name, select(model, anchor, options.exclude()), norm, options.anchor_storage()) {
  } catch (...) {
    rethrow_from(name);
  }
  /// The anchor is a copy of the model's present weights.
  template <class Options>
  AnchoredMethod(const std::string& name, const ModuleView& model, const AnchoredOptions<Options>& options,
                 Norm norm)
      : AnchoredMethod(name, model, model.named_parameters(), options, norm) {}
  /// For another selection of tensors.
  AnchoredMethod(const std::string& name, const std::vector<Selected>& selected, Norm norm,
                 AnchorStorage storage);

  /// Report NaN and Inf of earlier steps; see FiniteFlag. Both do nothing while a step is captured.
  void poll() { displacements_.flag().poll(); }
  void post() { displacements_.flag().post(); }

  /// Write and read an integer of a state. get_int() throws if there is none.
  static void put(NamedTensors& state, const std::string& name, int64_t value);
  int64_t get_int(const NamedTensors& state, const std::string& name) const;
  /// Copies numbers per tensor from a state; zeros if it has none, as states of version 0.1.0.
  void load_numbers(const NamedTensors& state, const std::string& name, at::Tensor& numbers) const;

  const std::string name_;
  Displacements displacements_;
};

}  // namespace tpgm
