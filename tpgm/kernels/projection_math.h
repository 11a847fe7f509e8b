// The arithmetic of one row, for the CPU and for CUDA: its distance, its ratio, and whether it counts in the
// gradient of a radius. The switches have no default, so that the compiler finds a value without a case.
#pragma once

#include <cmath>

#include "tpgm/kernels/projection.h"

namespace tpgm::kernels {

/// The distance of a row from the sum over its elements. A norm without a case is NaN, and so reported.
TPGM_ANYWHERE inline double distance_of(RowNorm norm, double sum) {
  switch (norm) {
    case RowNorm::kL2:
      return std::sqrt(sum);
    case RowNorm::kL1:
      return sum;
  }
  return NAN;
}

/// The distance that a row's radius is compared with and divided by. `row` counts the rows of all tensors.
TPGM_ANYWHERE inline double limited_distance(RatioOf ratio_of, const Distances& distances, int64_t tensor,
                                             int64_t row) {
  switch (ratio_of) {
    case RatioOf::kRow:
      return distances.rows[row];
    case RatioOf::kLargestRow:
      return distances.max[tensor];
  }
  return NAN;
}

/// The radius that limits a row.
TPGM_ANYWHERE inline double radius_of(const Limits& limits, int64_t tensor, int64_t row) {
  const double radius = limits.radii[tensor];
  return limits.closest != nullptr && radius < limits.closest[row] ? limits.closest[row] : radius;
}

/// min(1, radius / distance); 0 for a row that has not moved, so that it becomes the anchor.
TPGM_ANYWHERE inline double ratio_within(double radius, double distance) {
  if (!(distance > 0)) return 0;
  const double ratio = radius / distance;
  return ratio < 1 ? ratio : 1;
}

/// Whether a row at this distance counts in the gradient of its radius.
TPGM_ANYWHERE inline bool counts(Rows rows, double radius, double distance) {
  switch (rows) {
    case Rows::kAll:
      return true;
    case Rows::kAtOrBeyond:
      return distance > 0 && radius <= distance;
    case Rows::kBeyond:
      return distance > 0 && radius < distance;
  }
  return false;
}

}  // namespace tpgm::kernels
