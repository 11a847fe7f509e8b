// The arithmetic of the radii: a few numbers for each tensor, all in one launch. Raw pointers in, no torch.
#pragma once

#include <cstdint>

#include "tpgm/kernels/finite_code.h"

namespace tpgm::kernels {

/// What there is to know about a radius, rows of one array: what the optimizer moves (γ, or γ / max n), γ
/// itself, Adam's moments and step count, and the largest distance that γ was last clamped to.
enum RadiiRow : int { kLearned, kRadius, kFirstMoment, kSecondMoment, kSteps, kLargest, kRadiiRows };

inline constexpr double kLowestRadius = 1e-8;

/// All arrays are float64, one number per tensor, on the backend's device.
struct RadiiCall {
  int64_t count = 0;
  double* numbers = nullptr;  // kRadiiRows rows
  double* saved = nullptr;    // the same, to come back to
  double* learned = nullptr;  // null: numbers' own; else an optimizer's that is not ours
  bool relative = false;      // what is learned is γ / max n

  /// Where this is not clean (see Batch::report), step() and clamp() put the saved numbers back and do
  /// nothing else. With `save` they save the numbers as they are before anything.
  const int32_t* report = nullptr;
  bool save = false;

  void* stream = nullptr;  // CUDA: the cudaStream_t
};

/// A step of Adam along the gradient of a loss by γ, plus those of mu · Σ γ² and of
/// tv · Σ |α − α of the tensor before|, α = γ / max n. A tensor that has not moved gets no gradient.
struct RadiiStep {
  const double* radius_gradients = nullptr;  // dL/dγ
  const double* largest = nullptr;           // max n where they were taken
  double mu = 0, tv = 0;
  const int64_t* before = nullptr;  // the neighbours of each tensor in its group; -1: none
  const int64_t* behind = nullptr;
  double lr = 0, beta1 = 0, beta2 = 0, eps = 0;
  double* gradient = nullptr;  // not null: write what the step would be along, and take none
};

/// What is learned before the first step: half of the smallest distance, or `eps`; as a ratio, over the
/// largest.
struct RadiiStart {
  const double* smallest = nullptr;
  const double* largest = nullptr;
  bool half = true;
  double eps = 0;
};

struct RadiiBackend {
  void (*start)(const RadiiCall&, const RadiiStart&);
  void (*step)(const RadiiCall&, const RadiiStep&);
  /// γ into [1e-8, largest], or from below alone where that is null; the lower limit holds where they cross.
  void (*clamp)(const RadiiCall&, const double* largest);
  /// Puts the saved numbers back.
  void (*restore)(const RadiiCall&);
  /// Notes `code` in the report if the value is not finite.
  void (*expect_finite)(const double* value, int32_t code, int32_t* report, void* stream);
};

const RadiiBackend& radii_cpu();
const RadiiBackend& radii_cuda();

}  // namespace tpgm::kernels
