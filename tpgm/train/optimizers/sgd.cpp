// torch.optim.SGD, with or without (Nesterov) momentum.
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_fused_sgd.h>

#include "tpgm/train/optimizers/algorithm.h"

namespace tpgm {
namespace {

std::vector<StateTensor> sgd_state(const OptimOptions& options) {
  if (options.momentum() == 0) return {};
  return {{"momentum"}};
}

// As torch.optim.SGD computes it with foreach = true.
void foreach_sgd_step(ParameterBatch& batch, const OptimOptions& options, double weight_decay, double lr) {
  auto steps = batch.gradients;
  if (weight_decay != 0) steps = at::_foreach_add(steps, batch.parameters, weight_decay);
  if (options.momentum() != 0) {
    const auto& momentum = batch.state[0];
    if (batch.first_step) {
      at::_foreach_copy_(momentum, steps);
    } else {
      at::_foreach_mul_(momentum, options.momentum());
      at::_foreach_add_(momentum, steps);
    }
    steps = options.nesterov() ? at::_foreach_add(steps, momentum, options.momentum()) : momentum;
  }
  at::_foreach_add_(batch.parameters, steps, -lr);
}

void sgd_step(ParameterBatch& batch, const OptimOptions& options, double weight_decay,
              const LearningRate& lr) {
  if (const auto* number = std::get_if<double>(&lr);
      number != nullptr && batch.parameters[0].element_size() == 2) {
    // On CPUs LibTorch's fused kernel for 16-bit types (to 2.13 at least) updates only the elements behind
    // the last whole vector.
    foreach_sgd_step(batch, options, weight_decay, *number);
    return;
  }
  const bool has_momentum = options.momentum() != 0;
  std::visit(
      [&](const auto& rate) {
        at::_fused_sgd_(batch.parameters, batch.gradients,
                        has_momentum ? at::TensorList(batch.state[0]) : at::TensorList(), weight_decay,
                        options.momentum(), rate, /*dampening=*/0, options.nesterov() && has_momentum,
                        /*maximize=*/false, batch.first_step);
      },
      lr);
}

}  // namespace

const OptimizerAlgorithm kSgdAlgorithm{sgd_state, sgd_step};

}  // namespace tpgm
