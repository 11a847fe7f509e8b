// Distances, projections and radius gradients on the CPU: vectorized, parallel over pieces, and the oracle
// for projection.cu.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "tpgm/kernels/cpu_types.h"
#include "tpgm/kernels/projection_math.h"

// One binary for all x86 machines: the loops are compiled for several instruction sets and selected at load
// time. Sums have a fixed number of lanes, so all instruction sets give the same bits.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define TPGM_FOR_EACH_CPU __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define TPGM_FOR_EACH_CPU
#endif
#define TPGM_INLINE_LAMBDA __attribute__((always_inline))

namespace tpgm::kernels {
namespace {

constexpr int kLanes = 16;

// Σ of term(i) for i in [0, n), in kLanes interleaved sums that are added in a fixed order.
template <class Term>
TPGM_INLINE double sum(int64_t n, Term term) {
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
  for (int lane = 0; i < n; ++i, ++lane) lanes[lane] += term(i);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  return lanes[0];
}

// The loops over a run of elements. W: the weights' type, A: the anchor's.

template <class W, class A>
TPGM_INLINE Compute<W> displacement(const W* weights, const A* anchor, int64_t i) {
  return load<Compute<W>>(weights[i]) - load<Compute<W>>(anchor[i]);
}

template <class W, class A>
TPGM_FOR_EACH_CPU double sum_of_squares(const W* weights, const A* anchor, int64_t n) {
  return sum(n, [=](int64_t i) TPGM_INLINE_LAMBDA {
    const double delta = displacement(weights, anchor, i);
    return delta * delta;
  });
}

template <class W, class A>
TPGM_FOR_EACH_CPU double sum_of_magnitudes(const W* weights, const A* anchor, int64_t n) {
  return sum(n, [=](int64_t i) TPGM_INLINE_LAMBDA {
    return static_cast<double>(std::abs(displacement(weights, anchor, i)));
  });
}

template <class W, class A, class T>
TPGM_FOR_EACH_CPU double dot(const T* gradient, const W* weights, const A* anchor, int64_t n) {
  return sum(n, [=](int64_t i) TPGM_INLINE_LAMBDA {
    return load<double>(gradient[i]) * static_cast<double>(displacement(weights, anchor, i));
  });
}

template <class W, class A, class T>
TPGM_FOR_EACH_CPU void interpolate_run(const W* weights, const A* anchor, T* out, double ratio, int64_t n) {
  using C = Compute<W>;
  const auto factor = static_cast<C>(ratio);
#pragma GCC ivdep  // `out` is `weights` or does not touch it
  for (int64_t i = 0; i < n; ++i)
    out[i] = store<T>(load<C>(anchor[i]) + factor * displacement(weights, anchor, i));
}

template <class W, class T>
TPGM_FOR_EACH_CPU void round_run(const W* weights, T* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = store<T>(load<Compute<W>>(weights[i]));
}

// Returns whether everything that was written is finite.
template <class W, class A>
TPGM_FOR_EACH_CPU bool add_run(const W* weights, const A* anchor, W* out, double factor, int64_t n) {
  using C = Compute<W>;
  const auto scale = static_cast<C>(factor);
  int bad = 0;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    out[i] = store<W>(load<C>(out[i]) + scale * displacement(weights, anchor, i));
    bad |= !(std::abs(load<C>(out[i])) <= std::numeric_limits<C>::max());
  }
  return bad == 0;
}

template <class T>
TPGM_FOR_EACH_CPU PairSums pair_sums_of(const T* weights, const T* anchor, int64_t n) {
  double d2[kLanes] = {}, d1[kLanes] = {}, w2[kLanes] = {}, a2[kLanes] = {}, wa[kLanes] = {};
  const auto add = [&](int64_t i, int lane) TPGM_INLINE_LAMBDA {
    const auto w = load<double>(weights[i]), a = load<double>(anchor[i]);
    d2[lane] += (w - a) * (w - a);
    d1[lane] += std::abs(w - a);
    w2[lane] += w * w;
    a2[lane] += a * a;
    wa[lane] += w * a;
  };
  const int64_t whole = n / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) add(i + lane, lane);
  for (int64_t i = whole; i < n; ++i) add(i, static_cast<int>(i - whole));
  PairSums sums;
  for (int lane = 0; lane < kLanes; ++lane) {
    sums.difference_squared += d2[lane];
    sums.difference_absolute += d1[lane];
    sums.weights_squared += w2[lane];
    sums.anchor_squared += a2[lane];
    sums.product += wa[lane];
  }
  return sums;
}

// Calls f with the types of the layout's weights and anchor.
template <class F>
void with_types(const Layout& layout, F&& f) {
  const auto with_anchor = [&]<class W>(W) {
    layout.anchor == layout.weights ? f(W{}, W{}) : f(W{}, BFloat16{});
  };
  switch (layout.weights) {
    case DType::kFloat64:
      return with_anchor(double{});
    case DType::kFloat32:
      return with_anchor(float{});
    case DType::kFloat16:
      return with_anchor(Float16{});
    case DType::kBFloat16:
      return with_anchor(BFloat16{});
  }
}

// Calls f(piece index, piece, tensor, weights, anchor, operand) for every piece, on all threads. kMayBeBf16:
// `operand` may be bfloat16 with float32 weights.
template <bool kMayBeBf16 = false, class F>
void for_each_piece(const Batch& batch, F&& f) {
  batch.parallel_for(static_cast<int64_t>(batch.plan->pieces.size()), [&](int64_t begin, int64_t end) {
    for (auto index = begin; index < end; ++index) {
      const auto& piece = batch.pieces[index];
      const auto& tensor = batch.tensors[piece.tensor];
      const auto& operands = batch.operands[piece.tensor];
      with_types(tensor.layout, [&](auto w, auto a) {
        using W = decltype(w);
        using A = decltype(a);
        const auto with_operand = [&]<class T>(T* operand) {
          f(index, piece, tensor, static_cast<const W*>(operands.weights) + piece.begin,
            static_cast<const A*>(operands.anchor) + piece.begin, operand ? operand + piece.begin : nullptr);
        };
        if constexpr (kMayBeBf16 && std::is_same_v<W, float>) {
          if (operands.bf16) return with_operand(static_cast<BFloat16*>(operands.output_or_gradient));
        }
        with_operand(static_cast<W*>(operands.output_or_gradient));
      });
    }
  });
}

// Writes the row sums of all tensors, kSums per row: row_sums(weights, anchor, operand, n) of each row or
// part of a row, with parts added in order. For whole rows it then calls finish(row, sum, weights, anchor,
// operand, n, tensor index), while they are in the cache.
template <bool kMayBeBf16, size_t kSums, class RowSums, class Finish>
void reduce_rows(const Batch& batch, const std::array<double*, kSums>& rows, RowSums&& row_sums,
                 Finish&& finish) {
  for_each_piece<kMayBeBf16>(
      batch, [&](auto index, const auto& piece, const auto& tensor, auto weights, auto anchor, auto operand) {
        const auto cols = tensor.layout.cols;
        const bool split = tensor.pieces_per_row > 1;
        const int64_t n = split ? piece.size : cols;
        for (int64_t row = 0; row < piece.rows; ++row) {
          const auto at = row * n;
          auto* out = operand ? operand + at : nullptr;
          const std::array<double, kSums> sums = row_sums(weights + at, anchor + at, out, n);
          const auto all_rows = tensor.first_row + piece.row + row;
          for (size_t s = 0; s < kSums; ++s)
            (split ? batch.partials[index * kSums + s] : rows[s][all_rows]) = sums[s];
          if (!split) finish(all_rows, sums[0], weights + at, anchor + at, out, n, piece.tensor);
        }
      });
  for (const auto& tensor : batch.plan->tensors) {
    if (tensor.pieces_per_row > 1) {
      const auto* part = batch.partials + tensor.first_piece * kSums;
      for (int64_t row = 0; row < tensor.layout.rows; ++row) {
        std::array<double, kSums> totals = {};
        for (int32_t i = 0; i < tensor.pieces_per_row; ++i)
          for (auto& total : totals) total += *part++;
        for (size_t s = 0; s < kSums; ++s) rows[s][tensor.first_row + row] = totals[s];
      }
    }
  }
}

int32_t tensors_of(const Batch& batch) { return static_cast<int32_t>(batch.plan->tensors.size()); }

constexpr auto kNothingMore = [](auto&&...) {};

void report(const Batch& batch, int32_t code) { *batch.report = std::min(*batch.report, code); }

template <class W, class A>
double row_sum(RowNorm norm, const W* weights, const A* anchor, int64_t n) {
  switch (norm) {
    case RowNorm::kL2:
      return sum_of_squares(weights, anchor, n);
    case RowNorm::kL1:
      return sum_of_magnitudes(weights, anchor, n);
  }
  return NAN;
}

// Computes distances from row sums, and their extremes; reports tensors that are not finite.
void finish_distances(const Batch& batch, RowNorm norm, const Distances& distances) {
  for (int32_t k = 0; k < tensors_of(batch); ++k) {
    const auto& tensor = batch.plan->tensors[k];
    auto* rows = distances.rows + tensor.first_row;
    double smallest = std::numeric_limits<double>::infinity();
    double largest = 0;
    bool finite = true;
    for (int64_t row = 0; row < tensor.layout.rows; ++row) {
      rows[row] = distance_of(norm, rows[row]);
      finite = finite && std::isfinite(rows[row]);
      smallest = std::min(smallest, rows[row]);
      largest = std::max(largest, rows[row]);
    }
    distances.min[k] = smallest;
    distances.max[k] = largest;
    if (!finite) report(batch, code_of_weights(k));
  }
}

void measure(const Batch& batch, RowNorm norm, const Distances& distances) {
  const auto sum_and_copy = [norm](auto weights, auto anchor, auto copy, int64_t n) {
    const auto total = row_sum(norm, weights, anchor, n);
    if (copy) std::memcpy(copy, weights, n * sizeof(*weights));
    return std::array{total};
  };
  reduce_rows<false, 1>(batch, {distances.rows}, sum_and_copy, kNothingMore);
  finish_distances(batch, norm, distances);
}

// Writes consecutive elements with their ratio. With ratio 1 they are copied, or left alone in place.
template <class W, class A, class T>
void write_run(const W* weights, const A* anchor, T* out, double ratio, int64_t n) {
  if (ratio != 1)
    interpolate_run(weights, anchor, out, ratio, n);
  else if constexpr (!std::is_same_v<W, T>)
    round_run(weights, out, n);
  else if (out != weights)
    std::memcpy(out, weights, n * sizeof(W));
}

// long_rows_only: only rows that are longer than a piece, because the others are already projected.
void project_pieces(const Batch& batch, RatioOf ratio_of, const Distances& distances, const Limits& limits,
                    bool long_rows_only) {
  const bool clean = *batch.report == kAllFinite;
  for_each_piece<true>(
      batch, [&](auto, const auto& piece, const auto& tensor, auto weights, auto anchor, auto out) {
        if (long_rows_only && tensor.pieces_per_row == 1) return;
        const int64_t run = tensor.pieces_per_row > 1 ? piece.size : tensor.layout.cols;
        for (int64_t row = 0; row < piece.rows; ++row) {
          const auto all_rows = tensor.first_row + piece.row + row;
          const auto distance = limited_distance(ratio_of, distances, piece.tensor, all_rows);
          const auto ratio = clean ? ratio_within(radius_of(limits, piece.tensor, all_rows), distance) : 1.0;
          write_run(weights + row * run, anchor + row * run, out + row * run, ratio, run);
        }
      });
}

void project(const Batch& batch, RatioOf ratio_of, const Distances& distances, const Limits& limits) {
  project_pieces(batch, ratio_of, distances, limits, /*long_rows_only=*/false);
}

void measure_and_project(const Batch& batch, RowNorm norm, RatioOf ratio_of, const Distances& distances,
                         const Limits& limits) {
  const bool at_once = ratio_of == RatioOf::kRow, clean = *batch.report == kAllFinite;
  const auto sum = [norm](auto weights, auto anchor, auto, int64_t n) {
    return std::array{row_sum(norm, weights, anchor, n)};
  };
  const auto write = [&](int64_t row, double total, auto weights, auto anchor, auto out, int64_t n,
                         int32_t tensor) {
    if (!at_once) return;
    const auto radius = radius_of(limits, tensor, row);
    const auto ratio = clean && std::isfinite(total) ? ratio_within(radius, distance_of(norm, total)) : 1.0;
    write_run(weights, anchor, out, ratio, n);
  };
  reduce_rows<true, 1>(batch, {distances.rows}, sum, write);
  finish_distances(batch, norm, distances);
  project_pieces(batch, ratio_of, distances, limits, /*long_rows_only=*/at_once);
}

void interpolate(const Batch& batch, const double* ratios) {
  const bool clean = *batch.report == kAllFinite;
  for_each_piece(batch, [&](auto, const auto& piece, const auto&, auto weights, auto anchor, auto out) {
    write_run(weights, anchor, out, clean ? ratios[piece.tensor] : 1.0, int64_t{piece.size});
  });
}

// Σ dot / divisor over the rows that count according to `distances`.
void finish_radius_gradients(const Batch& batch, RatioOf ratio_of, Rows which, const Distances& distances,
                             const Distances& divisors, const double* radii, const double* row_dots,
                             double* result) {
  for (int32_t k = 0; k < tensors_of(batch); ++k) {
    const auto& tensor = batch.plan->tensors[k];
    double total = 0;
    bool finite = true;
    for (auto row = tensor.first_row; row < tensor.first_row + tensor.layout.rows; ++row) {
      const auto divisor = limited_distance(ratio_of, divisors, k, row);
      const bool included =
          divisor > 0 && counts(which, radii[k], limited_distance(ratio_of, distances, k, row));
      finite = finite && std::isfinite(row_dots[row]);
      total += included ? row_dots[row] / divisor : 0.0;
    }
    result[k] = total;
    if (!finite) report(batch, code_of_gradient(tensors_of(batch), k));
  }
}

template <class W, class A, class T>
double row_dot(const W* weights, const A* anchor, const T* gradient, int64_t n) {
  return gradient ? dot(gradient, weights, anchor, n) : 0.0;
}

void radius_gradients(const Batch& batch, RatioOf ratio_of, Rows which, const Distances& distances,
                      const double* radii, double* row_dots, double* result) {
  const auto dots = []<class T>(auto weights, auto anchor, T* gradient, int64_t n) {
    return std::array{row_dot(weights, anchor, static_cast<const T*>(gradient), n)};
  };
  reduce_rows<true, 1>(batch, {row_dots}, dots, kNothingMore);
  finish_radius_gradients(batch, ratio_of, which, distances, distances, radii, row_dots, result);
}

void measure_radius_gradients(const Batch& batch, RowNorm norm, RatioOf ratio_of, Rows which,
                              const Distances& distances, const double* radii, const Distances& now,
                              double* row_dots, double* result) {
  const auto both = [norm]<class T>(auto weights, auto anchor, T* gradient, int64_t n) {
    return std::array{row_sum(norm, weights, anchor, n),
                      row_dot(weights, anchor, static_cast<const T*>(gradient), n)};
  };
  reduce_rows<true, 2>(batch, {now.rows, row_dots}, both, kNothingMore);
  finish_distances(batch, norm, now);
  finish_radius_gradients(batch, ratio_of, which, distances, now, radii, row_dots, result);
}

void add_displacement(const Batch& batch, double factor) {
  if (*batch.report != kAllFinite) return;
  for_each_piece(batch, [&](auto index, const auto& piece, const auto&, auto weights, auto anchor, auto out) {
    batch.partials[index] = add_run(weights, anchor, out, factor, piece.size) ? 0 : 1;
  });
  for (size_t i = 0; i < batch.plan->pieces.size(); ++i)
    if (batch.partials[i] != 0)
      report(batch, code_of_gradient(tensors_of(batch), batch.plan->pieces[i].tensor));
}

}  // namespace

const Backend& cpu() {
  static const Backend backend{measure,         project,          measure_and_project,
                               interpolate,     radius_gradients, measure_radius_gradients,
                               add_displacement};
  return backend;
}

PairSums pair_sums(const void* weights, const void* anchor, DType dtype, int64_t n) {
  PairSums sums;
  with_types({1, n, dtype, dtype}, [&]<class T, class A>(T, A) {
    sums = pair_sums_of(static_cast<const T*>(weights), static_cast<const T*>(anchor), n);
  });
  return sums;
}

void interpolate_vector(const void* weights, const void* anchor, void* output, double ratio, DType dtype,
                        int64_t n) {
  with_types({1, n, dtype, dtype}, [&]<class T, class A>(T, A) {
    write_run(static_cast<const T*>(weights), static_cast<const T*>(anchor), static_cast<T*>(output), ratio,
              n);
  });
}

}  // namespace tpgm::kernels
