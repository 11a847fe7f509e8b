// Norms into weights on the CPU.
#include <cmath>

#include "tpgm/kernels/cpu_types.h"
#include "tpgm/kernels/fold_norm.h"

namespace tpgm::kernels {
namespace {

constexpr int64_t kLanes = 16;

// gradient · weights, in a fixed order; and scaled ← scale · gradient.
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

// The numbers of one channel.
template <class T>
struct Channel {
  double inverse, scale, mean, bias;

  Channel(const BatchNormParameters& norm, int64_t row)
      : inverse(1 / std::sqrt(static_cast<const T*>(norm.variance)[row] + norm.eps)),
        scale(static_cast<const T*>(norm.weight)[row] * inverse),
        mean(static_cast<const T*>(norm.mean)[row]),
        bias(static_cast<const T*>(norm.bias)[row]) {}
};

void forward(const std::vector<Fold>& all, const ParallelFor& parallel_for, void*) {
  for (const auto& each : all) {
    with_float_or_double(each.dtype, [&](auto type) {
      using T = decltype(type);
      parallel_for(each.rows, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          const Channel<T> channel(each.norm, row);
          const auto scale = static_cast<T>(channel.scale);
          const auto* from = static_cast<const T*>(each.weights) + row * each.cols;
          auto* to = static_cast<T*>(each.folded) + row * each.cols;
          for (int64_t i = 0; i < each.cols; ++i) to[i] = scale * from[i];
          static_cast<T*>(each.shift)[row] = static_cast<T>(channel.bias - channel.mean * channel.scale);
        }
      });
    });
  }
}

void backward(const std::vector<Fold>& all, const ParallelFor& parallel_for, void*) {
  for (const auto& each : all) {
    with_float_or_double(each.dtype, [&](auto type) {
      using T = decltype(type);
      parallel_for(each.rows, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          const Channel<T> channel(each.norm, row);
          double dscale = 0;
          if (each.dfolded) {
            dscale = scale_and_multiply(static_cast<const T*>(each.dfolded) + row * each.cols,
                                        static_cast<const T*>(each.weights) + row * each.cols,
                                        static_cast<T>(channel.scale), each.cols,
                                        static_cast<T*>(each.dweights) + row * each.cols);
          }
          if (each.dshift) dscale -= channel.mean * static_cast<const T*>(each.dshift)[row];
          static_cast<T*>(each.dscale)[row] = static_cast<T>(dscale * channel.inverse);
        }
      });
    });
  }
}

}  // namespace

const FoldNormBackend& fold_norm_cpu() {
  static const FoldNormBackend backend{forward, backward};
  return backend;
}

}  // namespace tpgm::kernels
