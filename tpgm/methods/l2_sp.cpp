#include "tpgm/methods/l2_sp.h"

#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include <cmath>

namespace tpgm {
L2Sp::L2Sp(const ModuleView& model, L2SpOptions options)
    : L2Sp(model, model.named_parameters(), std::move(options)) {}

L2Sp::L2Sp(const ModuleView& model, const NamedTensors& anchor, L2SpOptions options)
    : AnchoredMethod("L2Sp", model, anchor, options, Norm::kL2),
      options_(std::move(options)),
      distances_(at::zeros({displacements_.size()}, displacements_.scalar_options())),
      along_(at::zeros_like(distances_)) {
  TORCH_CHECK(options_.mu() >= 0 && std::isfinite(options_.mu()), "[L2Sp] mu must be at least 0, not ",
              options_.mu());
}

void L2Sp::before_step() {
  poll();
  std::vector<at::Tensor> gradients;
  for (auto tensor : displacements_.tensors()) {
    auto& gradient = tensor.mutable_grad();
    if (!gradient.defined())
      gradient = at::zeros_like(tensor);
    else if (gradient.is_sparse())
      gradient = gradient.to_dense();
    gradients.push_back(gradient);
  }
  // Its check also keeps add_displacement() from spreading a NaN of the weights.
  const auto [along, distances] =
      displacements_.measure_radius_gradients(gradients, displacements_.largest(), Rows::kAll);
  distances_.copy_(distances);
  along_.copy_(along);
  displacements_.add_displacement(gradients, 2 * options_.mu());
  post();
}

std::optional<HasDiagnosis::Diagnosis> L2Sp::diagnosis() {
  constexpr double kLittle = 1e-3;
  const double pull = 2 * options_.mu() * distances_.sum().item<double>();
  const double along = along_.abs().sum().item<double>();
  if (along == 0 || pull >= kLittle * along) return std::nullopt;
  return Diagnosis{
      Finding::kNoEffect,
      fmt::format("in the last step the penalty's gradient is {:.2g} % of the loss's along the displacement",
                  100 * pull / along),
      "a `mu` ten or a hundred times as large"};
}

NamedTensors L2Sp::state_dict() const {
  auto state = AnchoredMethod::state_dict();
  state.insert("distances", distances_.cpu().clone());
  state.insert("along", along_.cpu().clone());
  return state;
}

void L2Sp::load_state_dict(const NamedTensors& state) {
  AnchoredMethod::load_state_dict(state);
  load_numbers(state, "distances", distances_);
  load_numbers(state, "along", along_);
}

}  // namespace tpgm
