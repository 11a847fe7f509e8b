#include "tpgm/methods/l2_sp.h"

#include <ATen/ops/zeros_like.h>

#include <cmath>

namespace tpgm {
L2Sp::L2Sp(const ModuleView& model, L2SpOptions options)
    : L2Sp(model, model.named_parameters(), std::move(options)) {}

L2Sp::L2Sp(const ModuleView& model, const NamedTensors& anchor, L2SpOptions options)
    : AnchoredMethod("L2Sp", model, anchor, options, Norm::kL2), options_(std::move(options)) {
  TORCH_CHECK(options_.mu() >= 0 && std::isfinite(options_.mu()), "[L2Sp] mu must be at least 0, not ",
              options_.mu());
}

void L2Sp::before_step() {
  poll();
  displacements_.measure();  // only for its check: add_displacement() must not spread a NaN of the weights
  std::vector<at::Tensor> gradients;
  for (auto tensor : displacements_.tensors()) {
    auto& gradient = tensor.mutable_grad();
    if (!gradient.defined())
      gradient = at::zeros_like(tensor);
    else if (gradient.is_sparse())
      gradient = gradient.to_dense();
    gradients.push_back(gradient);
  }
  displacements_.add_displacement(gradients, 2 * options_.mu());
  post();
}

}  // namespace tpgm
