// A model that is about to be constrained by TPGM, and the ways to train it.
#pragma once

#include <ATen/CPUGeneratorImpl.h>

#include <map>
#include <set>
#include <sstream>
#include <stdexcept>

#include "tests/methods/models.h"
#include "tests/methods/training.h"
#include "tpgm/methods/tpgm.h"
#include "tpgm/methods/wise.h"

namespace tpgm::testing {

using torch::Tensor;

inline OptimizerFactory own_adam(double lr) {
  return
      [lr](auto radii) { return std::make_unique<torch::optim::Adam>(radii, torch::optim::AdamOptions(lr)); };
}

/// The state without what may differ after a failed call: the closures' random stream goes on (the next call
/// should not draw the same bad batch again), LibTorch writes addresses into the bytes of an own optimizer,
/// and on CUDA the step is over by the time its error is known.
inline NamedTensors learned_state(const Tpgm& tpgm) {
  NamedTensors result;
  for (const auto& item : tpgm.state_dict()) {
    const auto& name = item.key();
    const bool may_differ = name.starts_with("probe.") || name == "radii.optimizer" ||
                            (name == "step" && tpgm.displacements().device().is_cuda());
    if (!may_differ) result.insert(name, item.value());
  }
  return result;
}

class TpgmTest : public Repeatable {
 protected:
  void SetUp() override {
    Repeatable::SetUp();
    if (!IsSkipped()) use(make_net(device()));
  }
  void use(const Net& model) {
    net = model;
    anchor = copy(net);
    start_over();
  }
  void start_over() {
    assign(net, anchor);
    optimizer = sgd()(net->parameters());
    held_out = held_out_loss(net);
    next = 0;
  }
  void train(Tpgm& tpgm, int steps) {
    for (int i = 0; i < steps; ++i) train_step(net, *optimizer, tpgm, next++, held_out);
  }
  /// The training step without the method's part.
  void move() {
    optimizer->zero_grad();
    loss(net, batch_for(net, next++)).backward();
    optimizer->step();
  }

  Net net = nullptr;
  NamedTensors anchor;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  Closure held_out;
  int64_t next = 0;
};

}  // namespace tpgm::testing
