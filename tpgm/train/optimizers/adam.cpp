// torch.optim.Adam and AdamW, which differ in where weight decay goes: into the gradient or directly into the
// weights.
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>

#include "tpgm/train/optimizers/algorithm.h"

namespace tpgm {
namespace {

std::vector<StateTensor> adam_state(const OptimOptions&) {
  return {{"exp_avg"}, {"exp_avg_sq"}, {"step", /*is_step_count=*/true}};
}

template <bool decoupled_decay>
void adam_step(ParameterBatch& batch, const OptimOptions& options, double weight_decay,
               const LearningRate& lr) {
  const auto& [beta1, beta2] = options.betas();
  const auto& exp_avg = batch.state[0];
  const auto& exp_avg_sq = batch.state[1];
  const auto& steps = batch.state[2];
  at::_foreach_add_(steps, 1);
  std::visit(
      [&, beta1 = beta1, beta2 = beta2](const auto& rate) {
        if constexpr (decoupled_decay) {
          at::_fused_adamw_(batch.parameters, batch.gradients, exp_avg, exp_avg_sq, {}, steps, rate, beta1,
                            beta2, weight_decay, options.eps(), /*amsgrad=*/false, /*maximize=*/false);
        } else {
          at::_fused_adam_(batch.parameters, batch.gradients, exp_avg, exp_avg_sq, {}, steps, rate, beta1,
                           beta2, weight_decay, options.eps(), /*amsgrad=*/false, /*maximize=*/false);
        }
      },
      lr);
}

}  // namespace

const OptimizerAlgorithm kAdamAlgorithm{adam_state, adam_step<false>};
const OptimizerAlgorithm kAdamWAlgorithm{adam_state, adam_step<true>};

}  // namespace tpgm
