// The norms that measure how far a tensor is from its anchor, and what each needs of the kernels.
#pragma once

#include <cstdint>
#include <stdexcept>

namespace tpgm::kernels {

/// The norm that gives a tensor's distance n from its anchor, which is what a radius limits.
enum class Norm {
  kL2,       ///< Frobenius norm of the displacement; one ratio per tensor.
  kMars,     ///< Sum of magnitudes of each row (all dims but the first); one radius per tensor, one ratio per
             ///< row. A tensor of rank 0 or 1 is one row.
  kMarsMax,  ///< The largest of those row sums; one ratio per tensor.
};

/// All of them, in the order in which --help lists them.
inline constexpr Norm kNorms[] = {Norm::kL2, Norm::kMars, Norm::kMarsMax};

/// The distance of a row: square root of the sum of squares, or sum of magnitudes. It must be a function of a
/// sum over the row, because kernels add what threads and pieces have of it. A maximum would compile and be
/// wrong: it needs a rule to combine parts in reduce_rows() of projection_cpu.cpp, and in sum_over() and
/// combine_parts() of projection.cu.
enum class RowNorm : uint8_t { kL2, kL1 };

/// How a tensor's ratio follows from its radius γ: every row has its own, min(1, γ / n_r), or all rows share
/// min(1, γ / max n_r).
enum class RatioOf : uint8_t { kRow, kLargestRow };

/// What a norm is made of: a sum over the elements of each row, and the rule for the ratios.
struct NormTraits {
  const char* keyword;  // in flags and recipes
  bool by_row;          // false: a tensor is one row, whatever its shape
  RowNorm row_norm;
  RatioOf ratio_of;
};

constexpr NormTraits traits(Norm norm) {
  switch (norm) {
    case Norm::kL2:
      return {"l2", false, RowNorm::kL2, RatioOf::kRow};
    case Norm::kMars:
      return {"mars", true, RowNorm::kL1, RatioOf::kRow};
    case Norm::kMarsMax:
      return {"mars-max", true, RowNorm::kL1, RatioOf::kLargestRow};
  }
  throw std::logic_error("a norm without traits");
}

}  // namespace tpgm::kernels
