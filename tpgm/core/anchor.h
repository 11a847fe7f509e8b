// The anchor: a method's frozen copy of the pre-trained weights θ₀.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tpgm {

/// Where and how the anchor is kept.
enum class AnchorStorage {
  /// In the weights' type, on their device: one more copy of the weights. The default.
  kWeights,
  /// In bfloat16, on their device. Exact only if the pre-trained weights were bfloat16; otherwise θ₀ is
  /// rounded, so weights that have not moved are up to 2⁻⁹ of their size away from it, and a small radius
  /// pulls them to the rounded values.
  kBFloat16,
  /// In the weights' type in pinned host memory: no device memory, but each pass reads it over the bus. The
  /// same as kWeights for weights on the CPU.
  kHost,
};

/// A copy of `pretrained`, never an alias, stored as `storage` says. Type, device and memory order are those
/// of the weights `like`, unless `storage` says otherwise.
at::Tensor store_anchor(const at::Tensor& pretrained, const at::Tensor& like, AnchorStorage storage);

/// A hash of names, shapes and bytes that identifies an anchor; the same on every device.
int64_t fingerprint(const std::vector<std::string>& names, const std::vector<at::Tensor>& anchors);

}  // namespace tpgm
