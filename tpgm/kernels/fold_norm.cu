// Folding BatchNorm into weights on CUDA: one warp per row.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <stdexcept>

#include "tpgm/kernels/fold_norm.h"
#include "tpgm/kernels/launch.cuh"
#include "tpgm/kernels/vector.cuh"

namespace tpgm::kernels {
namespace {

constexpr int kThreads = 256, kWarp = 32, kRows = kThreads / kWarp;
constexpr size_t kMost = 128;  // convolutions per launch

struct Arguments {
  Fold each[kMost];
};

struct Channel {
  float inverse, scale, mean, bias;
};

__device__ Channel channel_of(const BatchNormParameters& norm, int64_t row) {
  const auto at = [row](const void* values) { return static_cast<const float*>(values)[row]; };
  const float inverse = rsqrtf(at(norm.variance) + static_cast<float>(norm.eps));
  return {inverse, at(norm.weight) * inverse, at(norm.mean), at(norm.bias)};
}

// A warp writes to ← scale · from over a row, and with kWith returns the sum of from · with.
template <class T, bool kWith>
__device__ float scale_row(const T* from, const T* with, float scale, int64_t n, T* to) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  float sum = 0;
  const auto element = [&](T value, T other) {
    if constexpr (kWith) sum = fmaf(static_cast<float>(value), static_cast<float>(other), sum);
    return static_cast<T>(scale * static_cast<float>(value));
  };
  if (n % kVector<T> == 0 && aligned<kVector<T>>(from) && aligned<kVector<T>>(to) &&
      (!kWith || aligned<kVector<T>>(with))) {
    for (int64_t i = lane * kVector<T>; i < n; i += kWarp * kVector<T>) {
      auto values = read<kVector<T>>(from + i);
      Vector<T> others{};
      if constexpr (kWith) others = read<kVector<T>>(with + i);
#pragma unroll
      for (int j = 0; j < kVector<T>; ++j) values.at[j] = element(values.at[j], others.at[j]);
      write(to + i, values);
    }
  } else {
    for (int64_t i = lane; i < n; i += kWarp) to[i] = element(from[i], kWith ? with[i] : T{});
  }
  return warp_sum(sum);
}

template <class T>
__device__ void forward_row(const Fold& each, int64_t row) {
  const Channel channel = channel_of(each.norm, row);
  const int64_t at = row * each.cols;
  scale_row<T, false>(static_cast<const T*>(each.weights) + at, nullptr, channel.scale, each.cols,
                      static_cast<T*>(each.folded) + at);
  if (threadIdx.x % kWarp == 0)
    static_cast<float*>(each.shift)[row] = fmaf(-channel.mean, channel.scale, channel.bias);
}

template <class T>
__device__ void backward_row(const Fold& each, int64_t row) {
  const Channel channel = channel_of(each.norm, row);
  const int64_t at = row * each.cols;
  float dscale = 0;
  if (each.dfolded != nullptr)
    dscale =
        scale_row<T, true>(static_cast<const T*>(each.dfolded) + at, static_cast<const T*>(each.weights) + at,
                           channel.scale, each.cols, static_cast<T*>(each.dweights) + at);
  if (each.dshift != nullptr)
    dscale = fmaf(-channel.mean, static_cast<const float*>(each.dshift)[row], dscale);
  if (threadIdx.x % kWarp == 0) static_cast<float*>(each.dscale)[row] = dscale * channel.inverse;
}

template <bool kForward>
__global__ void __launch_bounds__(kThreads) rows_kernel(const __grid_constant__ Arguments arguments) {
  const Fold& each = arguments.each[blockIdx.y];
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.x / kWarp;
  if (row >= each.rows) return;
  if (each.dtype == DType::kBFloat16)
    kForward ? forward_row<__nv_bfloat16>(each, row) : backward_row<__nv_bfloat16>(each, row);
  else
    kForward ? forward_row<float>(each, row) : backward_row<float>(each, row);
}

template <bool kForward>
void run(const std::vector<Fold>& all, const ParallelFor&, void* stream) {
  for (size_t first = 0; first < all.size(); first += kMost) {
    const size_t count = std::min(kMost, all.size() - first);
    Arguments arguments{};
    int64_t most_rows = 0;
    for (size_t i = 0; i < count; ++i) {
      arguments.each[i] = all[first + i];
      most_rows = std::max(most_rows, all[first + i].rows);
      if (all[first + i].dtype != DType::kBFloat16 && all[first + i].dtype != DType::kFloat32)
        throw std::runtime_error("[tpgm] BatchNorm on CUDA can be folded into bfloat16 and float32 weights");
    }
    const dim3 grid(static_cast<unsigned>((most_rows + kRows - 1) / kRows), static_cast<unsigned>(count));
    rows_kernel<kForward><<<grid, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(arguments);
    check_launch();
  }
}

}  // namespace

const FoldNormBackend& fold_norm_cuda() {
  static const FoldNormBackend backend{run<true>, run<false>};
  return backend;
}

}  // namespace tpgm::kernels
