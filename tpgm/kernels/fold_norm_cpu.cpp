// Folding BatchNorm into weights on the CPU.
#include <cmath>

#include "tpgm/kernels/cpu_types.h"
#include "tpgm/kernels/fold_norm.h"

namespace tpgm::kernels {
namespace {

constexpr int64_t kLanes = 16;

// Returns gradient · weights, summed in a fixed order, and writes scaled ← scale · gradient.
template <class T>
T scale_and_multiply(const T* gradient, const T* weights, T scale, int64_t n, T* scaled) {
  T lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += gradient[i + lane] * weights[i + lane];
      scaled[i + lane] = scale * gradient[i + lane];
    }
  }
  for (int64_t lane = 0; i < n; ++i, ++lane) {
    lanes[lane] += gradient[i] * weights[i];
    scaled[i] = scale * gradient[i];
  }
  double total = 0;
  for (const T lane : lanes) total += lane;
  return static_cast<T>(total);
}

// The norm of one channel.
template <class T>
struct Channel {
  double inverse, scale, mean, bias;

  Channel(const BatchNormParameters& norm, int64_t row)
      : inverse(1 / std::sqrt(static_cast<const T*>(norm.variance)[row] + norm.eps)),
        scale(static_cast<const T*>(norm.weight)[row] * inverse),
        mean(static_cast<const T*>(norm.mean)[row]),
        bias(static_cast<const T*>(norm.bias)[row]) {}
};

template <class T>
void forward_row(const Fold& fold, const Channel<T>& channel, int64_t row) {
  const auto scale = static_cast<T>(channel.scale);
  const auto* from = static_cast<const T*>(fold.weights) + row * fold.cols;
  auto* to = static_cast<T*>(fold.folded) + row * fold.cols;
  for (int64_t i = 0; i < fold.cols; ++i) to[i] = scale * from[i];
  static_cast<T*>(fold.shift)[row] = static_cast<T>(channel.bias - channel.mean * channel.scale);
}

template <class T>
void backward_row(const Fold& fold, const Channel<T>& channel, int64_t row) {
  double dscale = 0;
  if (fold.dfolded) {
    dscale = scale_and_multiply(static_cast<const T*>(fold.dfolded) + row * fold.cols,
                                static_cast<const T*>(fold.weights) + row * fold.cols,
                                static_cast<T>(channel.scale), fold.cols,
                                static_cast<T*>(fold.dweights) + row * fold.cols);
  }
  if (fold.dshift) dscale -= channel.mean * static_cast<const T*>(fold.dshift)[row];
  static_cast<T*>(fold.dscale)[row] = static_cast<T>(dscale * channel.inverse);
}

template <bool kForward>
void fold_all(const std::vector<Fold>& folds, const ParallelFor& parallel_for, void*) {
  for (const auto& fold : folds) {
    with_float_or_double(fold.dtype, [&](auto type) {
      using T = decltype(type);
      parallel_for(fold.rows, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          const Channel<T> channel(fold.norm, row);
          kForward ? forward_row(fold, channel, row) : backward_row(fold, channel, row);
        }
      });
    });
  }
}

}  // namespace

const FoldNormBackend& fold_norm_cpu() {
  static const FoldNormBackend backend{fold_all<true>, fold_all<false>};
  return backend;
}

}  // namespace tpgm::kernels
