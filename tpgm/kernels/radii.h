// The optimizer of the radii: a few numbers per tensor, updated in one launch. Raw pointers in, no torch.
#pragma once

#include <cstdint>

#include "tpgm/kernels/finite_code.h"

namespace tpgm::kernels {

/// The rows of the array that holds all numbers of the radii: the learned parameter (γ, or γ / max n), γ
/// itself, Adam's moments and step count, and the largest distance, to which γ was last clamped.
enum RadiiRow : int { kLearned, kRadius, kFirstMoment, kSecondMoment, kSteps, kLargest, kRadiiRows };

inline constexpr double kLowestRadius = 1e-8;

/// All arrays are float64, one number per tensor, on the backend's device.
struct RadiiCall {
  int64_t count = 0;
  double* numbers = nullptr;  // kRadiiRows rows
  double* saved = nullptr;    // a copy of the numbers, to restore
  double* learned = nullptr;  // null: row kLearned; else the parameter of another optimizer
  bool relative = false;      // the learned parameter is γ / max n

  /// If this report is not clean (see Batch::report), step() and clamp() restore the saved numbers and do
  /// nothing else. With `save` they first save the numbers.
  const int32_t* report = nullptr;
  bool save = false;

  void* stream = nullptr;  // CUDA: the cudaStream_t
};

/// A step of Adam along dL/dγ plus the gradients of mu · Σ γ² and of tv · Σ |α_i − α_{i−1}|, α = γ / max n.
/// The gradient of a tensor that has not moved is 0.
struct RadiiStep {
  const double* radius_gradients = nullptr;  // dL/dγ
  const double* largest = nullptr;           // max n of the weights at which they were taken
  double mu = 0, tv = 0;
  const int64_t* before = nullptr;  // the indices of each tensor's neighbors in its group; -1: none
  const int64_t* behind = nullptr;
  double lr = 0, beta1 = 0, beta2 = 0, eps = 0;
  double* gradient = nullptr;  // not null: write the gradient here, and take no step
};

/// The initial learned parameter: half of the smallest distance, or `eps`; divided by the largest distance if
/// it is a ratio.
struct RadiiStart {
  const double* smallest = nullptr;
  const double* largest = nullptr;
  bool half = true;
  double eps = 0;
};

struct RadiiBackend {
  void (*start)(const RadiiCall&, const RadiiStart&);
  void (*step)(const RadiiCall&, const RadiiStep&);
  /// Clamps γ to [1e-8, largest]; without an upper limit if `largest` is null, and to 1e-8 where it is less.
  void (*clamp)(const RadiiCall&, const double* largest);
  /// Restores the saved numbers.
  void (*restore)(const RadiiCall&);
  /// Reports `code` if the value is not finite.
  void (*expect_finite)(const double* value, int32_t code, int32_t* report, void* stream);
};

const RadiiBackend& radii_cpu();
const RadiiBackend& radii_cuda();

}  // namespace tpgm::kernels
