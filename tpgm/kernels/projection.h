// Distances, projections and radius gradients of all constrained tensors at once: raw pointers in, no torch.
//
// A *plan* cuts the tensors into pieces once, from their shapes alone; the reductions and updates below then
// run over the pieces. Partial sums are combined in the order of the plan, never in the order in which
// threads or blocks finish, so a result does not depend on the number of threads and two runs on one device
// are bit-exact.
//
// `Backend` is the interface of the CPU (the oracle) and CUDA (a launch or two per call, without any
// synchronization). A build without CUDA links no_cuda.cpp, whose `cuda()` throws.
#pragma once

#include <cstdint>
#include <vector>

#include "tpgm/kernels/finite_code.h"
#include "tpgm/kernels/norm.h"
#include "tpgm/kernels/types.h"

namespace tpgm::kernels {

/// One tensor as a dense matrix of `rows` rows with `cols` elements each. The order of the elements within a
/// row does not matter, as long as weights, anchor and gradient share it. An empty tensor is one row without
/// elements.
struct Layout {
  int64_t rows = 1;
  int64_t cols = 0;
  DType weights = DType::kFloat32;  // also the type of output and gradient, but see Operands::bf16
  DType anchor = DType::kFloat32;   // the type of the weights, or kBFloat16
};

/// Consecutive elements for one thread or one block: whole rows, or a part of one row.
struct Piece {
  int64_t row;    // first row
  int64_t begin;  // first element, counted from the tensor's start
  int32_t rows;   // how many rows it touches
  int32_t size;   // how many elements it has
  int32_t tensor;
};

struct TensorPlan {
  Layout layout;
  int64_t first_row;  // index of this tensor's first row among the rows of all tensors
  int32_t first_piece;
  int32_t pieces;
  int32_t pieces_per_row;  // > 1: rows are longer than a piece; 1: a piece holds whole rows
};

struct Plan {
  std::vector<TensorPlan> tensors;
  std::vector<Piece> pieces;
  int64_t rows = 0;  // the sum over all tensors
};

Plan make_plan(const std::vector<Layout>& layouts);

/// What one call reads and writes for one tensor.
struct Operands {
  const void* weights = nullptr;       // θ
  const void* anchor = nullptr;        // θ₀
  void* output_or_gradient = nullptr;  // depends on the call
  bool bf16 = false;  // projections and radius gradients: output_or_gradient is bfloat16, the weights float32
};

/// The tensors and the scratch memory of a call. Pointers point to memory of the backend's device, except
/// `plan` and `operands` (host; read before the call returns).
struct Batch {
  const Plan* plan = nullptr;
  const TensorPlan* tensors = nullptr;  // plan->tensors
  const Piece* pieces = nullptr;        // plan->pieces
  const Operands* operands = nullptr;   // one per tensor
  double* partials = nullptr;           // two per piece
  uint32_t* tickets = nullptr;          // one per tensor, zero before and after each call (CUDA)
  int32_t* report = nullptr;  // the smallest code of a NaN or Inf (finite_code.h); the caller resets it
  ParallelFor parallel_for;   // CPU
  void* stream = nullptr;     // CUDA: the cudaStream_t
};

/// Distances of all rows from the anchor, and the extremes of each tensor.
struct Distances {
  double* rows = nullptr;  // plan.rows
  double* min = nullptr;   // one per tensor
  double* max = nullptr;   // one per tensor
};

/// The rows that a radius gradient sums over: all; those with γ ≤ n_r; those with γ < n_r.
enum class Rows : uint8_t { kAll, kAtOrBeyond, kBeyond };

/// How far from the anchor rows may be.
struct Limits {
  const double* radii = nullptr;    // γ, one per tensor
  const double* closest = nullptr;  // one per row, or null: a projection brings no row nearer than this
};

struct Backend {
  /// Distances of the weights from the anchor. An output, if given, receives a copy of the weights. Reports
  /// tensors whose distance is not finite.
  void (*measure)(const Batch&, RowNorm, const Distances&);

  /// output ← anchor + ratio · (weights − anchor). The output may be the weights. A row whose ratio is 1
  /// keeps its weights bit by bit; a row with n_r = 0 becomes the anchor. If the report is not clean, every
  /// ratio is 1.
  void (*project)(const Batch&, RatioOf, const Distances&, const Limits&);

  /// Measures, then projects with the new distances, in one call: this saves two passes over the weights for
  /// rows that have their own ratio and fit into a piece. A row that is not finite keeps its weights; other
  /// rows may have been projected by then.
  void (*measure_and_project)(const Batch&, RowNorm, RatioOf, const Distances&, const Limits&);

  /// output ← anchor + ratio · (weights − anchor) with one given ratio per tensor, which may be any number.
  void (*interpolate)(const Batch&, const double* ratios);

  /// dL/dγ: result[k] ← Σ over rows of ⟨gradient_r, weights_r − anchor_r⟩ / n_r without rows with n_r = 0;
  /// with kLargestRow ⟨gradient, weights − anchor⟩ / max n_r. A null gradient counts as zero. `row_dots`
  /// (plan.rows) is scratch. Reports tensors with a dot product that is not finite.
  void (*radius_gradients)(const Batch&, RatioOf, Rows, const Distances&, const double* radii,
                           double* row_dots, double* result);

  /// The same, divided by the present distances of the weights, which it measures in the same pass into
  /// `now`. `distances` still decides which rows count. Reports weights like measure() and gradients like
  /// radius_gradients().
  void (*measure_radius_gradients)(const Batch&, RowNorm, RatioOf, Rows, const Distances& distances,
                                   const double* radii, const Distances& now, double* row_dots,
                                   double* result);

  /// gradient ← gradient + factor · (weights − anchor), if the report is clean. Reports gradients that are
  /// not finite afterwards; their values are then undefined.
  void (*add_displacement)(const Batch&, double factor);
};

const Backend& cpu();
const Backend& cuda();

/// True for GPUs on which the kernels that replace LibTorch's (batch_norm.h, gemm.h, residual.h) were
/// measured to be faster: compute capability 9.0 or later. False in a build without CUDA.
bool tuned_for(int device);

/// The sums from which the distance and the angle of two vectors follow, in double.
struct PairSums {
  double difference_squared = 0, difference_absolute = 0;
  double weights_squared = 0, anchor_squared = 0, product = 0;
};

/// Computes them on the CPU without a plan, for two vectors of `n` elements of `dtype`.
PairSums pair_sums(const void* weights, const void* anchor, DType dtype, int64_t n);

/// output ← anchor + ratio · (weights − anchor), likewise, all of `dtype`.
void interpolate_vector(const void* weights, const void* anchor, void* output, double ratio, DType dtype,
                        int64_t n);

}  // namespace tpgm::kernels
