// The passes of a transformer on CUDA.
//
// In LayerNorm a warp processes a row (two warps a wide row in the backward pass). The row stays in
// registers, four consecutive elements per lane, so that the accesses of a warp are whole cache lines in fp32
// and in bf16. All other kernels move 16 bytes at a time. Column sums are accumulated in registers: a few
// blocks process the whole matrix, each writes one row of partial sums, and a second, small launch adds these
// in a fixed order.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "tpgm/kernels/launch.cuh"
#include "tpgm/kernels/residual.h"
#include "tpgm/kernels/vector.cuh"

namespace tpgm::kernels {
namespace {

constexpr int kMaxPartials = 512;     // rows of partial sums
constexpr int kForwardThreads = 128;  // add_layer_norm: rows are independent, so blocks are small
constexpr int kThreads = 256;         // activations and column sums
constexpr int kActivateVectors = 4;   // activate: 16-byte loads in flight per thread
constexpr int kGradientRows = 4;      // activate_backward: rows in flight per thread, with two loads each
constexpr int kColumnRows = 4;        // column_sums: rows in flight per thread, with one load each
constexpr int kGradientBlocks = 3;    // activate_backward: blocks per multiprocessor
constexpr int kColumnBlocks = 5;
constexpr int kCombineLanes = 16;  // threads that share a column of partial sums

// N consecutive elements, read and written at once. In words, because the compiler would use a register for
// each bf16.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  unsigned words[sizeof(T) * N / 4];
};

template <int N>
__device__ void unpack(const Pack<float, N>& from, float (&to)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = __uint_as_float(from.words[i]);
}

template <int N>
__device__ void unpack(const Pack<__nv_bfloat16, N>& from, float (&to)[N]) {
#pragma unroll
  for (int i = 0; i < N; i += 2) {
    to[i] = __uint_as_float(from.words[i / 2] << 16);
    to[i + 1] = __uint_as_float(from.words[i / 2] & 0xffff0000u);
  }
}

template <class T, int N>
__device__ void store(T* to, const float (&from)[N]) {
  Pack<T, N> pack;
#pragma unroll
  for (int i = 0; i < N; i += 2) {
    if constexpr (sizeof(T) == 2) {
      const __nv_bfloat162 both = __floats2bfloat162_rn(from[i], from[i + 1]);
      pack.words[i / 2] = *reinterpret_cast<const unsigned*>(&both);
    } else {
      pack.words[i] = __float_as_uint(from[i]);
      pack.words[i + 1] = __float_as_uint(from[i + 1]);
    }
  }
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

template <int N, class T>
__device__ Pack<T, N> load(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}

template <class B, int kFours>
__global__ void __launch_bounds__(kForwardThreads) add_layer_norm_kernel(const AddLayerNorm args) {
  const int lane = static_cast<int>(threadIdx.x) % 32, cols = static_cast<int>(args.cols);
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kForwardThreads / 32) + threadIdx.x / 32;
  if (row >= args.rows) return;
  const auto* x = static_cast<const float*>(args.x) + row * cols;
  const auto* branch = static_cast<const B*>(args.branch);
  const auto* bias = static_cast<const float*>(args.bias);
  const auto column = [&](int i) { return (i * 32 + lane) * 4; };

  float values[kFours][4];
#pragma unroll
  for (int i = 0; i < kFours; ++i) {
    Pack<float, 4> read{};
    if (column(i) < cols) read = load<4>(x + column(i));
    unpack(read, values[i]);
  }
  if (branch != nullptr) {
    branch += row * cols;
    auto* sum = static_cast<float*>(args.sum) + row * cols;
    Pack<B, 4> added[kFours];
#pragma unroll
    for (int i = 0; i < kFours; ++i)
      if (column(i) < cols) added[i] = load<4>(branch + column(i));
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      if (column(i) < cols) {
        float to_add[4], offset[4] = {};
        unpack(added[i], to_add);
        if (bias != nullptr) unpack(load<4>(bias + column(i)), offset);
#pragma unroll
        for (int j = 0; j < 4; ++j) values[i][j] += to_add[j] + offset[j];
        store(sum + column(i), values[i]);
      }
    }
  }

  float total = 0;
#pragma unroll
  for (int i = 0; i < kFours; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) total += values[i][j];
  }
  const float mean = warp_sum(total) / static_cast<float>(cols);
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kFours; ++i) {
    if (column(i) < cols) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        values[i][j] -= mean;
        squares += values[i][j] * values[i][j];
      }
    }
  }
  const float rstd = rsqrtf(warp_sum(squares) / static_cast<float>(cols) + static_cast<float>(args.eps));

  auto* normed = static_cast<B*>(args.normed) + row * cols;
#pragma unroll
  for (int i = 0; i < kFours; ++i) {
    if (column(i) < cols) {
      float weight[4], shift[4];
      unpack(load<4>(static_cast<const float*>(args.weight) + column(i)), weight);
      unpack(load<4>(static_cast<const float*>(args.shift) + column(i)), shift);
#pragma unroll
      for (int j = 0; j < 4; ++j) values[i][j] = values[i][j] * rstd * weight[j] + shift[j];
      store(normed + column(i), values[i]);
    }
  }
  if (lane == 0) {
    static_cast<float*>(args.mean)[row] = mean;
    static_cast<float*>(args.rstd)[row] = rstd;
  }
}

// The sums over the threads that share a row (a team), in each of them. `shared` has two floats per warp of
// the block. Alternate between two such arrays from row to row: then one barrier is enough.
template <int kWarps>
__device__ float2 team_sum(float2 value, float2* shared) {
  value = {warp_sum(value.x), warp_sum(value.y)};
  if constexpr (kWarps > 1) {
    const int warp = static_cast<int>(threadIdx.x) / 32, team = warp / kWarps;
    if (threadIdx.x % 32 == 0) shared[warp] = value;
    asm volatile("bar.sync %0, %1;" ::"r"(team + 1), "n"(kWarps * 32) : "memory");
    value = shared[team * kWarps];
#pragma unroll
    for (int i = 1; i < kWarps; ++i) {
      const float2 other = shared[team * kWarps + i];
      value = {value.x + other.x, value.y + other.y};
    }
  }
  return value;
}

// Writes the column sums of a block to `to` [cols]: adds the sums of its teams, in their order.
template <int kFours, int kTeam>
__device__ void write_sums(const float (&sums)[kFours][4], float* shared, float* to, int cols) {
  const int team = static_cast<int>(threadIdx.x) / kTeam, lane = static_cast<int>(threadIdx.x) % kTeam;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kFours; ++i) {
    const int column = (i * kTeam + lane) * 4;
    if (column < cols) store(shared + team * cols + column, sums[i]);
  }
  __syncthreads();
  const int teams = static_cast<int>(blockDim.x) / kTeam;
  for (int column = static_cast<int>(threadIdx.x); column < cols; column += static_cast<int>(blockDim.x)) {
    float total = 0;
    for (int i = 0; i < teams; ++i) total += shared[i * cols + column];
    to[column] = total;
  }
}

// The number of threads for whose registers (three sums and a row) there is room.
template <int kFours, int kWarps>
constexpr int kBackwardThreads = kFours > 6 || kWarps > 1 ? 256 : 384;

template <class B, int kFours, int kWarps>
__global__ void __launch_bounds__(kBackwardThreads<kFours, kWarps>, 1)
    add_layer_norm_backward_kernel(const AddLayerNormBackward args, float* partials) {
  constexpr int kTeam = 32 * kWarps, kTeams = kBackwardThreads<kFours, kWarps> / kTeam;
  extern __shared__ __align__(16) float shared[];
  __shared__ float2 exchange[2][kBackwardThreads<kFours, kWarps> / 32];
  const int team = static_cast<int>(threadIdx.x) / kTeam, lane = static_cast<int>(threadIdx.x) % kTeam;
  const int cols = static_cast<int>(args.cols);
  const float per_col = 1.0f / static_cast<float>(cols);
  const auto column = [&](int i) { return (i * kTeam + lane) * 4; };

  float d_weight[kFours][4] = {}, d_shift[kFours][4] = {}, d_bias[kFours][4] = {};
  int turn = 0;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kTeams + team; row < args.rows;
       row += static_cast<int64_t>(gridDim.x) * kTeams, turn ^= 1) {
    const int64_t at = row * cols;
    const float mean = static_cast<const float*>(args.mean)[row],
                rstd = static_cast<const float*>(args.rstd)[row];
    Pack<B, 4> d_normed[kFours];
    float hat[kFours][4], dx[kFours][4] = {};
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      if (column(i) < cols) {
        d_normed[i] = load<4>(static_cast<const B*>(args.d_normed) + at + column(i));
        unpack(load<4>(static_cast<const float*>(args.sum) + at + column(i)), hat[i]);
      }
    }
    if (args.d_sum != nullptr) {
#pragma unroll
      for (int i = 0; i < kFours; ++i)
        if (column(i) < cols) unpack(load<4>(static_cast<const float*>(args.d_sum) + at + column(i)), dx[i]);
    }
    float2 sums{0, 0};
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      if (column(i) < cols) {
        float dy[4], weight[4];
        unpack(d_normed[i], dy);
        unpack(load<4>(static_cast<const float*>(args.weight) + column(i)), weight);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          hat[i][j] = (hat[i][j] - mean) * rstd;
          d_shift[i][j] += dy[j];
          d_weight[i][j] += dy[j] * hat[i][j];
          const float weighed = dy[j] * weight[j];
          sums.x += weighed;
          sums.y += weighed * hat[i][j];
        }
      }
    }
    sums = team_sum<kWarps>(sums, exchange[turn]);
    const float both = -sums.x * per_col, along = -sums.y * per_col;
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      if (column(i) < cols) {
        float dy[4], weight[4];
        unpack(d_normed[i], dy);
        unpack(load<4>(static_cast<const float*>(args.weight) + column(i)), weight);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          dx[i][j] += rstd * (dy[j] * weight[j] + both + hat[i][j] * along);
          d_bias[i][j] += dx[i][j];
        }
        store(static_cast<float*>(args.dx) + at + column(i), dx[i]);
        if (args.d_branch != nullptr) store(static_cast<B*>(args.d_branch) + at + column(i), dx[i]);
      }
    }
  }
  float* to = partials + static_cast<int64_t>(blockIdx.x) * 3 * cols;
  write_sums<kFours, kTeam>(d_weight, shared, to, cols);
  write_sums<kFours, kTeam>(d_shift, shared, to + cols, cols);
  write_sums<kFours, kTeam>(d_bias, shared, to + 2 * cols, cols);
}

// Three results of [cols]; null: not wanted. Never index this at run time: the compiler would then copy the
// parameter to local memory.
struct Combined {
  float* to[3];
};

// Adds the rows of partials [count, width], whose columns are those of the results, concatenated.
__global__ void __launch_bounds__(32 * kCombineLanes)
    combine_kernel(const float* partials, int count, int width, int cols, Combined results) {
  __shared__ float shared[kCombineLanes][32];
  const int column = static_cast<int>(blockIdx.x) * 32 + static_cast<int>(threadIdx.x);
  float total = 0;
  if (column < width) {
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.y); i < count; i += kCombineLanes)
      total += partials[static_cast<int64_t>(i) * width + column];
  }
  shared[threadIdx.y][threadIdx.x] = total;
  __syncthreads();
  if (threadIdx.y == 0 && column < width) {
    total = 0;
    for (const auto& part : shared) total += part[threadIdx.x];
    const int which = column / cols;
    float* to = which == 0 ? results.to[0] : which == 1 ? results.to[1] : results.to[2];
    if (to != nullptr) to[column - which * cols] = total;
  }
}

__device__ float reciprocal(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

__device__ float power_of_two(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

constexpr float kLog2E = 1.4426950408889634f;
constexpr float kQuickScale = 1.702f;

// Φ(x) of the normal distribution and exp(−x²/2), with a relative error of 2⁻²⁰: bf16 results round as if Φ
// were exact, also for large negative x, where 1 + erf cancels. Φ(−u) = exp(−u²/2)·q(u), where q is a
// polynomial in 1 / (1 + 0.36u) fitted for the least relative error.
__device__ float2 normal_of(float x, __nv_bfloat16) {
  const float t = reciprocal(fmaf(0.36f, fabsf(x), 1.0f));
  const float density = power_of_two(x * x * (-0.5f * kLog2E));
  float q = 0.04705781862139702f;
  q = fmaf(q, t, -0.17977014183998108f);
  q = fmaf(q, t, 0.1809617578983307f);
  q = fmaf(q, t, 0.02654372714459896f);
  q = fmaf(q, t, 0.13972140848636627f);
  q = fmaf(q, t, 0.1417720466852188f);
  q = fmaf(q, t, 0.1437130719423294f);
  const float tail = q * t * density;
  return {x < 0 ? tail : 1.0f - tail, density};
}

__device__ float2 normal_of(float x, float) {
  return {0.5f * (1.0f + erff(x * 0.70710678118654752f)), expf(-0.5f * x * x)};
}

__device__ float sigmoid_of(float x, __nv_bfloat16) { return reciprocal(1.0f + power_of_two(-kLog2E * x)); }
__device__ float sigmoid_of(float x, float) { return 1.0f / (1.0f + expf(-x)); }

template <Unit kUnit, class T>
__device__ float value_at(float x, T type) {
  static_assert(kUnit == Unit::kGelu || kUnit == Unit::kQuickGelu);
  return x * (kUnit == Unit::kGelu ? normal_of(x, type).x : sigmoid_of(kQuickScale * x, type));
}

template <Unit kUnit, class T>
__device__ float derivative_at(float x, T type) {
  static_assert(kUnit == Unit::kGelu || kUnit == Unit::kQuickGelu);
  if constexpr (kUnit == Unit::kGelu) {
    constexpr float kDensity = 0.3989422804014327f;  // 1 / sqrt(2π)
    const float2 normal = normal_of(x, type);
    return fmaf(kDensity * x, normal.y, normal.x);
  } else {
    const float sigmoid = sigmoid_of(kQuickScale * x, type);
    return fmaf(kQuickScale * x * sigmoid, 1.0f - sigmoid, sigmoid);
  }
}

template <class T, Unit kUnit>
__global__ void __launch_bounds__(kThreads) activate_kernel(const T* x, T* y, int64_t vectors) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads * kActivateVectors + threadIdx.x;
  Pack<T, kVector<T>> read[kActivateVectors];
#pragma unroll
  for (int k = 0; k < kActivateVectors; ++k)
    if (const auto at = first + k * kThreads; at < vectors) read[k] = load<kVector<T>>(x + at * kVector<T>);
#pragma unroll
  for (int k = 0; k < kActivateVectors; ++k) {
    if (const auto at = first + k * kThreads; at < vectors) {
      float values[kVector<T>];
      unpack(read[k], values);
#pragma unroll
      for (float& value : values) value = value_at<kUnit>(value, T{});
      store(y + at * kVector<T>, values);
    }
  }
}

// The part of a matrix that a block processes: a slab of columns, 16 bytes per lane, and every gridDim.y-th
// group of rows, so that all blocks move through the matrix together.
template <class T, int kRows>
struct Walk {
  static constexpr int kWarps = kThreads / 32, kStep = kWarps * kRows;
  int column, cols, warp;
  int64_t rows;

  __device__ Walk(int slab, int64_t rows, int64_t cols)
      : column((slab * 32 + static_cast<int>(threadIdx.x) % 32) * kVector<T>),
        cols(static_cast<int>(cols)),
        warp(static_cast<int>(threadIdx.x) / 32),
        rows(rows) {}
  __device__ bool inside() const { return column < cols; }
  __device__ int64_t first() const { return static_cast<int64_t>(blockIdx.y) * kStep + warp; }
  __device__ int64_t step() const { return static_cast<int64_t>(gridDim.y) * kStep; }

  // Writes the column sums of the block: adds those of its warps, in their order.
  __device__ void write_sums(const float (&sums)[kVector<T>], float* to) const {
    __shared__ alignas(32) float shared[kWarps][32 * kVector<T>];
    store(&shared[warp][threadIdx.x % 32 * kVector<T>], sums);
    __syncthreads();
    const int begin = column - static_cast<int>(threadIdx.x) % 32 * kVector<T>;
    for (int i = static_cast<int>(threadIdx.x); i < 32 * kVector<T> && begin + i < cols; i += kThreads) {
      float total = 0;
#pragma unroll
      for (int k = 0; k < kWarps; ++k) total += shared[k][i];
      to[begin + i] = total;
    }
  }
};

template <class T, Unit kUnit>
__global__ void __launch_bounds__(kThreads, kGradientBlocks)
    activate_backward_kernel(const T* x, const T* dy, T* dx, int64_t rows, int64_t cols, float* partials) {
  const Walk<T, kGradientRows> walk(blockIdx.x, rows, cols);
  float sums[kVector<T>] = {};
  if (walk.inside()) {
    for (int64_t first = walk.first(); first < rows; first += walk.step()) {
      Pack<T, kVector<T>> read[kGradientRows], gradient[kGradientRows];
#pragma unroll
      for (int k = 0; k < kGradientRows; ++k) {
        if (const auto row = first + k * walk.kWarps; row < rows) {
          read[k] = load<kVector<T>>(x + row * cols + walk.column);
          gradient[k] = load<kVector<T>>(dy + row * cols + walk.column);
        }
      }
#pragma unroll
      for (int k = 0; k < kGradientRows; ++k) {
        if (const auto row = first + k * walk.kWarps; row < rows) {
          float values[kVector<T>], inputs[kVector<T>];
          unpack(read[k], inputs);
          unpack(gradient[k], values);
#pragma unroll
          for (int i = 0; i < kVector<T>; ++i) {
            values[i] *= derivative_at<kUnit>(inputs[i], T{});
            sums[i] += values[i];
          }
          store(dx + row * cols + walk.column, values);
        }
      }
    }
  }
  walk.write_sums(sums, partials + static_cast<int64_t>(blockIdx.y) * cols);
}

template <class T>
__global__ void __launch_bounds__(kThreads, kColumnBlocks)
    column_sums_kernel(const ColumnSums args, int slabs, float* partials) {
  const int part = static_cast<int>(blockIdx.x) / slabs;
  const Walk<T, kColumnRows> walk(static_cast<int>(blockIdx.x) % slabs, args.rows, args.cols);
  const auto* from = static_cast<const T*>(part == 0   ? args.from[0]
                                           : part == 1 ? args.from[1]
                                                       : args.from[2]);
  const int64_t stride = part == 0 ? args.stride[0] : part == 1 ? args.stride[1] : args.stride[2];
  float sums[kVector<T>] = {};
  if (walk.inside()) {
    for (int64_t first = walk.first(); first < args.rows; first += walk.step()) {
      Pack<T, kVector<T>> read[kColumnRows];
#pragma unroll
      for (int k = 0; k < kColumnRows; ++k)
        if (const auto row = first + k * walk.kWarps; row < args.rows)
          read[k] = load<kVector<T>>(from + row * stride + walk.column);
#pragma unroll
      for (int k = 0; k < kColumnRows; ++k) {
        if (const auto row = first + k * walk.kWarps; row < args.rows) {
          float values[kVector<T>];
          unpack(read[k], values);
          if (args.beside != nullptr)
            store(static_cast<T*>(args.beside) + (row * args.parts + part) * args.cols + walk.column, values);
#pragma unroll
          for (int i = 0; i < kVector<T>; ++i) sums[i] += values[i];
        }
      }
    }
  }
  walk.write_sums(sums, partials + (static_cast<int64_t>(blockIdx.y) * args.parts + part) * args.cols);
}

int64_t ceil_divide(int64_t a, int64_t b) { return (a + b - 1) / b; }

void combine(const float* partials, int64_t count, int64_t width, int64_t cols, const Combined& results,
             cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(ceil_divide(width, 32));
  combine_kernel<<<blocks, dim3(32, kCombineLanes), 0, stream>>>(
      partials, static_cast<int>(count), static_cast<int>(width), static_cast<int>(cols), results);
  check_launch();
}

template <int kValue>
using Constant = std::integral_constant<int, kValue>;

// Calls f(T{}) with the type of the branch.
template <class F>
void with_type(DType type, F f) {
  if (type == DType::kBFloat16)
    f(__nv_bfloat16{});
  else if (type == DType::kFloat32)
    f(float{});
  else
    throw std::runtime_error("[tpgm] the transformer's CUDA kernels take float and bfloat16");
}

template <class F>
void with_unit(Unit unit, F f) {
  switch (unit) {
    case Unit::kGelu:
      return f(std::integral_constant<Unit, Unit::kGelu>{});
    case Unit::kQuickGelu:
      return f(std::integral_constant<Unit, Unit::kQuickGelu>{});
  }
}

// Calls f with the least of the constants that is not less than `number`.
template <int kFirst, int... kRest, class F>
void rounded_up(int64_t number, F f) {
  if constexpr (sizeof...(kRest) > 0) {
    if (number > kFirst) return rounded_up<kRest...>(number, f);
  }
  f(Constant<kFirst>{});
}

constexpr int64_t kMostNormCols = 2048;

void add_layer_norm(const AddLayerNorm& args, void* stream) {
  if (args.rows == 0) return;
  with_type(args.types.branch, [&](auto type) {
    rounded_up<2, 4, 6, 8, 10, 12, 16>(ceil_divide(args.cols, 128), [&](auto fours) {
      const auto blocks = static_cast<unsigned>(ceil_divide(args.rows, kForwardThreads / 32));
      add_layer_norm_kernel<decltype(type), decltype(fours)::value>
          <<<blocks, kForwardThreads, 0, static_cast<cudaStream_t>(stream)>>>(args);
    });
  });
  check_launch();
}

void add_layer_norm_backward(const AddLayerNormBackward& args, void* scratch, void* stream) {
  auto* partials = static_cast<float*>(scratch);
  int64_t blocks = 0;
  with_type(args.types.branch, [&](auto type) {
    const auto launch = [&](auto fours, auto warps) {
      constexpr int kFours = decltype(fours)::value, kWarps = decltype(warps)::value;
      constexpr int kTeams = kBackwardThreads<kFours, kWarps> / (32 * kWarps);
      blocks = std::min<int64_t>({multiprocessors(), ceil_divide(args.rows, kTeams), kMaxPartials});
      if (blocks > 0) {
        const auto bytes = static_cast<size_t>(kTeams * args.cols) * sizeof(float);
        add_layer_norm_backward_kernel<decltype(type), kFours, kWarps>
            <<<static_cast<unsigned>(blocks), kBackwardThreads<kFours, kWarps>, bytes,
               static_cast<cudaStream_t>(stream)>>>(args, partials);
        check_launch();
      }
    };
    const auto fours = ceil_divide(args.cols, 128);
    if (fours <= 8)
      rounded_up<2, 4, 6, 8>(fours, [&](auto count) { launch(count, Constant<1>{}); });
    else
      rounded_up<6, 8>(ceil_divide(fours, 2), [&](auto count) { launch(count, Constant<2>{}); });
  });
  combine(partials, blocks, 3 * args.cols, args.cols,
          {{static_cast<float*>(args.d_weight), static_cast<float*>(args.d_shift),
            static_cast<float*>(args.d_bias)}},
          static_cast<cudaStream_t>(stream));
}

void activate(const Activate& args, void* stream) {
  with_type(args.dtype, [&](auto type) {
    using T = decltype(type);
    const auto vectors = args.rows * args.cols / kVector<T>;
    const auto blocks = static_cast<unsigned>(ceil_divide(vectors, kThreads * kActivateVectors));
    if (blocks > 0) {
      with_unit(args.unit, [&](auto unit) {
        activate_kernel<T, decltype(unit)::value><<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
            static_cast<const T*>(args.x), static_cast<T*>(args.y), vectors);
      });
      check_launch();
    }
  });
}

// The number of blocks that share the rows of a slab, such that all slabs together fill the GPU once.
int64_t blocks_per_slab(int64_t slabs, int per_multiprocessor, int64_t rows, int rows_at_once) {
  const auto fitting =
      static_cast<int64_t>(multiprocessors()) * per_multiprocessor / std::max<int64_t>(1, slabs);
  return std::clamp<int64_t>(fitting, 1, std::min<int64_t>(kMaxPartials, ceil_divide(rows, rows_at_once)));
}

void activate_backward(const Activate& args, void* scratch, void* stream) {
  auto* partials = static_cast<float*>(scratch);
  int64_t blocks = 0;
  with_type(args.dtype, [&](auto type) {
    using T = decltype(type);
    const auto slabs = ceil_divide(args.cols, 32 * kVector<T>);
    if (args.rows > 0) {
      blocks = blocks_per_slab(slabs, kGradientBlocks, args.rows, Walk<T, kGradientRows>::kStep);
      const dim3 grid(static_cast<unsigned>(slabs), static_cast<unsigned>(blocks));
      with_unit(args.unit, [&](auto unit) {
        activate_backward_kernel<T, decltype(unit)::value>
            <<<grid, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
                static_cast<const T*>(args.x), static_cast<const T*>(args.dy), static_cast<T*>(args.y),
                args.rows, args.cols, partials);
      });
      check_launch();
    }
  });
  combine(partials, blocks, args.cols, args.cols, {{static_cast<float*>(args.d_bias), nullptr, nullptr}},
          static_cast<cudaStream_t>(stream));
}

void column_sums(const ColumnSums& args, void* scratch, void* stream) {
  auto* partials = static_cast<float*>(scratch);
  int64_t blocks = 0;
  with_type(args.dtype, [&](auto type) {
    using T = decltype(type);
    const auto slabs = ceil_divide(args.cols, 32 * kVector<T>);
    if (args.rows > 0) {
      blocks = blocks_per_slab(slabs * args.parts, kColumnBlocks, args.rows, Walk<T, kColumnRows>::kStep);
      const dim3 grid(static_cast<unsigned>(slabs * args.parts), static_cast<unsigned>(blocks));
      column_sums_kernel<T>
          <<<grid, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(args, static_cast<int>(slabs), partials);
      check_launch();
    }
  });
  const auto width = args.parts * args.cols;
  combine(partials, blocks, width, width, {{static_cast<float*>(args.sums), nullptr, nullptr}},
          static_cast<cudaStream_t>(stream));
}

int64_t scratch_bytes(int64_t cols, int sums) {
  return kMaxPartials * cols * sums * static_cast<int64_t>(sizeof(float));
}

}  // namespace

const ResidualBackend& residual_cuda() {
  static const ResidualBackend backend{
      8,        kMostNormCols,     scratch_bytes, add_layer_norm, add_layer_norm_backward,
      activate, activate_backward, column_sums};
  return backend;
}

}  // namespace tpgm::kernels
