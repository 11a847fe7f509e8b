// The arithmetic of the method over all constrained tensors at once: raw pointers in, no torch.
//
// A *plan* cuts the tensors into pieces once, from their shapes alone; the reductions and updates below then
// run over the pieces. Partial sums are combined in the plan's order, never in the order in which
// threads or blocks happen to finish, so a result does not depend on the number of threads and two runs on
// one device agree bit for bit.
//
// `Backend` is the seam between the CPU (the oracle) and CUDA (a launch or two per call, nothing
// synchronises). A build without CUDA links no_cuda.cpp, whose `cuda()` throws.
#pragma once

#include <cstdint>
#include <vector>

#include "tpgm/kernels/finite_code.h"
#include "tpgm/kernels/norm.h"
#include "tpgm/kernels/types.h"

namespace tpgm::kernels {

/// One tensor, seen as `rows` rows of `cols` elements that lie densely one row after the other. The order of
/// the elements inside a row does not matter, as long as weights, anchor and gradient share it. An empty
/// tensor is one row of no elements.
struct Layout {
  int64_t rows = 1;
  int64_t cols = 0;
  DType weights = DType::kFloat32;  // also of the output or gradient, but see Operands::bf16
  DType anchor = DType::kFloat32;   // `weights`, or kBFloat16
};

/// A run of elements for one thread or one block: whole rows, or a part of one row.
struct Piece {
  int64_t row;    // first row
  int64_t begin;  // first element, counted from the tensor's start
  int32_t rows;   // how many rows it touches
  int32_t size;   // how many elements it has
  int32_t tensor;
};

struct TensorPlan {
  Layout layout;
  int64_t first_row;  // of this tensor in arrays that hold all rows of all tensors
  int32_t first_piece;
  int32_t pieces;
  int32_t pieces_per_row;  // > 1: rows are longer than a piece; 1: a piece holds whole rows
};

struct Plan {
  std::vector<TensorPlan> tensors;
  std::vector<Piece> pieces;
  int64_t rows = 0;  // of all tensors
};

Plan make_plan(const std::vector<Layout>& layouts);

/// What one call reads and writes of one tensor.
struct Operands {
  const void* weights = nullptr;       // θ
  const void* anchor = nullptr;        // θ₀
  void* output_or_gradient = nullptr;  // which of the two, each call says
  bool bf16 = false;  // projections and radius gradients: the weights are float32, this operand is bfloat16
};

/// The tensors and the scratch memory of a call. Pointers are to the memory of the backend's device, except
/// `plan` and `operands` (host; read before the call returns).
struct Batch {
  const Plan* plan = nullptr;
  const TensorPlan* tensors = nullptr;  // plan->tensors
  const Piece* pieces = nullptr;        // plan->pieces
  const Operands* operands = nullptr;   // one per tensor
  double* partials = nullptr;           // two per piece
  uint32_t* tickets = nullptr;          // one per tensor, zero before and after each call (CUDA)
  int32_t* report = nullptr;            // the smallest code of what was not finite; the caller resets it
  ParallelFor parallel_for;             // CPU
  void* stream = nullptr;               // CUDA: the cudaStream_t
};

/// Distances of all rows from the anchor, and their extremes in each tensor.
struct Distances {
  double* rows = nullptr;  // plan.rows
  double* min = nullptr;   // one per tensor
  double* max = nullptr;   // one per tensor
};

/// Which rows the gradient of a radius sums over: all; those with γ ≤ n_r; those with γ < n_r.
enum class Rows : uint8_t { kAll, kAtOrBeyond, kBeyond };

/// How far rows may be from the anchor.
struct Limits {
  const double* radii = nullptr;    // γ, one per tensor
  const double* closest = nullptr;  // one per row, or null: the row comes no nearer, however small its radius
};

struct Backend {
  /// Distances of the weights from the anchor. Where there is an output, it receives a copy of the weights.
  /// Reports tensors whose distance is not finite.
  void (*measure)(const Batch&, RowNorm, const Distances&);

  /// output ← anchor + ratio · (weights − anchor). The output may be the weights. A row whose ratio is 1
  /// keeps its weights bit for bit; one with n_r = 0 becomes the anchor. If the report is not clean, every
  /// ratio counts as 1.
  void (*project)(const Batch&, RatioOf, const Distances&, const Limits&);

  /// Measures, and projects with what was measured, in one call: two passes over the weights less where a row
  /// has its own ratio and fits into a piece. A row that is not finite keeps its weights; others may have
  /// been projected before it was seen.
  void (*measure_and_project)(const Batch&, RowNorm, RatioOf, const Distances&, const Limits&);

  /// The projection with one given ratio per tensor, not limited to [0, 1].
  void (*interpolate)(const Batch&, const double* ratios);

  /// dL/dγ: result[k] ← Σ over rows of ⟨gradient_r, weights_r − anchor_r⟩ / n_r, rows with n_r = 0 left out;
  /// with kLargestRow the one ratio's derivative, ⟨gradient, weights − anchor⟩ / max n_r. A null gradient
  /// counts as zero. `row_dots` (plan.rows) is scratch. Reports gradients whose product is not finite.
  void (*radius_gradients)(const Batch&, RatioOf, Rows, const Distances&, const double* radii,
                           double* row_dots, double* result);

  /// The same with the distances of the weights as they are, measured in the same pass into `now`; which rows
  /// count is still for `distances` to say. Reports weights like measure() and gradients like
  /// radius_gradients().
  void (*measure_radius_gradients)(const Batch&, RowNorm, RatioOf, Rows, const Distances& distances,
                                   const double* radii, const Distances& now, double* row_dots,
                                   double* result);

  /// gradient ← gradient + factor · (weights − anchor), unless the report is not clean. Reports gradients
  /// that are not finite afterwards; what they hold is then undefined.
  void (*add_displacement)(const Batch&, double factor);
};

const Backend& cpu();
const Backend& cuda();

/// Whether the kernels that replace LibTorch's (batch_norm.h, gemm.h, residual.h) were measured on GPUs like
/// this one: compute capability 9.0 or later. False in a build without CUDA.
bool tuned_for(int device);

/// What the distance and the angle of two vectors are made of, summed in double.
struct PairSums {
  double difference_squared = 0, difference_absolute = 0;
  double weights_squared = 0, anchor_squared = 0, product = 0;
};

/// On the CPU, for vectors that are looked at once and not kept: both of `dtype`, `n` elements.
PairSums pair_sums(const void* weights, const void* anchor, DType dtype, int64_t n);

/// The same for an interpolation: output ← anchor + ratio · (weights − anchor), all of `dtype`.
void interpolate_vector(const void* weights, const void* anchor, void* output, double ratio, DType dtype,
                        int64_t n);

}  // namespace tpgm::kernels
