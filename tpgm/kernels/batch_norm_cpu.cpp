// BatchNorm, ReLU and pooling as plain loops: the oracle for CUDA.
#include <algorithm>
#include <cmath>
#include <vector>

#include "tpgm/kernels/batch_norm.h"
#include "tpgm/kernels/cpu_types.h"

namespace tpgm::kernels {
namespace {

constexpr uint8_t kNoPixel = 255;  // no value in a window was above zero

template <class T>
struct Channels {
  const T *weight, *bias, *mean, *variance;
  double eps;

  explicit Channels(const BatchNormParameters& norm)
      : weight(static_cast<const T*>(norm.weight)),
        bias(static_cast<const T*>(norm.bias)),
        mean(static_cast<const T*>(norm.mean)),
        variance(static_cast<const T*>(norm.variance)),
        eps(norm.eps) {}

  T inverse(int64_t c) const { return static_cast<T>(1 / std::sqrt(variance[c] + eps)); }
  T operator()(T x, int64_t c) const {
    return (weight ? (x - mean[c]) * inverse(c) * weight[c] : x) + bias[c];
  }
};

// Calls visit(index of the pixel, its place in the window) for the pixels of a window that are inside the
// feature map.
template <class Visit>
void for_window(const FeatureMap& map, Pool pool, int64_t image, int64_t line, int64_t column, Visit visit) {
  const int64_t side = pool == Pool::kMax ? 3 : 2, pad = pool == Pool::kMax ? 1 : 0;
  for (int64_t k = 0; k < side * side; ++k) {
    const int64_t h = 2 * line - pad + k / side, w = 2 * column - pad + k % side;
    if (h >= 0 && h < map.height && w >= 0 && w < map.width)
      visit((image * map.height + h) * map.width + w, static_cast<uint8_t>(k));
  }
}

// Calls visit(index, image, line, column) for all pixels of the pooled feature map.
template <class Visit>
void for_pooled(const FeatureMap& map, Pool pool, Visit visit) {
  const int64_t more = pool == Pool::kMax ? 1 : 0;
  const int64_t height = (map.height + more) / 2, width = (map.width + more) / 2;
  int64_t index = 0;
  for (int64_t image = 0; image < map.images; ++image) {
    for (int64_t line = 0; line < height; ++line)
      for (int64_t column = 0; column < width; ++column) visit(index++, image, line, column);
  }
}

template <class T>
void statistics_of(const FeatureMap& map, const T* x, T* mean, T* variance, const Running& running) {
  const auto count = static_cast<double>(map.pixels());
  for (int64_t c = 0; c < map.channels; ++c) {
    double sum = 0, squares = 0;
    for (int64_t row = 0; row < map.pixels(); ++row) sum += x[row * map.channels + c];
    const double mu = sum / count;
    for (int64_t row = 0; row < map.pixels(); ++row) {
      const double from_mean = x[row * map.channels + c] - mu;
      squares += from_mean * from_mean;
    }
    mean[c] = static_cast<T>(mu);
    variance[c] = static_cast<T>(squares / count);
    if (running.mean == nullptr) continue;
    auto& running_mean = static_cast<T*>(running.mean)[c];
    auto& running_variance = static_cast<T*>(running.variance)[c];
    const double unbiased = squares / std::max(count - 1, 1.0);
    running_mean = static_cast<T>(running_mean + running.momentum * (mu - running_mean));
    running_variance = static_cast<T>(running_variance + running.momentum * (unbiased - running_variance));
  }
  if (running.batches != nullptr) ++*running.batches;
}

template <class T>
void forward_of(const FeatureMap& map, const BatchNormParameters& norm, const NormForward& call) {
  const Channels<T> channels(norm);
  const auto *x = static_cast<const T*>(call.x), *residual = static_cast<const T*>(call.residual);
  auto* y = static_cast<T*>(call.y);
  const int64_t n = map.channels;
  if (call.pool == Pool::kNone) {
    for (int64_t i = 0; i < map.pixels() * n; ++i) {
      const T value = channels(x[i], i % n) + (residual ? residual[i] : T(0));
      y[i] = call.relu && value <= 0 ? T(0) : value;
      if (residual && call.trace) call.trace[i] = value <= 0 ? 0 : 1;
    }
    return;
  }
  for_pooled(map, call.pool, [&](int64_t index, int64_t image, int64_t line, int64_t column) {
    for (int64_t c = 0; c < n; ++c) {
      T best = 0;
      uint8_t where = kNoPixel;
      for_window(map, call.pool, image, line, column, [&](int64_t pixel, uint8_t place) {
        const T value = channels(x[pixel * n + c], c);
        if (call.pool == Pool::kMean) {
          best += value <= 0 ? T(0) : value / 4;
        } else if (value > best || std::isnan(value)) {
          best = value;
          where = place;
        }
      });
      y[index * n + c] = best;
      if (call.pool == Pool::kMax && call.trace) call.trace[index * n + c] = where;
    }
  });
}

// The gradient of the ReLU's input.
template <class T>
std::vector<T> relu_input_gradient(const FeatureMap& map, const Channels<T>& channels,
                                   const NormBackward& call) {
  const auto *x = static_cast<const T*>(call.x), *dy = static_cast<const T*>(call.dy),
             *second = static_cast<const T*>(call.dy_second);
  const int64_t n = map.channels;
  const auto gradient = [&](int64_t i) { return dy[i] + (second ? second[i] : T(0)); };
  std::vector<T> result(static_cast<size_t>(map.pixels() * n), T(0));
  if (call.pool == Pool::kNone) {
    for (int64_t i = 0; i < map.pixels() * n; ++i) {
      const bool passes = !call.relu || (call.residual ? call.trace[i] != 0 : !(channels(x[i], i % n) <= 0));
      if (passes) result[static_cast<size_t>(i)] = gradient(i);
    }
    return result;
  }
  for_pooled(map, call.pool, [&](int64_t index, int64_t image, int64_t line, int64_t column) {
    for_window(map, call.pool, image, line, column, [&](int64_t pixel, uint8_t place) {
      for (int64_t c = 0; c < n; ++c) {
        T& to = result[static_cast<size_t>(pixel * n + c)];
        if (call.pool == Pool::kMax) {
          if (call.trace[index * n + c] == place) to += gradient(index * n + c);
        } else if (!(channels(x[pixel * n + c], c) <= 0)) {
          to += gradient(index * n + c) / 4;
        }
      }
    });
  });
  return result;
}

template <class T>
void backward_of(const FeatureMap& map, const BatchNormParameters& norm, const NormBackward& call) {
  const Channels<T> channels(norm);
  const auto* x = static_cast<const T*>(call.x);
  auto* dx = static_cast<T*>(call.dx);
  const int64_t n = map.channels, rows = map.pixels();
  const auto gradient = relu_input_gradient(map, channels, call);
  if (call.dresidual) std::copy(gradient.begin(), gradient.end(), static_cast<T*>(call.dresidual));
  if (!channels.weight) {
    if (dx) std::copy(gradient.begin(), gradient.end(), dx);
    for (int64_t c = 0; c < n; ++c) {
      double sum = 0;
      for (int64_t row = 0; row < rows; ++row) sum += gradient[static_cast<size_t>(row * n + c)];
      static_cast<T*>(call.dbias)[c] = static_cast<T>(sum);
    }
    return;
  }
  for (int64_t c = 0; c < n; ++c) {
    const double inverse = channels.inverse(c), scale = channels.weight[c] * inverse;
    const auto normal = [&](int64_t row) { return (x[row * n + c] - channels.mean[c]) * inverse; };
    const auto at = [&](int64_t row) { return gradient[static_cast<size_t>(row * n + c)]; };
    double sum = 0, products = 0;
    for (int64_t row = 0; row < rows; ++row) {
      sum += at(row);
      products += at(row) * normal(row);
    }
    static_cast<T*>(call.dbias)[c] = static_cast<T>(sum);
    static_cast<T*>(call.dweight)[c] = static_cast<T>(products);
    const auto count = static_cast<double>(rows);
    for (int64_t row = 0; row < rows; ++row) {
      const double through_statistics = call.batch_statistics ? (sum + normal(row) * products) / count : 0;
      dx[row * n + c] = static_cast<T>(scale * (at(row) - through_statistics));
    }
  }
}

template <class T>
void mean_pool_of(const FeatureMap& map, const T* x, T* y) {
  const int64_t n = map.channels;
  for_pooled(map, Pool::kMean, [&](int64_t index, int64_t image, int64_t line, int64_t column) {
    std::fill_n(y + index * n, n, T(0));
    for_window(map, Pool::kMean, image, line, column, [&](int64_t pixel, uint8_t) {
      for (int64_t c = 0; c < n; ++c) y[index * n + c] += x[pixel * n + c] / 4;
    });
  });
}

template <class T>
void mean_pool_backward_of(const FeatureMap& map, const T* dy, T* dx) {
  const int64_t n = map.channels;
  std::fill_n(dx, map.pixels() * n, T(0));  // if sizes are odd, the last line and column are in no window
  for_pooled(map, Pool::kMean, [&](int64_t index, int64_t image, int64_t line, int64_t column) {
    for_window(map, Pool::kMean, image, line, column, [&](int64_t pixel, uint8_t) {
      for (int64_t c = 0; c < n; ++c) dx[pixel * n + c] = dy[index * n + c] / 4;
    });
  });
}

int64_t vector(DType) { return 1; }

int64_t trace_bytes(const FeatureMap& map, bool residual, Pool pool) {
  if (pool == Pool::kMax) return map.images * ((map.height + 1) / 2) * ((map.width + 1) / 2) * map.channels;
  return residual ? map.pixels() * map.channels : 0;
}

int64_t scratch_bytes(const FeatureMap&) { return 0; }

void statistics(const FeatureMap& map, const void* x, void* mean, void* variance, const Running& running,
                void*, void*) {
  with_float_or_double(map.dtype, [&](auto type) {
    using T = decltype(type);
    statistics_of(map, static_cast<const T*>(x), static_cast<T*>(mean), static_cast<T*>(variance), running);
  });
}

void forward(const FeatureMap& map, const BatchNormParameters& norm, const NormForward& call, void*) {
  with_float_or_double(map.dtype, [&](auto type) { forward_of<decltype(type)>(map, norm, call); });
}

void backward(const FeatureMap& map, const BatchNormParameters& norm, const NormBackward& call, void*,
              void*) {
  with_float_or_double(map.dtype, [&](auto type) { backward_of<decltype(type)>(map, norm, call); });
}

void mean_pool(const FeatureMap& map, const void* x, void* y, void*) {
  with_float_or_double(map.dtype, [&](auto type) {
    using T = decltype(type);
    mean_pool_of(map, static_cast<const T*>(x), static_cast<T*>(y));
  });
}

void mean_pool_backward(const FeatureMap& map, const void* dy, void* dx, void*) {
  with_float_or_double(map.dtype, [&](auto type) {
    using T = decltype(type);
    mean_pool_backward_of(map, static_cast<const T*>(dy), static_cast<T*>(dx));
  });
}

void space_to_depth(const SpaceToDepth& call, void*) {
  with_float_or_double(call.from, [&](auto type) {
    using T = decltype(type);
    const auto* x = static_cast<const T*>(call.x);
    auto* y = static_cast<T*>(call.y);
    const auto pixels = call.images * call.lines() * call.columns();
    for (int64_t i = 0; i < pixels * SpaceToDepth::kChannels; ++i) {
      const auto channel = i % SpaceToDepth::kChannels, pixel = i / SpaceToDepth::kChannels;
      const auto column = pixel % call.columns() - call.front,
                 line = pixel / call.columns() % call.lines() - call.front,
                 image = pixel / (call.columns() * call.lines());
      const auto place = channel / call.channels;
      const auto h = 2 * line + place / 2, w = 2 * column + place % 2;
      const bool inside = place < 4 && h >= 0 && h < call.height && w >= 0 && w < call.width;
      y[i] = inside
                 ? x[((image * call.height + h) * call.width + w) * call.channels + channel % call.channels]
                 : T(0);
    }
  });
}

}  // namespace

const BatchNormBackend& batch_norm_cpu() {
  static const BatchNormBackend backend{vector,   trace_bytes, scratch_bytes,      statistics,    forward,
                                        backward, mean_pool,   mean_pool_backward, space_to_depth};
  return backend;
}

}  // namespace tpgm::kernels
