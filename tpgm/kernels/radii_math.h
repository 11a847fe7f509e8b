// The arithmetic of one radius, for the CPU and for CUDA.
#pragma once

#include <cmath>

#include "tpgm/kernels/radii.h"

namespace tpgm::kernels {

TPGM_ANYWHERE inline double* learned_of(const RadiiCall& call) {
  return call.learned != nullptr ? call.learned : call.numbers + kLearned * call.count;
}

TPGM_ANYWHERE inline void restore_one(const RadiiCall& call, int64_t k) {
  for (int64_t row = 0, at = k; row < kRadiiRows; ++row, at += call.count) call.numbers[at] = call.saved[at];
}

TPGM_ANYWHERE inline void save_one(const RadiiCall& call, int64_t k) {
  for (int64_t row = 0, at = k; row < kRadiiRows; ++row, at += call.count) call.saved[at] = call.numbers[at];
}

/// The first part of a step or clamp of radius k. False if it must stop there: something was not finite.
TPGM_ANYWHERE inline bool save_or_restore(const RadiiCall& call, int64_t k) {
  const bool clean = call.report == nullptr || *call.report == kAllFinite;
  if (call.save)
    save_one(call, k);
  else if (!clean)
    restore_one(call, k);
  return clean;
}

TPGM_ANYWHERE inline void start_one(const RadiiCall& call, const RadiiStart& start, int64_t k) {
  double first = start.half ? start.smallest[k] / 2 : start.eps;
  if (call.relative) {
    // A tensor that has not moved yet starts as if all its rows were equally far.
    const double unmoved = start.half ? 0.5 : start.eps;
    first = start.largest[k] > 0 ? first / start.largest[k] : unmoved;
  }
  learned_of(call)[k] = first;
}

TPGM_ANYWHERE inline double ratio_change(const RadiiCall& call, const RadiiStep& step, int64_t first,
                                         int64_t second) {
  // For a tensor nearer than the lowest radius the ratio is a constant.
  if (first < 0 || second < 0 || step.largest[first] < kLowestRadius || step.largest[second] < kLowestRadius)
    return 0;
  const double* radii = call.numbers + kRadius * call.count;
  const double change = radii[second] / step.largest[second] - radii[first] / step.largest[first];
  return change > 0 ? 1 : change < 0 ? -1 : 0;
}

TPGM_ANYWHERE inline double gradient_of(const RadiiCall& call, const RadiiStep& step, int64_t k) {
  const double largest = step.largest[k];
  if (!(largest > 0)) return 0;
  double gradient = step.radius_gradients[k];
  if (step.mu > 0) gradient += 2 * step.mu * call.numbers[kRadius * call.count + k];
  if (step.tv > 0) {
    const double by_ratio =
        ratio_change(call, step, step.before[k], k) - ratio_change(call, step, k, step.behind[k]);
    gradient += step.tv * by_ratio / largest;
  }
  return call.relative ? gradient * largest : gradient;
}

TPGM_ANYWHERE inline void step_one(const RadiiCall& call, const RadiiStep& step, int64_t k) {
  const double gradient = gradient_of(call, step, k);
  if (step.gradient != nullptr) {
    step.gradient[k] = gradient;
    return;
  }
  double& m = call.numbers[kFirstMoment * call.count + k];
  double& v = call.numbers[kSecondMoment * call.count + k];
  double& steps = call.numbers[kSteps * call.count + k];
  m = step.beta1 * m + (1 - step.beta1) * gradient;
  v = step.beta2 * v + (1 - step.beta2) * gradient * gradient;
  steps += 1;
  const double m_hat = m / (1 - std::pow(step.beta1, steps)), v_hat = v / (1 - std::pow(step.beta2, steps));
  learned_of(call)[k] -= step.lr * m_hat / (std::sqrt(v_hat) + step.eps);
}

TPGM_ANYWHERE inline void clamp_one(const RadiiCall& call, const double* all_largest, int64_t k) {
  const double largest = all_largest != nullptr ? all_largest[k] : INFINITY;
  // Not fmin and fmax, which hide a NaN.
  const auto between = [](double low, double value, double high) {
    const double below = value > high ? high : value;
    return below < low ? low : below;
  };
  double& learned = learned_of(call)[k];
  double radius = 0;
  if (call.relative) {
    const double lowest = kLowestRadius < largest ? kLowestRadius / largest : 1.0;
    learned = between(largest > 0 ? lowest : 0.0, learned, 1.0);
    radius = learned * largest < kLowestRadius ? kLowestRadius : learned * largest;
  } else {
    radius = learned = between(kLowestRadius, learned, largest);
  }
  call.numbers[kRadius * call.count + k] = radius;
  call.numbers[kLargest * call.count + k] = largest;
}

}  // namespace tpgm::kernels
