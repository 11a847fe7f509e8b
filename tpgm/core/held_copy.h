// A copy of the constrained tensors from before their last projection.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "tpgm/core/displacements.h"

namespace tpgm {

/// While it holds a copy, the projections and gradients of `displacements` start from the copy instead of the
/// tensors. FTP needs this for 16-bit weights: it reads the direction in which they have moved, and the
/// projected weights may have lost it to rounding.
class HeldCopy {
 public:
  /// Keeps a reference to `displacements`. On CUDA every hold() uses the same memory: a captured step reads
  /// the copy that the step before it made.
  explicit HeldCopy(Displacements& displacements) : displacements_(displacements) {}
  ~HeldCopy() { release(); }
  HeldCopy(const HeldCopy&) = delete;
  HeldCopy& operator=(const HeldCopy&) = delete;

  /// Measures the distances of the tensors and copies them. If it throws, everything is as before.
  void hold();
  /// Holds the given values (one per tensor, same shapes) as if hold() had copied them. Empty: release().
  void load(const std::vector<at::Tensor>& values);
  /// Projections and gradients start from the tensors again.
  void release();

  bool holds() const { return holds_; }
  const std::vector<at::Tensor>& values() const { return values_; }

 private:
  std::vector<at::Tensor> room_for(const std::vector<at::Tensor>& weights) const;
  void start_from(std::vector<at::Tensor> values);

  Displacements& displacements_;
  std::vector<at::Tensor> values_;
  bool holds_ = false;
};

}  // namespace tpgm
