// The distances that a tensor can have from its anchor, and all that follows from the choice of one.
#pragma once

#include <cstdint>

namespace tpgm::kernels {

/// The distance n of a tensor from its anchor, and with it what a radius limits.
enum class Norm {
  kL2,       ///< Frobenius norm of the displacement; one ratio per tensor.
  kMars,     ///< Sum of magnitudes of each row (all dims but the first); one radius per tensor, one ratio per
             ///< row. A tensor of rank 0 or 1 is one row.
  kMarsMax,  ///< The largest of those row sums; one ratio per tensor.
};

/// The distance of a row: square root of the sum of squares, or sum of magnitudes.
enum class RowNorm : uint8_t { kL2, kL1 };

/// How a tensor's ratio follows from its radius γ: every row has its own, min(1, γ / n_r), or all rows share
/// min(1, γ / max n_r).
enum class RatioOf : uint8_t { kRow, kLargestRow };

/// A distance is made of rows. Another one is a line here, if it is the extreme of row sums.
struct NormTraits {
  bool by_row;  // false: a tensor is one row, whatever its shape
  RowNorm row_norm;
  RatioOf ratio_of;
};

constexpr NormTraits traits(Norm norm) {
  switch (norm) {
    case Norm::kL2:
      return {false, RowNorm::kL2, RatioOf::kRow};
    case Norm::kMars:
      return {true, RowNorm::kL1, RatioOf::kRow};
    case Norm::kMarsMax:
      return {true, RowNorm::kL1, RatioOf::kLargestRow};
  }
  return {};
}

}  // namespace tpgm::kernels
