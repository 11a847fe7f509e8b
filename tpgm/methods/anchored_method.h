// What all methods that hold weights against an anchor have in common.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tpgm/core/displacements.h"
#include "tpgm/core/module_view.h"
#include "tpgm/methods/anchored_options.h"
#include "tpgm/methods/method.h"

namespace tpgm {

/// A method over the trainable parameters of a model that have an anchor and are not excluded. Derive from
/// it, use `displacements_` in the hooks, call poll() at the start of a step and post() at its end; see
/// examples/3-own-method.cpp. Override next_step() if its steps can be captured.
class AnchoredMethod : public Method, public HasRadii, public Capturable {
 public:
  const Displacements& displacements() const { return displacements_; }

  std::vector<std::string> constrained() const override { return displacements_.names(); }
  void finish(const Closure& radius_loss) override;
  void check() override { displacements_.flag().check(); }
  void replayed() override;

  /// Which anchor the state belongs to; derived methods add their own. Loading it beside another anchor
  /// throws: that catches a method that was built after the checkpoint was loaded into the model, and so took
  /// half-trained weights for pre-trained ones.
  NamedTensors state_dict() const override;
  void load_state_dict(const NamedTensors& state) override;

 protected:
  /// `name` begins the messages. The anchor is copied.
  template <class Options>
  AnchoredMethod(std::string name, const ModuleView& model, const NamedTensors& anchor,
                 const AnchoredOptions<Options>& options, Norm norm)
      : AnchoredMethod(name, select(name, model, anchor, options.exclude()), norm, options.anchor_storage()) {
  }
  /// The anchor is what the model holds now.
  template <class Options>
  AnchoredMethod(std::string name, const ModuleView& model, const AnchoredOptions<Options>& options,
                 Norm norm)
      : AnchoredMethod(std::move(name), model, model.named_parameters(), options, norm) {}
  /// The same for another selection of tensors.
  AnchoredMethod(std::string name, const std::vector<Selected>& selected, Norm norm, AnchorStorage storage);

  /// Errors of steps before that have arrived by now; see FiniteFlag. Both do nothing while a step is
  /// captured.
  void poll() { displacements_.flag().poll(); }
  void post() { displacements_.flag().post(); }

  /// A number of a state; get_int() throws if it is not there.
  static void put(NamedTensors& state, const std::string& name, int64_t value);
  int64_t get_int(const NamedTensors& state, const std::string& name) const;

  const std::string name_;
  Displacements displacements_;
};

}  // namespace tpgm
