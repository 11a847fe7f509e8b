// The passes of a transformer as plain loops, with sums in double: the oracle for CUDA.
#include <cmath>
#include <limits>
#include <numbers>
#include <stdexcept>
#include <vector>

#include "tpgm/kernels/cpu_types.h"
#include "tpgm/kernels/residual.h"

namespace tpgm::kernels {
namespace {

template <class T>
Compute<T> load(const void* from, int64_t i) {
  return kernels::load<Compute<T>>(static_cast<const T*>(from)[i]);
}

template <class T>
void store(void* to, int64_t i, Compute<T> value) {
  static_cast<T*>(to)[i] = kernels::store<T>(value);
}

template <class F>
void with_type(DType type, F f) {
  switch (type) {
    case DType::kFloat64:
      return f(double{});
    case DType::kFloat32:
      return f(float{});
    case DType::kBFloat16:
      return f(BFloat16{});
    case DType::kFloat16:
      throw std::runtime_error("[tpgm] the transformer's CPU kernels take no half");
  }
}

// Calls f(S{}, B{}) with the types of stream and branch.
template <class F>
void with_types(const StreamTypes& types, F f) {
  if (types.stream == DType::kFloat64) return f(double{}, double{});
  types.branch == DType::kBFloat16 ? f(float{}, BFloat16{}) : f(float{}, float{});
}

void add_layer_norm(const AddLayerNorm& args, void*) {
  with_types(args.types, [&](auto s, auto b) {
    using S = decltype(s);
    using B = decltype(b);
    const auto cols = static_cast<double>(args.cols);
    std::vector<S> sum(static_cast<size_t>(args.cols));
    for (int64_t row = 0; row < args.rows; ++row) {
      const int64_t at = row * args.cols;
      double total = 0, squares = 0;
      for (int64_t i = 0; i < args.cols; ++i) {
        S& value = sum[i] = load<S>(args.x, at + i);
        if (args.branch) {
          value += static_cast<S>(load<B>(args.branch, at + i)) + (args.bias ? load<S>(args.bias, i) : S{0});
          store<S>(args.sum, at + i, value);
        }
        total += value;
      }
      const double mean = total / cols;
      for (const S value : sum) squares += (value - mean) * (value - mean);
      const double rstd = 1 / std::sqrt(squares / cols + args.eps);
      for (int64_t i = 0; i < args.cols; ++i) {
        const double hat = (sum[i] - mean) * rstd;
        store<B>(args.normed, at + i,
                 static_cast<Compute<B>>(hat * load<S>(args.weight, i) + load<S>(args.shift, i)));
      }
      store<S>(args.mean, row, static_cast<S>(mean));
      store<S>(args.rstd, row, static_cast<S>(rstd));
    }
  });
}

void add_layer_norm_backward(const AddLayerNormBackward& args, void*, void*) {
  with_types(args.types, [&](auto s, auto b) {
    using S = decltype(s);
    using B = decltype(b);
    const auto cols = static_cast<size_t>(args.cols);
    std::vector<double> d_weight(cols), d_shift(cols), d_bias(cols);
    for (int64_t row = 0; row < args.rows; ++row) {
      const int64_t at = row * args.cols;
      const double mean = load<S>(args.mean, row), rstd = load<S>(args.rstd, row);
      const auto hat = [&](int64_t i) { return (load<S>(args.sum, at + i) - mean) * rstd; };
      double total = 0, along = 0;
      for (int64_t i = 0; i < args.cols; ++i) {
        const double dy = load<B>(args.d_normed, at + i), weighed = dy * load<S>(args.weight, i);
        d_weight[i] += dy * hat(i);
        d_shift[i] += dy;
        total += weighed;
        along += weighed * hat(i);
      }
      for (int64_t i = 0; i < args.cols; ++i) {
        const double weighed = load<B>(args.d_normed, at + i) * static_cast<double>(load<S>(args.weight, i));
        const double dx = rstd * (weighed - (total + hat(i) * along) / static_cast<double>(args.cols)) +
                          (args.d_sum ? load<S>(args.d_sum, at + i) : S{0});
        d_bias[i] += dx;
        store<S>(args.dx, at + i, static_cast<S>(dx));
        if (args.d_branch) store<B>(args.d_branch, at + i, static_cast<Compute<B>>(dx));
      }
    }
    for (int64_t i = 0; i < args.cols; ++i) {
      store<S>(args.d_weight, i, static_cast<S>(d_weight[i]));
      store<S>(args.d_shift, i, static_cast<S>(d_shift[i]));
      if (args.d_bias) store<S>(args.d_bias, i, static_cast<S>(d_bias[i]));
    }
  });
}

constexpr double kQuickScale = 1.702;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double normal(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }

double value_at(Unit unit, double x) {
  switch (unit) {
    case Unit::kGelu:
      return x * normal(x);
    case Unit::kQuickGelu:
      return x * sigmoid(kQuickScale * x);
  }
  return NAN;
}

double derivative_at(Unit unit, double x) {
  switch (unit) {
    case Unit::kGelu:
      return normal(x) + x * std::exp(-0.5 * x * x) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
    case Unit::kQuickGelu: {
      const double s = sigmoid(kQuickScale * x);
      return s + kQuickScale * x * s * (1 - s);
    }
  }
  return NAN;
}

void activate(const Activate& args, void*) {
  with_type(args.dtype, [&](auto type) {
    using T = decltype(type);
    for (int64_t i = 0; i < args.rows * args.cols; ++i)
      store<T>(args.y, i, static_cast<Compute<T>>(value_at(args.unit, load<T>(args.x, i))));
  });
}

void activate_backward(const Activate& args, void*, void*) {
  with_type(args.dtype, [&](auto type) {
    using T = decltype(type);
    std::vector<double> sums(static_cast<size_t>(args.cols));
    for (int64_t row = 0; row < args.rows; ++row) {
      for (int64_t i = 0; i < args.cols; ++i) {
        const int64_t at = row * args.cols + i;
        const double dx = load<T>(args.dy, at) * derivative_at(args.unit, load<T>(args.x, at));
        sums[i] += dx;
        store<T>(args.y, at, static_cast<Compute<T>>(dx));
      }
    }
    for (int64_t i = 0; i < args.cols; ++i)
      store<Compute<T>>(args.d_bias, i, static_cast<Compute<T>>(sums[i]));
  });
}

void column_sums(const ColumnSums& args, void*, void*) {
  with_type(args.dtype, [&](auto type) {
    using T = decltype(type);
    for (int part = 0; part < args.parts; ++part) {
      for (int64_t i = 0; i < args.cols; ++i) {
        double total = 0;
        for (int64_t row = 0; row < args.rows; ++row) {
          const auto value = load<T>(args.from[part], row * args.stride[part] + i);
          total += value;
          if (args.beside != nullptr) store<T>(args.beside, (row * args.parts + part) * args.cols + i, value);
        }
        store<Compute<T>>(args.sums, part * args.cols + i, static_cast<Compute<T>>(total));
      }
    }
  });
}

int64_t scratch_bytes(int64_t, int) { return 0; }

}  // namespace

const ResidualBackend& residual_cpu() {
  static const ResidualBackend backend{1,
                                       std::numeric_limits<int64_t>::max(),
                                       scratch_bytes,
                                       add_layer_norm,
                                       add_layer_norm_backward,
                                       activate,
                                       activate_backward,
                                       column_sums};
  return backend;
}

}  // namespace tpgm::kernels
