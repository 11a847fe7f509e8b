// What was found not to be finite, as one number that kernels and host agree on. Smaller codes come first: of
// several findings the report keeps the smallest.
#pragma once

#include "tpgm/kernels/types.h"

namespace tpgm::kernels {

inline constexpr int32_t kAllFinite = 0x7fffffff;

/// The weights or the anchor of a tensor; the loss; the gradient of a tensor. `tensors` is how many there
/// are.
TPGM_ANYWHERE constexpr int32_t code_of_weights(int32_t tensor) { return tensor; }
TPGM_ANYWHERE constexpr int32_t code_of_loss(int32_t tensors) { return tensors; }
TPGM_ANYWHERE constexpr int32_t code_of_gradient(int32_t tensors, int32_t tensor) {
  return tensors + 1 + tensor;
}

/// What a code says; the inverse of the three.
struct NotFinite {
  enum What : uint8_t { kWeights, kLoss, kGradient } what;
  int32_t tensor;  // of weights and gradients
};

constexpr NotFinite decode(int32_t code, int32_t tensors) {
  if (code < code_of_loss(tensors)) return {NotFinite::kWeights, code - code_of_weights(0)};
  if (code == code_of_loss(tensors)) return {NotFinite::kLoss, 0};
  return {NotFinite::kGradient, code - code_of_gradient(tensors, 0)};
}

}  // namespace tpgm::kernels
