// The numbers of all radii: how they start, how they move, and the way back when something was not finite.
// Pointers in, no torch: LibTorch (core/radii.h) and other bindings are thin adapters of this.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tpgm/kernels/radii.h"

namespace tpgm::kernels {

/// What radii do; core's RadiiOptions say what each means.
struct RadiusRule {
  bool start_at_half = true;  // of the smallest distance; else at eps
  double eps = 1e-8;
  bool relative = false;  // what is learned is γ / max n
  double lr = 1e-2, mu = 0, tv = 0;
};

/// The radii of some tensors, moved by Adam. Arrays have a float64 for each tensor, on the backend's device;
/// kernels run on `stream` (CUDA: a cudaStream_t).
class RadiusNumbers {
 public:
  /// `groups` names the group of each tensor, in model order, for `tv`. `numbers` is an array of
  /// size(groups), as RadiiRow divides it; zeros at first. `report` (see finite_code.h) may be null: then
  /// nothing is ever known not to be finite. They outlive this, as does the memory.
  RadiusNumbers(const RadiiBackend& backend, const RadiusRule& rule, const std::vector<std::string>& groups,
                double* numbers, const int32_t* report, const Memory& memory);
  static int64_t size(const std::vector<std::string>& groups) {
    return kRadiiRows * static_cast<int64_t>(groups.size());
  }

  /// What is learned lives there, and another optimizer than ours moves it; its owner looks at the report.
  /// Null: it is ours again.
  void learn_elsewhere(double* learned) { learned_ = learned; }

  /// The first radii, before clamp().
  void start(const double* smallest, const double* largest, void* stream);
  /// γ into [1e-8, largest]; null: from below alone.
  void clamp(const double* largest, void* stream);
  /// A step along dL/dγ (taken at `largest`) and the gradients of mu and tv; clamp() comes after it.
  void step(const double* radius_gradients, const double* largest, void* stream);
  /// What that step would be along, for another optimizer.
  void gradient(const double* radius_gradients, const double* largest, double* result, void* stream);

  /// A point to come back to. It costs nothing: the next clamp() or step() keeps the numbers as it finds
  /// them. From then on one that finds something in the report puts them back, and so does restore().
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
  const int64_t *before_, *behind_;  // the neighbours of each in its group; -1: none
  bool saves_ = false;
};

}  // namespace tpgm::kernels
