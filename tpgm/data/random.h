// Random numbers that are a function of seed, epoch, index and purpose: the same on every machine, in any
// order and on any thread.
#pragma once

#include <ATen/core/PhiloxRNGEngine.h>

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

namespace tpgm {

/// An independent stream of random numbers for every (seed, epoch, index), such as one image in one epoch.
/// The distributions of the standard library differ between implementations, so they are written out here.
class Random {
 public:
  /// epoch < 2^24, index < 2^40. Different uses of the same index need different values of `purpose`.
  Random(uint64_t seed, uint64_t epoch, uint64_t index, uint64_t purpose = 0)
      : engine_(mixed(seed + 0x9e3779b97f4a7c15ULL * purpose), (epoch << 40) | index) {}

  uint32_t bits() { return engine_(); }
  /// Uniform in [0, 1), in steps of 2^-53.
  double uniform() {
    const uint64_t high = bits() >> 5, low = bits() >> 6;
    return static_cast<double>((high << 26) | low) * 0x1p-53;
  }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  /// Uniform in 0, …, count - 1; count is from 1 to 2^53.
  int64_t integer(int64_t count) { return static_cast<int64_t>(uniform() * static_cast<double>(count)); }
  double normal() {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(2 * 3.14159265358979323846 * uniform());
  }
  /// Beta(a, b), a and b > 0.
  double beta(double a, double b) {
    const double x = gamma(a), y = gamma(b);
    return x + y > 0 ? x / (x + y) : 0.5;  // both may underflow when a and b are tiny
  }
  template <typename T>
  void shuffle(std::vector<T>& values) {
    for (size_t left = values.size(); left > 1; --left) {
      std::swap(values[left - 1], values[static_cast<size_t>(integer(static_cast<int64_t>(left)))]);
    }
  }

 private:
  // splitmix64: neighboring seeds give unrelated keys.
  static uint64_t mixed(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
  }
  // Marsaglia and Tsang, 2000.
  double gamma(double shape) {
    if (shape < 1) return gamma(shape + 1) * std::pow(1 - uniform(), 1 / shape);
    const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
    while (true) {
      const double x = normal(), v = std::pow(1 + c * x, 3);
      if (v > 0 && std::log(1 - uniform()) < x * x / 2 + d * (1 - v + std::log(v))) return d * v;
    }
  }

  at::Philox4_32 engine_;
};

}  // namespace tpgm
