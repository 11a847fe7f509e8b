// The radii of all tensors and the state of their optimizer: initialization, steps, and rollback after a NaN
// or Inf. Pointers in, no torch: bindings, such as LibTorch's in core/radii.h, are thin adapters of this.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tpgm/kernels/radii.h"

namespace tpgm::kernels {

/// The options of the radii; core's RadiiOptions documents them.
struct RadiusRule {
  bool start_at_half = true;  // start at half of the smallest distance; else at eps
  double eps = 1e-8;
  bool relative = false;  // the learned parameter is γ / max n
  double lr = 1e-2, mu = 0, tv = 0;
};

/// One radius per tensor, updated by Adam. Arrays have one float64 per tensor, on the backend's device; CUDA
/// kernels run asynchronously on `stream` (a cudaStream_t).
class RadiusNumbers {
 public:
  /// `groups` names the group of each tensor, in model order, for `tv`. `numbers` is an array of size(groups)
  /// zeros, with the rows of RadiiRow. `report` (see finite_code.h) may be null: then everything counts as
  /// finite. All of them must outlive this object, as must the memory.
  RadiusNumbers(const RadiiBackend& backend, const RadiusRule& rule, const std::vector<std::string>& groups,
                double* numbers, const int32_t* report, const Memory& memory);
  static int64_t size(const std::vector<std::string>& groups) {
    return kRadiiRows * static_cast<int64_t>(groups.size());
  }

  /// Moves the learned parameter to `learned`, for an optimizer of the caller, who must check the report
  /// before each step. Null undoes this.
  void learn_elsewhere(double* learned) { learned_ = learned; }

  /// Initializes the radii. Call clamp() after it.
  void start(const double* smallest, const double* largest, void* stream);
  /// Clamps γ to [1e-8, largest]; null: without an upper limit.
  void clamp(const double* largest, void* stream);
  /// An optimizer step along dL/dγ (taken at weights with `largest`) plus the gradients of mu and tv. Call
  /// clamp() after it.
  void step(const double* radius_gradients, const double* largest, void* stream);
  /// Writes the gradient of that step to `result`, for another optimizer.
  void gradient(const double* radius_gradients, const double* largest, double* result, void* stream);

  /// Sets a point to roll back to. This costs nothing: the next clamp() or step() saves the numbers before it
  /// changes them. A later clamp() or step() that finds the report not clean restores them, as does
  /// restore().
  void remember() { saves_ = true; }
  void restore(void* stream);

 private:
  RadiiCall call(void* stream) const;
  RadiiCall saving_call(void* stream);
  RadiiStep step_along(const double* radius_gradients, const double* largest) const;

  const RadiiBackend& backend_;
  const RadiusRule rule_;
  const int64_t count_;
  double *numbers_, *saved_, *learned_ = nullptr;
  const int32_t* report_;
  const int64_t *before_, *behind_;  // see RadiiStep
  bool saves_ = false;
};

}  // namespace tpgm::kernels
