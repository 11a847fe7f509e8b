// Codes by which kernels report to the host what holds a NaN or Inf. The report keeps the smallest code.
#pragma once

#include "tpgm/kernels/types.h"

namespace tpgm::kernels {

inline constexpr int32_t kAllFinite = 0x7fffffff;

/// The codes for the weights or the anchor of a tensor, for the loss, and for the gradient of a tensor.
/// `tensors` is the number of tensors.
TPGM_ANYWHERE constexpr int32_t code_of_weights(int32_t tensor) { return tensor; }
TPGM_ANYWHERE constexpr int32_t code_of_loss(int32_t tensors) { return tensors; }
TPGM_ANYWHERE constexpr int32_t code_of_gradient(int32_t tensors, int32_t tensor) {
  return tensors + 1 + tensor;
}

/// A decoded report.
struct NotFinite {
  enum What : uint8_t { kWeights, kLoss, kGradient } what;
  int32_t tensor;  // its index, with kWeights and kGradient
};

/// The inverse of the three codes.
constexpr NotFinite decode(int32_t code, int32_t tensors) {
  if (code < code_of_loss(tensors)) return {NotFinite::kWeights, code - code_of_weights(0)};
  if (code == code_of_loss(tensors)) return {NotFinite::kLoss, 0};
  return {NotFinite::kGradient, code - code_of_gradient(tensors, 0)};
}

}  // namespace tpgm::kernels
