#include "tpgm/methods/l2_sp.h"

#include <ATen/ops/zeros_like.h>

#include <cmath>

namespace tpgm {
L2Sp::L2Sp(torch::nn::Module& module, L2SpOptions options)
    : L2Sp(module, module.named_parameters(), std::move(options)) {}

L2Sp::L2Sp(torch::nn::Module& module, const NamedTensors& anchor, L2SpOptions options)
    : AnchoredMethod("L2Sp", module, anchor, options.exclude(), Norm::kL2, options.anchor_storage()),
      options_(std::move(options)) {
  TORCH_CHECK(options_.mu() >= 0 && std::isfinite(options_.mu()), "[L2Sp] mu must not be negative, and is ",
              options_.mu());
}

void L2Sp::before_step() {
  constraints_.poll();
  constraints_.measure();  // for the check alone: what follows must not spread a NaN of the weights
  std::vector<at::Tensor> gradients;
  for (auto tensor : constraints_.tensors()) {
    auto& gradient = tensor.mutable_grad();
    if (!gradient.defined())
      gradient = at::zeros_like(tensor);
    else if (gradient.is_sparse())
      gradient = gradient.to_dense();
    gradients.push_back(gradient);
  }
  constraints_.add_displacement(gradients, 2 * options_.mu());
  constraints_.post();
}

}  // namespace tpgm
