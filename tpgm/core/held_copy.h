// The constrained tensors as they were before their last projection.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "tpgm/core/displacements.h"

namespace tpgm {

/// A second copy of a batch's tensors. While it holds, projections and gradients of `displacements` start
/// from the copy, not from the tensors: FTP needs the direction in which 16-bit weights had moved, which
/// their projection may have rounded away.
class HeldCopy {
 public:
  /// Refers to `displacements`, which must outlive it. The copies' memory is kept (on CUDA) from one to the
  /// next: a captured step reads what the one before it held.
  explicit HeldCopy(Displacements& displacements) : displacements_(displacements) {}
  ~HeldCopy() { release(); }
  HeldCopy(const HeldCopy&) = delete;
  HeldCopy& operator=(const HeldCopy&) = delete;

  /// Measures the tensors, and holds a copy of them. If it throws, everything is as before.
  void hold();
  /// Holds the given values (one per tensor, same shapes) as if hold() had found them; with none, releases.
  void load(const std::vector<at::Tensor>& values);
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
