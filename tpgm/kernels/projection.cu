// Distances, projections and radius gradients on CUDA: every call is one launch over all tensors
// (measure_and_project: two), and none waits for the device.
//
// A block processes one piece. Pointers are kernel parameters, so nothing has to be copied, kept alive or
// synchronized; a batch of more than kMaxTensors tensors takes one launch per kMaxTensors. The last block of
// a tensor to finish combines the tensor's partial sums, always in the same order.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <type_traits>

#include "tpgm/kernels/launch.cuh"
#include "tpgm/kernels/projection_math.h"
#include "tpgm/kernels/vector.cuh"

namespace tpgm::kernels {
namespace {

constexpr int kThreads = 256;
// Blocks per multiprocessor. Many small blocks keep more loads in flight than few blocks with unrolled loops:
// while some reduce, others load (measured: docs/design.md).
constexpr int kBlocks = 6;
// For kernels that need more registers: those for all types, and those for float32 alone.
constexpr int kFewerBlocks = 4, kFewerFloatBlocks = 5;
constexpr size_t kMaxTensors = 1024;

// The types of weights and anchors that a kernel is compiled for: any, or float32 alone. A kernel for any
// type uses the registers of its largest type. Where these are too many, there is a second one for float32.
enum class Types { kAny, kFloat32 };

struct Pointers {
  const void *weights, *anchor;
  void* output_or_gradient;
};

// The arguments of every kernel: the tensors of the plan from first_tensor on, and their pointers.
struct Arguments {
  const TensorPlan* plan;
  const Piece* pieces;
  double* partials;
  uint32_t* tickets;
  int32_t* report;
  int32_t first_tensor;
  int32_t first_piece;
  int32_t all_tensors;
  Pointers pointers[kMaxTensors];
  bool bf16[kMaxTensors];
};

// The threads that share a row: the whole block, or a power of two within a warp.
struct Group {
  int lane;   // index of this thread among those that share its row
  int width;  // how many share a row
  int row;    // this thread's first row, counted from the first of the piece
  int step;   // distance to its next row
};

__device__ Group group_of(const Piece& piece, int64_t cols) {
  const int thread = static_cast<int>(threadIdx.x);
  if (piece.rows < kThreads / 32) return {thread, kThreads, 0, 1};
  int width = 1;
  while (width < 32 && width * 8 < cols) width *= 2;
  return {thread % width, width, thread / width, kThreads / width};
}

// Calls f(weights, anchor, operand, vector width) with typed pointers to the piece. kMayBeBf16: `operand` may
// be bfloat16 with float32 weights.
template <Types kTypes, bool kMayBeBf16, class F>
__device__ void with_types(const Arguments& args, const TensorPlan& tensor, const Piece& piece, F f) {
  const int k = piece.tensor - args.first_tensor;
  const Pointers& pointers = args.pointers[k];
  const auto typed_with = [&](auto w, auto a, auto t) {
    using W = decltype(w);
    using A = decltype(a);
    using T = decltype(t);
    constexpr int kWide = kVector<W>;
    const auto* weights = static_cast<const W*>(pointers.weights) + piece.begin;
    const auto* anchor = static_cast<const A*>(pointers.anchor) + piece.begin;
    auto* operand =
        pointers.output_or_gradient ? static_cast<T*>(pointers.output_or_gradient) + piece.begin : nullptr;
    // Rows of a piece follow each other, so all are aligned if the first is and their length allows it.
    const bool wide = tensor.layout.cols % kWide == 0 && aligned<kWide>(weights) && aligned<kWide>(operand) &&
                      aligned<kWide>(anchor);
    if (wide)
      f(weights, anchor, operand, std::integral_constant<int, kWide>{});
    else
      f(weights, anchor, operand, std::integral_constant<int, 1>{});
  };
  const auto typed = [&](auto w, auto a) {
    if constexpr (kMayBeBf16 && std::is_same_v<decltype(w), float>) {
      if (args.bf16[k]) return typed_with(w, a, __nv_bfloat16{});
    }
    typed_with(w, a, w);
  };
  if constexpr (kTypes == Types::kFloat32) {
    typed(float{}, float{});
  } else {
    const bool same = tensor.layout.anchor == tensor.layout.weights;
    switch (tensor.layout.weights) {
      case DType::kFloat64:
        return same ? typed(double{}, double{}) : typed(double{}, __nv_bfloat16{});
      case DType::kFloat32:
        return same ? typed(float{}, float{}) : typed(float{}, __nv_bfloat16{});
      case DType::kFloat16:
        return same ? typed(__half{}, __half{}) : typed(__half{}, __nv_bfloat16{});
      case DType::kBFloat16:
        return typed(__nv_bfloat16{}, __nv_bfloat16{});
    }
  }
}

// The sum over the threads of a group, in a fixed order, in every thread of the group.
__device__ double sum_over(const Group& group, double value) {
  __shared__ double shared[kThreads / 32];
  for (int offset = min(group.width, 32) / 2; offset > 0; offset /= 2)
    value += __shfl_xor_sync(kAllLanes, value, offset);
  if (group.width == kThreads) {
    __syncthreads();  // until all threads have read the last sum from `shared`
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
    __syncthreads();
    value = 0;
    for (double part : shared) value += part;
  }
  return value;
}

// operand ← base + factor · (weights − anchor) over a row (or a part of one), with base = anchor (a
// projection) or operand (an addition). A projection with factor 1 copies the weights. Returns whether all
// sums that this thread computed are finite.
template <bool kAdd, int kWidth, class W, class A, class T>
__device__ bool write_row(const Group& group, const W* weights, const A* anchor, T* operand, int64_t n,
                          double exact) {
  using C = Compute<W>;
  const bool keep = !kAdd && exact == 1;
  if (keep && static_cast<const void*>(operand) == weights) return true;
  const C factor = static_cast<C>(exact);
  bool finite = true;
  for (int64_t i = group.lane * kWidth; i < n; i += group.width * kWidth) {
    const auto w = read<kWidth>(weights + i);
    const auto a = read<kWidth>(anchor + i);
    Vector<T, kWidth> t{};
    if constexpr (kAdd) t = read<kWidth>(operand + i);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const C from = static_cast<C>(a.at[j]);
      const C value = (kAdd ? static_cast<C>(t.at[j]) : from) + factor * (static_cast<C>(w.at[j]) - from);
      t.at[j] = keep ? static_cast<T>(w.at[j]) : static_cast<T>(value);
      finite = finite && (!kAdd || isfinite(static_cast<C>(t.at[j])));
    }
    write(operand + i, t);
  }
  return finite;
}

// How a reduction uses output_or_gradient: not at all; reads it if it is not null; copies the weights to it
// if it is not null; writes the projection to it.
enum class Use { kNone, kRead, kCopy, kProject };

// Writes the row sums of a piece: to `rows` if the piece has whole rows, otherwise to its partial sums.
// term(displacement, operand, totals) adds the terms of one element. kProject: a whole row is projected as
// soon as it is summed, with ratio_of(row of the piece, sum).
template <Use kUse, Types kTypes, int kSums, class Term, class RatioOfRow>
__device__ void reduce_rows(const Arguments& args, int index, const Piece& piece, const TensorPlan& tensor,
                            double* const (&rows)[kSums], Term term, RatioOfRow ratio_of) {
  const auto group = group_of(piece, tensor.layout.cols);
  const bool split = tensor.pieces_per_row > 1;
  const int64_t n = split ? piece.size : tensor.layout.cols;
  constexpr bool kMayBeBf16 = kUse == Use::kRead || kUse == Use::kProject;
  const auto row_sums = [&](auto* weights, auto* anchor, auto* operand, auto vector) {
    constexpr int kWidth = decltype(vector)::value;
    using W = std::remove_const_t<std::remove_pointer_t<decltype(weights)>>;
    using T = std::remove_pointer_t<decltype(operand)>;
    using C = Compute<W>;
    // Every thread runs the same number of iterations, because all threads of a warp must take part in
    // shuffles.
    for (int first = 0; first < piece.rows; first += group.step) {
      const int row = first + group.row;
      const int64_t at = row * n;
      double totals[kSums] = {};
      if (row < piece.rows) {
        for (int64_t i = group.lane * kWidth; i < n; i += group.width * kWidth) {
          const auto w = read<kWidth>(weights + at + i);
          const auto a = read<kWidth>(anchor + at + i);
          Vector<T, kWidth> t{};
          if constexpr (kUse == Use::kRead) {
            if (operand != nullptr) t = read<kWidth>(operand + at + i);
          }
#pragma unroll
          for (int j = 0; j < kWidth; ++j) {
            const C delta = static_cast<C>(w.at[j]) - static_cast<C>(a.at[j]);
            term(static_cast<double>(delta), static_cast<double>(static_cast<C>(t.at[j])), totals);
          }
          if constexpr (kUse == Use::kCopy) {
            if (operand != nullptr) write(operand + at + i, w);
          }
        }
      }
      for (int s = 0; s < kSums; ++s) {
        totals[s] = sum_over(group, totals[s]);
        if (group.lane == 0 && row < piece.rows) {
          (split ? args.partials[index * kSums + s] : rows[s][tensor.first_row + piece.row + row]) =
              totals[s];
        }
      }
      if constexpr (kUse == Use::kProject) {
        // From the cache: the group has just read all of it.
        if (!split && row < piece.rows) {
          write_row<false, kWidth>(group, weights + at, anchor + at, operand + at, n,
                                   ratio_of(row, totals[0]));
        }
      }
    }
  };
  with_types<kTypes, kMayBeBf16>(args, tensor, piece, row_sums);
}

template <Use kUse, Types kTypes, int kSums, class Term>
__device__ void reduce_rows(const Arguments& args, int index, const Piece& piece, const TensorPlan& tensor,
                            double* const (&rows)[kSums], Term term) {
  static_assert(kUse != Use::kProject);
  reduce_rows<kUse, kTypes>(args, index, piece, tensor, rows, term, [](int, double) { return 1.0; });
}

// True in all threads of the last block of its tensor to finish, which then sees all that the others wrote.
__device__ bool last_of_tensor(const Arguments& args, const Piece& piece, const TensorPlan& tensor) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    auto* ticket = args.tickets + piece.tensor;
    last = atomicAdd(ticket, 1u) == static_cast<uint32_t>(tensor.pieces) - 1;
    if (last) *ticket = 0;
  }
  __syncthreads();
  __threadfence();
  return last;
}

template <class Combine>
__device__ double block_reduce(double value, Combine combine) {
  __shared__ double shared[kThreads];
  __syncthreads();
  shared[threadIdx.x] = value;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) shared[threadIdx.x] = combine(shared[threadIdx.x], shared[threadIdx.x + half]);
    __syncthreads();
  }
  return shared[0];
}

// Combines the sums of rows that are longer than a piece from their parts; a piece has kSums of them. Called
// by all threads of the tensor's last block: together for each of few rows, or each for some of many rows.
template <int kSums>
__device__ void combine_parts(const Arguments& args, const TensorPlan& tensor, double* const (&rows)[kSums]) {
  if (tensor.pieces_per_row == 1) return;
  for (int s = 0; s < kSums; ++s) {
    const double* parts = args.partials + int64_t{tensor.first_piece} * kSums + s;
    if (tensor.layout.rows < kThreads / 8) {
      for (int64_t row = 0; row < tensor.layout.rows; ++row, parts += tensor.pieces_per_row * kSums) {
        double part = 0;
        for (int i = threadIdx.x; i < tensor.pieces_per_row; i += kThreads) part += __ldcg(parts + i * kSums);
        const double total = block_reduce(part, [](double a, double b) { return a + b; });
        if (threadIdx.x == 0) rows[s][tensor.first_row + row] = total;
      }
    } else {
      for (int64_t row = threadIdx.x; row < tensor.layout.rows; row += kThreads) {
        double total = 0;
        for (int i = 0; i < tensor.pieces_per_row; ++i)
          total += __ldcg(parts + (row * tensor.pieces_per_row + i) * kSums);
        rows[s][tensor.first_row + row] = total;
      }
    }
  }
  __syncthreads();
}

// Computes the distances of a tensor from its row sums, and their extremes; reports if one is not finite.
// Called by all threads of the tensor's last block.
__device__ void finish_distances(const Arguments& args, const Piece& piece, const TensorPlan& tensor,
                                 RowNorm norm, const Distances& distances) {
  double smallest = INFINITY;
  double largest = 0;
  double finite = 1;
  for (int64_t row = threadIdx.x; row < tensor.layout.rows; row += kThreads) {
    const double distance = distance_of(norm, __ldcg(distances.rows + tensor.first_row + row));
    distances.rows[tensor.first_row + row] = distance;
    finite = isfinite(distance) ? finite : 0;
    smallest = fmin(smallest, distance);
    largest = fmax(largest, distance);
  }
  smallest = block_reduce(smallest, [](double a, double b) { return fmin(a, b); });
  largest = block_reduce(largest, [](double a, double b) { return fmax(a, b); });
  finite = block_reduce(finite, [](double a, double b) { return fmin(a, b); });
  if (threadIdx.x == 0) {
    distances.min[piece.tensor] = smallest;
    distances.max[piece.tensor] = largest;
    if (finite == 0) atomicMin(args.report, code_of_weights(piece.tensor));
  }
  __syncthreads();
}

// Calls f(add), where add(displacement, sum) adds one element's term to the sum. The switch is here, outside
// of the loop over elements.
template <class F>
__device__ void with_norm(RowNorm norm, F f) {
  switch (norm) {
    case RowNorm::kL2:
      // An explicit fma, because a compiler may fuse the two operations in one kernel and not in another.
      return f([](double delta, double& total) { total = fma(delta, delta, total); });
    case RowNorm::kL1:
      return f([](double delta, double& total) { total += fabs(delta); });
  }
  __trap();  // a norm without a case: the compiler for CUDA does not warn of it
}

// kProject: also projects whole rows, within `limits`.
template <Use kUse, Types kTypes = Types::kAny>
__global__ void __launch_bounds__(kThreads, kUse != Use::kProject   ? kBlocks
                                            : kTypes == Types::kAny ? kFewerBlocks
                                                                    : kFewerFloatBlocks)
    measure_kernel(const __grid_constant__ Arguments args, RowNorm norm, Distances distances, Limits limits) {
  const int index = args.first_piece + static_cast<int>(blockIdx.x);
  const Piece piece = args.pieces[index];
  const TensorPlan tensor = args.plan[piece.tensor];
  double* const rows[] = {distances.rows};
  const bool clean = kUse == Use::kProject && *args.report == kAllFinite;
  const auto ratio_of = [&](int row, double total) {
    if (!clean || !isfinite(total)) return 1.0;
    const double radius = radius_of(limits, piece.tensor, tensor.first_row + piece.row + row);
    return ratio_within(radius, distance_of(norm, total));
  };
  with_norm(norm, [&](auto add) {
    const auto term = [=](double delta, double, double(&totals)[1]) { add(delta, totals[0]); };
    reduce_rows<kUse, kTypes>(args, index, piece, tensor, rows, term, ratio_of);
  });
  if (last_of_tensor(args, piece, tensor)) {
    combine_parts(args, tensor, rows);
    finish_distances(args, piece, tensor, norm, distances);
  }
}

// Σ dot / divisor over the rows that count according to `distances`. Called by all threads of the tensor's
// last block.
__device__ void finish_radius_gradients(const Arguments& args, const Piece& piece, const TensorPlan& tensor,
                                        RatioOf ratio_of, Rows which, const Distances& distances,
                                        const Distances& divisors, const double* radii,
                                        const double* row_dots, double* result) {
  const double radius = radii[piece.tensor];
  double total = 0;
  double finite = 1;
  for (int64_t row = threadIdx.x; row < tensor.layout.rows; row += kThreads) {
    const int64_t all_rows = tensor.first_row + row;
    const double dot = __ldcg(row_dots + all_rows);
    const double divisor = limited_distance(ratio_of, divisors, piece.tensor, all_rows);
    const bool included =
        divisor > 0 && counts(which, radius, limited_distance(ratio_of, distances, piece.tensor, all_rows));
    finite = isfinite(dot) ? finite : 0;
    total += included ? dot / divisor : 0.0;
  }
  total = block_reduce(total, [](double a, double b) { return a + b; });
  finite = block_reduce(finite, [](double a, double b) { return fmin(a, b); });
  if (threadIdx.x == 0) {
    result[piece.tensor] = total;
    if (finite == 0) atomicMin(args.report, code_of_gradient(args.all_tensors, piece.tensor));
  }
}

__global__ void __launch_bounds__(kThreads, kBlocks)
    radius_gradients_kernel(const __grid_constant__ Arguments args, RatioOf ratio_of, Rows which,
                            Distances distances, const double* radii, double* row_dots, double* result) {
  const int index = args.first_piece + static_cast<int>(blockIdx.x);
  const Piece piece = args.pieces[index];
  const TensorPlan tensor = args.plan[piece.tensor];
  if (args.pointers[piece.tensor - args.first_tensor].output_or_gradient == nullptr) {
    if (threadIdx.x == 0 && piece.begin == 0) result[piece.tensor] = 0;
    return;
  }
  double* const rows[] = {row_dots};
  reduce_rows<Use::kRead, Types::kAny>(
      args, index, piece, tensor, rows,
      [](double delta, double gradient, double(&totals)[1]) { totals[0] += gradient * delta; });
  if (last_of_tensor(args, piece, tensor)) {
    combine_parts(args, tensor, rows);
    finish_radius_gradients(args, piece, tensor, ratio_of, which, distances, distances, radii, row_dots,
                            result);
  }
}

template <Types kTypes>
__global__ void __launch_bounds__(kThreads, kTypes == Types::kAny ? kFewerBlocks : kBlocks)
    measure_radius_gradients_kernel(const __grid_constant__ Arguments args, RowNorm norm, RatioOf ratio_of,
                                    Rows which, Distances distances, const double* radii, Distances now,
                                    double* row_dots, double* result) {
  const int index = args.first_piece + static_cast<int>(blockIdx.x);
  const Piece piece = args.pieces[index];
  const TensorPlan tensor = args.plan[piece.tensor];
  double* const rows[] = {now.rows, row_dots};
  with_norm(norm, [&](auto add) {
    const auto term = [=](double delta, double gradient, double(&totals)[2]) {
      add(delta, totals[0]);
      totals[1] += gradient * delta;
    };
    reduce_rows<Use::kRead, kTypes>(args, index, piece, tensor, rows, term);
  });
  if (last_of_tensor(args, piece, tensor)) {
    combine_parts(args, tensor, rows);
    finish_distances(args, piece, tensor, norm, now);
    finish_radius_gradients(args, piece, tensor, ratio_of, which, distances, now, radii, row_dots, result);
  }
}

// write_row() over the rows of a piece; factor_of(row of the piece) gives the factor.
template <bool kAdd, class FactorOf>
__device__ bool update_rows(const Arguments& args, const Piece& piece, const TensorPlan& tensor,
                            FactorOf factor_of) {
  const auto group = group_of(piece, tensor.layout.cols);
  const int64_t n = tensor.pieces_per_row > 1 ? piece.size : tensor.layout.cols;
  bool finite = true;
  with_types<Types::kAny, !kAdd>(
      args, tensor, piece, [&](auto* weights, auto* anchor, auto* operand, auto vector) {
        for (int row = group.row; row < piece.rows; row += group.step) {
          const int64_t at = row * n;
          finite = write_row<kAdd, decltype(vector)::value>(group, weights + at, anchor + at, operand + at, n,
                                                            factor_of(row)) &&
                   finite;
        }
      });
  return finite;
}

// The pieces in reverse order, because what the reduction read last is still in the cache.
__device__ Piece piece_from_the_end(const Arguments& args) {
  return args.pieces[args.first_piece + static_cast<int>(gridDim.x - 1 - blockIdx.x)];
}

// long_rows_only: only rows that are longer than a piece, because the others are already projected.
__global__ void __launch_bounds__(kThreads, kBlocks)
    project_kernel(const __grid_constant__ Arguments args, RatioOf ratio_of, Distances distances,
                   Limits limits, bool long_rows_only) {
  const Piece piece = piece_from_the_end(args);
  const TensorPlan tensor = args.plan[piece.tensor];
  if (long_rows_only && tensor.pieces_per_row == 1) return;
  const bool clean = *args.report == kAllFinite;
  update_rows<false>(args, piece, tensor, [&](int row) {
    if (!clean) return 1.0;
    const int64_t all_rows = tensor.first_row + piece.row + row;
    return ratio_within(radius_of(limits, piece.tensor, all_rows),
                        limited_distance(ratio_of, distances, piece.tensor, all_rows));
  });
}

__global__ void __launch_bounds__(kThreads, kBlocks)
    interpolate_kernel(const __grid_constant__ Arguments args, const double* ratios) {
  const Piece piece = piece_from_the_end(args);
  const double ratio = *args.report == kAllFinite ? ratios[piece.tensor] : 1.0;
  update_rows<false>(args, piece, args.plan[piece.tensor], [=](int) { return ratio; });
}

__global__ void __launch_bounds__(kThreads, kBlocks)
    add_displacement_kernel(const __grid_constant__ Arguments args, double factor) {
  if (*args.report == kAllFinite) {
    const Piece piece = piece_from_the_end(args);
    if (!update_rows<true>(args, piece, args.plan[piece.tensor], [=](int) { return factor; }))
      atomicMin(args.report, code_of_gradient(args.all_tensors, piece.tensor));
  }
}

// Launches `kernel` over all pieces of the tensors [begin, end), up to kMaxTensors at a time.
template <class... Parameters, class... Values>
void launch_over(const Batch& batch, size_t begin, size_t end, void (*kernel)(Arguments, Parameters...),
                 Values... values) {
  const auto& tensors = batch.plan->tensors;
  for (size_t first = begin; first < end; first += kMaxTensors) {
    const auto count = std::min(kMaxTensors, end - first);
    Arguments args{batch.tensors,
                   batch.pieces,
                   batch.partials,
                   batch.tickets,
                   batch.report,
                   static_cast<int32_t>(first),
                   tensors[first].first_piece,
                   static_cast<int32_t>(tensors.size()),
                   {},
                   {}};
    for (size_t k = 0; k < count; ++k) {
      const auto& operands = batch.operands[first + k];
      args.pointers[k] = {operands.weights, operands.anchor, operands.output_or_gradient};
      args.bf16[k] = operands.bf16;
    }
    const auto& last = tensors[first + count - 1];
    const auto blocks = last.first_piece + last.pieces - args.first_piece;
    kernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(batch.stream)>>>(args, values...);
    check_launch();
  }
}

template <class... Parameters, class... Values>
void launch(const Batch& batch, void (*kernel)(Arguments, Parameters...), Values... values) {
  launch_over(batch, 0, batch.plan->tensors.size(), kernel, values...);
}

bool only_float32(const Batch& batch) {
  return std::ranges::all_of(batch.plan->tensors, [](const TensorPlan& tensor) {
    return tensor.layout.weights == DType::kFloat32 && tensor.layout.anchor == DType::kFloat32;
  });
}

void measure(const Batch& batch, RowNorm norm, const Distances& distances) {
  const auto* end = batch.operands + batch.plan->tensors.size();
  const bool copy = std::any_of(batch.operands, end,
                                [](const Operands& each) { return each.output_or_gradient != nullptr; });
  launch(batch, copy ? measure_kernel<Use::kCopy> : measure_kernel<Use::kNone>, norm, distances, Limits());
}

void project(const Batch& batch, RatioOf ratio_of, const Distances& distances, const Limits& limits) {
  launch(batch, project_kernel, ratio_of, distances, limits, false);
}

void measure_and_project(const Batch& batch, RowNorm norm, RatioOf ratio_of, const Distances& distances,
                         const Limits& limits) {
  if (ratio_of != RatioOf::kRow) {
    launch(batch, measure_kernel<Use::kNone>, norm, distances, Limits());
    project(batch, ratio_of, distances, limits);
    return;
  }
  launch(batch,
         only_float32(batch) ? measure_kernel<Use::kProject, Types::kFloat32> : measure_kernel<Use::kProject>,
         norm, distances, limits);
  const auto& tensors = batch.plan->tensors;
  const auto is_long = [](const TensorPlan& tensor) { return tensor.pieces_per_row > 1; };
  const auto first = std::find_if(tensors.begin(), tensors.end(), is_long) - tensors.begin();
  const auto end = tensors.rend() - std::find_if(tensors.rbegin(), tensors.rend(), is_long);
  if (first < end) launch_over(batch, first, end, project_kernel, ratio_of, distances, limits, true);
}

void interpolate(const Batch& batch, const double* ratios) { launch(batch, interpolate_kernel, ratios); }

void radius_gradients(const Batch& batch, RatioOf ratio_of, Rows which, const Distances& distances,
                      const double* radii, double* row_dots, double* result) {
  launch(batch, radius_gradients_kernel, ratio_of, which, distances, radii, row_dots, result);
}

void measure_radius_gradients(const Batch& batch, RowNorm norm, RatioOf ratio_of, Rows which,
                              const Distances& distances, const double* radii, const Distances& now,
                              double* row_dots, double* result) {
  launch(batch,
         only_float32(batch) ? measure_radius_gradients_kernel<Types::kFloat32>
                             : measure_radius_gradients_kernel<Types::kAny>,
         norm, ratio_of, which, distances, radii, now, row_dots, result);
}

void add_displacement(const Batch& batch, double factor) { launch(batch, add_displacement_kernel, factor); }

}  // namespace

const Backend& cuda() {
  static const Backend backend{measure,         project,          measure_and_project,
                               interpolate,     radius_gradients, measure_radius_gradients,
                               add_displacement};
  return backend;
}

bool tuned_for(int device) {
  int major = 0;
  return cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
         major >= 9;
}

}  // namespace tpgm::kernels
