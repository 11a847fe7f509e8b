// What all methods that hold weights against an anchor have in common.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tpgm/core/constraints.h"
#include "tpgm/methods/method.h"

namespace tpgm {

/// A method over the trainable parameters of a module that have an anchor and are not excluded. Derive from
/// it, use `constraints_` in the hooks, call constraints_.poll() at the start of a step and
/// constraints_.post() at its end; see examples/3-own-method.cpp. Say next_step() if its steps can be
/// recorded.
class AnchoredMethod : public Method {
 public:
  const Constraints& constraints() const { return constraints_; }

  std::vector<std::string> constrained() const override { return constraints_.names(); }
  void finish(const Closure& radius_loss) override;
  void check() override { constraints_.check(); }
  void replayed() override;

  /// Which anchor the state belongs to; derived methods add their own. Loading it beside another anchor
  /// throws: that catches a method that was built after the checkpoint was loaded into the model, and so took
  /// half-trained weights for pre-trained ones.
  NamedTensors state_dict() const override;
  void load_state_dict(const NamedTensors& state) override;

 protected:
  /// `name` begins the messages. The anchor is copied.
  AnchoredMethod(std::string name, torch::nn::Module& module, const NamedTensors& anchor,
                 const std::vector<std::string>& exclude, Norm norm, AnchorStorage storage);
  /// The same for another selection of tensors.
  AnchoredMethod(std::string name, const std::vector<Selected>& selected, Norm norm, AnchorStorage storage);

  /// Pieces of a state: a number (throws if it is not there), and all entries under a prefix.
  static void put(NamedTensors& state, const std::string& name, int64_t value);
  static void put(NamedTensors& state, const std::string& prefix, const NamedTensors& part);
  int64_t get_int(const NamedTensors& state, const std::string& name) const;
  static NamedTensors get_part(const NamedTensors& state, const std::string& prefix);

  const std::string name_;
  Constraints constraints_;
};

}  // namespace tpgm
