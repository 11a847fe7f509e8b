#include "tpgm/core/held_copy.h"

#include <ATen/DeviceGuard.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <utility>

#include "tpgm/core/memory_order.h"

namespace tpgm {

// Memory for copies of `weights`. On the CPU hold() may throw, and the old copies must then be intact.
std::vector<at::Tensor> HeldCopy::room_for(const std::vector<at::Tensor>& weights) const {
  std::vector<at::Tensor> room;
  for (size_t k = 0; k < weights.size(); ++k) {
    const auto& like = weights[k];
    const bool again = like.is_cuda() && !values_.empty() && same_order(values_[k], like);
    room.push_back(again ? values_[k] : empty_in_order_of(like, like.scalar_type()));
  }
  return room;
}

void HeldCopy::start_from(std::vector<at::Tensor> values) {
  values_ = std::move(values);
  displacements_.take_from(&values_);
  holds_ = true;
}

void HeldCopy::hold() {
  const at::OptionalDeviceGuard guard(displacements_.device());
  const at::NoGradGuard no_grad;
  const auto weights = displacements_.dense_tensors();
  auto copies = room_for(weights);
  displacements_.measure_values(weights, copies);
  start_from(std::move(copies));
}

void HeldCopy::load(const std::vector<at::Tensor>& values) {
  if (values.empty()) return release();
  const at::OptionalDeviceGuard guard(displacements_.device());
  const at::NoGradGuard no_grad;
  const auto like = displacements_.dense_tensors();
  for (size_t k = 0; k < values.size(); ++k) {
    TORCH_CHECK(values[k].sizes() == like[k].sizes(), "'", displacements_.names()[k], "' is ",
                values[k].sizes(), " in the state, ", like[k].sizes(), " in the model");
  }
  auto room = room_for(like);
  for (size_t k = 0; k < values.size(); ++k) room[k].copy_(values[k]);
  displacements_.measure_values(room);
  start_from(std::move(room));
}

void HeldCopy::release() {
  displacements_.take_from(nullptr);
  holds_ = false;
}

}  // namespace tpgm
