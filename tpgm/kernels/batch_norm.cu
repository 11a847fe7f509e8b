// BatchNorm, ReLU and pooling on CUDA.
//
// A thread owns 16 bytes of channels and walks over pixels, so that parameters and sums of channels stay in
// its registers. All blocks walk together from one end of the feature maps to the other. The second pass over
// a feature map walks backwards, because what the first pass read last is still in the cache.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <stdexcept>

#include "tpgm/kernels/batch_norm.h"
#include "tpgm/kernels/launch.cuh"
#include "tpgm/kernels/vector.cuh"

namespace tpgm::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kReduceBlocks = 3, kBlocks = 4;  // per multiprocessor
constexpr int kLanes = 32;                     // the most threads along the channels

struct Shape {
  int rows;    // pixels of all images
  int groups;  // vectors of channels
  int lanes;   // threads along the channels
  int height, width;
};

// The work of a thread: a vector of channels, and the pixels first, first + step, ...
struct Place {
  int group, first, step;
  bool works;
};

__device__ Place place_of(const Shape& shape) {
  const int lane = static_cast<int>(threadIdx.x) % shape.lanes,
            row = static_cast<int>(threadIdx.x) / shape.lanes;
  const int at_once = kThreads / shape.lanes;
  const int group = static_cast<int>(blockIdx.x) * shape.lanes + lane;
  return {group, static_cast<int>(blockIdx.y) * at_once + row, static_cast<int>(gridDim.y) * at_once,
          row < at_once && group < shape.groups};
}

template <class T>
__device__ Vector<T> load(const T* from, const Shape& shape, int row, int group) {
  return *reinterpret_cast<const Vector<T>*>(from +
                                             (static_cast<int64_t>(row) * shape.groups + group) * kVector<T>);
}

template <class T>
__device__ void store(T* to, const Shape& shape, int row, int group, const Vector<T>& pack) {
  *reinterpret_cast<Vector<T>*>(to + (static_cast<int64_t>(row) * shape.groups + group) * kVector<T>) = pack;
}

__device__ float as_float(float value) { return value; }
__device__ float as_float(__nv_bfloat16 value) { return __bfloat162float(value); }
template <class T>
__device__ T as(float value) {
  return static_cast<T>(value);
}

// Loads the parameters of a thread's channels.
template <int kWidth>
__device__ void load_channels(float (&to)[kWidth], const float* from, int group) {
#pragma unroll
  for (int j = 0; j < kWidth; ++j) to[j] = __ldg(from + group * kWidth + j);
}

struct ChannelParameters {
  const float *weight, *bias, *mean, *variance;
  float eps;
};

// norm(x) = scale · x + shift.
template <int kWidth>
__device__ void affine(const ChannelParameters& norm, int group, float (&scale)[kWidth],
                       float (&shift)[kWidth]) {
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    const int channel = group * kWidth + j;
    scale[j] = 1;
    shift[j] = __ldg(norm.bias + channel);
    if (norm.weight != nullptr) {
      scale[j] = __ldg(norm.weight + channel) * rsqrtf(__ldg(norm.variance + channel) + norm.eps);
      shift[j] = fmaf(-__ldg(norm.mean + channel), scale[j], shift[j]);
    }
  }
}

// Adds the sums of all threads of a block and writes them to parts[block][which][channel].
template <int kWidth>
__device__ void write_part(float (&sums)[kWidth], const Shape& shape, const Place& place, float* parts,
                           int which) {
  __shared__ float shared[kThreads * kWidth];
  const int used = kThreads / shape.lanes * shape.lanes;  // threads that belong to a row
  __syncthreads();
#pragma unroll
  for (int j = 0; j < kWidth; ++j)
    if (static_cast<int>(threadIdx.x) < used) shared[threadIdx.x * kWidth + j] = place.works ? sums[j] : 0.f;
  __syncthreads();
  const int across = shape.lanes * kWidth;
  const int channels = shape.groups * kWidth;
  for (int i = threadIdx.x; i < across; i += kThreads) {
    const int channel = static_cast<int>(blockIdx.x) * across + i;
    if (channel >= channels) continue;
    float total = 0;
    for (int at = i; at < used * kWidth; at += across) total += shared[at];
    parts[(static_cast<int64_t>(blockIdx.y) * 2 + which) * channels + channel] = total;
  }
}

// Calls use(row, load_row(row)) for all rows of a thread, kUnroll at a time so that their loads overlap.
template <int kUnroll, bool kBackwards, class Load, class Use>
__device__ void walk(int rows, const Place& place, Load load_row, Use use) {
  if (!place.works) return;
  const auto at = [&](int i) { return kBackwards ? rows - 1 - i : i; };
  int i = place.first;
  for (; i < rows - (kUnroll - 1) * place.step; i += kUnroll * place.step) {
    decltype(load_row(0)) loaded[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) loaded[u] = load_row(at(i + u * place.step));
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) use(at(i + u * place.step), loaded[u]);
  }
  for (; i < rows; i += place.step) use(at(i), load_row(at(i)));
}

// Sums of x − x₀ and (x − x₀)², with x₀ the first value of the channel. Without x₀ the variance would be lost
// to rounding in feature maps with a large mean.
template <class T>
__global__ void __launch_bounds__(kThreads, kReduceBlocks)
    statistics_kernel(const T* x, Shape shape, float* parts) {
  constexpr int kWidth = kVector<T>;
  const Place place = place_of(shape);
  float first[kWidth], sum[kWidth]{}, squares[kWidth]{};
  if (place.works) {
    const auto pack = load(x, shape, 0, place.group);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) first[j] = as_float(pack.at[j]);
  }
  walk<4, true>(
      shape.rows, place, [&](int row) { return load(x, shape, row, place.group); },
      [&](int, const Vector<T>& pack) {
#pragma unroll
        for (int j = 0; j < kWidth; ++j) {
          const float from_first = as_float(pack.at[j]) - first[j];
          sum[j] += from_first;
          squares[j] = fmaf(from_first, from_first, squares[j]);
        }
      });
  write_part(sum, shape, place, parts, 0);
  write_part(squares, shape, place, parts, 1);
}

constexpr int kFinishChannels = 32, kFinishParts = 32;

// The two sums of a channel over all blocks, in the threads with part 0.
__device__ double2 sum_parts(const float* parts, int chunks, int channels, int channel) {
  __shared__ double2 shared[kFinishParts][kFinishChannels];
  double2 total{0, 0};
  if (channel < channels) {
#pragma unroll 8
    for (int chunk = threadIdx.y; chunk < chunks; chunk += kFinishParts) {
      const float* part = parts + static_cast<int64_t>(chunk) * 2 * channels + channel;
      total.x += part[0];
      total.y += part[channels];
    }
  }
  shared[threadIdx.y][threadIdx.x] = total;
  __syncthreads();
  if (threadIdx.y == 0) {
    for (int part = 1; part < kFinishParts; ++part) {
      total.x += shared[part][threadIdx.x].x;
      total.y += shared[part][threadIdx.x].y;
    }
  }
  return total;
}

template <class T>
__global__ void __launch_bounds__(kFinishChannels* kFinishParts)
    finish_statistics_kernel(const T* x, const float* parts, int chunks, int channels, double rows,
                             float* mean, float* variance, Running running) {
  const int channel = static_cast<int>(blockIdx.x) * kFinishChannels + static_cast<int>(threadIdx.x);
  const double2 sums = sum_parts(parts, chunks, channels, channel);
  if (threadIdx.y != 0 || channel >= channels) return;
  const double from_first = sums.x / rows;
  const double mu = as_float(x[channel]) + from_first;
  const double squares = sums.y / rows - from_first * from_first;
  const double sigma2 = squares < 0 ? 0 : squares;  // not fmax, which hides a NaN
  mean[channel] = static_cast<float>(mu);
  variance[channel] = static_cast<float>(sigma2);
  if (running.mean != nullptr) {
    const double unbiased = rows > 1 ? sigma2 * rows / (rows - 1) : sigma2;
    auto &mean_now = static_cast<float*>(running.mean)[channel],
         &variance_now = static_cast<float*>(running.variance)[channel];
    mean_now = static_cast<float>(mean_now + running.momentum * (mu - mean_now));
    variance_now = static_cast<float>(variance_now + running.momentum * (unbiased - variance_now));
    if (channel == 0) ++*running.batches;
  }
}

__global__ void __launch_bounds__(kFinishChannels* kFinishParts)
    finish_backward_kernel(const float* parts, int chunks, int channels, ChannelParameters norm,
                           float* dweight, float* dbias) {
  const int channel = static_cast<int>(blockIdx.x) * kFinishChannels + static_cast<int>(threadIdx.x);
  const double2 sums = sum_parts(parts, chunks, channels, channel);
  if (threadIdx.y != 0 || channel >= channels) return;
  dbias[channel] = static_cast<float>(sums.x);
  if (dweight != nullptr)
    dweight[channel] = static_cast<float>(sums.y * rsqrtf(norm.variance[channel] + norm.eps));
}

template <class T, bool kResidual, bool kRelu>
__global__ void __launch_bounds__(kThreads, 4)
    forward_kernel(const T* x, const T* residual, Shape shape, ChannelParameters norm, T* y, uint8_t* trace) {
  constexpr int kWidth = kVector<T>;
  const Place place = place_of(shape);
  if (!place.works) return;
  float scale[kWidth], shift[kWidth];
  affine(norm, place.group, scale, shift);
  struct Loaded {
    Vector<T> x, residual;
  };
  walk<4, false>(
      shape.rows, place,
      [&](int row) {
        Loaded loaded;
        loaded.x = load(x, shape, row, place.group);
        if constexpr (kResidual) loaded.residual = load(residual, shape, row, place.group);
        return loaded;
      },
      [&](int row, const Loaded& loaded) {
        Vector<T> result;
        unsigned positive = 0;
#pragma unroll
        for (int j = 0; j < kWidth; ++j) {
          float value = fmaf(as_float(loaded.x.at[j]), scale[j], shift[j]);
          if constexpr (kResidual) {
            value += as_float(loaded.residual.at[j]);
            positive |= (value <= 0 ? 0u : 1u) << j;
          }
          // Not fmaxf, which hides a NaN.
          result.at[j] = as<T>(kRelu && value <= 0 ? 0.f : value);
        }
        store(y, shape, row, place.group, result);
        if (kResidual && trace != nullptr)
          trace[static_cast<int64_t>(row) * shape.groups + place.group] = static_cast<uint8_t>(positive);
      });
}

template <int kWidth>
struct alignas(kWidth) Bytes {
  uint8_t at[kWidth];
};

constexpr uint8_t kNoPixel = 255;  // no value in a window was above zero

// `shape` is that of the pooled feature map; height and width are those of x.
template <class T, Pool kPool>
__global__ void __launch_bounds__(kThreads, kReduceBlocks)
    pooled_forward_kernel(const T* x, Shape shape, int height, int width, ChannelParameters norm, T* y,
                          uint8_t* trace) {
  constexpr int kWidth = kVector<T>;
  constexpr int kSide = kPool == Pool::kMax ? 3 : 2, kPad = kPool == Pool::kMax ? 1 : 0;
  const Place place = place_of(shape);
  if (!place.works) return;
  float scale[kWidth], shift[kWidth];
  affine(norm, place.group, scale, shift);
  for (int row = place.first; row < shape.rows; row += place.step) {
    const int column = row % shape.width, line = row / shape.width % shape.height,
              image = row / (shape.width * shape.height);
    Vector<T> loaded[kSide * kSide];
#pragma unroll
    for (int k = 0; k < kSide * kSide; ++k) {
      const int h = line * 2 - kPad + k / kSide, w = column * 2 - kPad + k % kSide;
      // A pixel outside of the feature map is replaced by one inside, which does not change the maximum.
      const int inside = (image * height + min(max(h, 0), height - 1)) * width + min(max(w, 0), width - 1);
      loaded[k] = load(x, shape, inside, place.group);
    }
    float best[kWidth]{};
    Bytes<kWidth> where;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) where.at[j] = kNoPixel;
#pragma unroll
    for (int k = 0; k < kSide * kSide; ++k) {
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        float value = fmaf(as_float(loaded[k].at[j]), scale[j], shift[j]);
        value = as_float(as<T>(value <= 0 ? 0.f : value));
        if constexpr (kPool == Pool::kMean) {
          best[j] += value;
        } else {
          const int h = line * 2 - kPad + k / kSide, w = column * 2 - kPad + k % kSide;
          const bool inside = h >= 0 && h < height && w >= 0 && w < width;
          if (inside && (value > best[j] || isnan(value))) {
            best[j] = value;
            where.at[j] = static_cast<uint8_t>(k);
          }
        }
      }
    }
    Vector<T> result;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) result.at[j] = as<T>(kPool == Pool::kMean ? best[j] * 0.25f : best[j]);
    store(y, shape, row, place.group, result);
    if (kPool == Pool::kMax && trace != nullptr)
      *reinterpret_cast<Bytes<kWidth>*>(trace + (static_cast<int64_t>(row) * shape.groups + place.group) *
                                                    kWidth) = where;
  }
}

// How the gradient of the ReLU's input follows from that of y.
enum class Undo {
  kNothing,  // there is no ReLU
  kSign,     // ReLU: the sign of norm(x), computed again
  kTrace,    // addition and ReLU: a bit per element, set where the sum was positive
  kMax,      // ReLU and max pooling: a byte per element of y, the place of the largest pixel
  kMean,     // ReLU and mean pooling: the sign of norm(x), computed again
};

struct Gradient {
  const void *dy, *dy_second;
  const uint8_t* trace;
};

// dy + dy_second at a pixel of y, rounded as if the sum were stored as a tensor.
template <class T>
__device__ Vector<T> both_gradients(const Gradient& from, const Shape& shape, int row, int group) {
  auto sum = load(static_cast<const T*>(from.dy), shape, row, group);
  if (from.dy_second != nullptr) {
    const auto second = load(static_cast<const T*>(from.dy_second), shape, row, group);
#pragma unroll
    for (int j = 0; j < kVector<T>; ++j) sum.at[j] = as<T>(as_float(sum.at[j]) + as_float(second.at[j]));
  }
  return sum;
}

template <Undo kUndo>
constexpr bool kPooled = kUndo == Undo::kMax || kUndo == Undo::kMean;

// The pixels of x that a thread processes at a time: one, or the 2×2 that are in the same windows.
template <Undo kUndo>
constexpr int kCell = kPooled<kUndo> ? 4 : 1;

template <class T, Undo kUndo>
struct Cell {
  Vector<T> x[kCell<kUndo>], gradient[kCell<kUndo>];  // the gradient of the ReLU's output
  int pixel[kCell<kUndo>];                            // -1: outside of the feature map
  unsigned positive;
};

// For kMax: adds the gradients of the window at (line, column) and of its neighbors below and to the right,
// each to the pixel that was the largest of its window.
template <class T>
__device__ void scatter_windows(const Gradient& from, const Shape& shape, int image, int line, int column,
                                int group, Vector<T> (&to)[4]) {
  constexpr int kWidth = kVector<T>;
  const int height = (shape.height + 1) / 2, width = (shape.width + 1) / 2;
  float sum[4][kWidth]{};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      if (line + i >= height || column + j >= width) continue;
      const int window = (image * height + line + i) * width + column + j;
      const auto gradient = both_gradients<T>(from, shape, window, group);
      const auto where = *reinterpret_cast<const Bytes<kWidth>*>(
          from.trace + (static_cast<int64_t>(window) * shape.groups + group) * kWidth);
#pragma unroll
      for (int p = i; p < 2; ++p) {
#pragma unroll
        for (int q = j; q < 2; ++q) {
          const int mine = (p - 2 * i + 1) * 3 + q - 2 * j + 1;  // the place of the pixel in this window
#pragma unroll
          for (int k = 0; k < kWidth; ++k)
            sum[p * 2 + q][k] += where.at[k] == mine ? as_float(gradient.at[k]) : 0.f;
        }
      }
    }
  }
#pragma unroll
  for (int pixel = 0; pixel < 4; ++pixel) {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) to[pixel].at[k] = as<T>(sum[pixel][k]);
  }
}

// kX: load x, too.
template <class T, Undo kUndo, bool kX = true>
__device__ Cell<T, kUndo> load_cell(const T* x, const Gradient& from, const Shape& shape, int cell,
                                    int group) {
  Cell<T, kUndo> loaded;
  if constexpr (!kPooled<kUndo>) {
    loaded.pixel[0] = cell;
    if constexpr (kX) loaded.x[0] = load(x, shape, cell, group);
    loaded.gradient[0] = both_gradients<T>(from, shape, cell, group);
    if constexpr (kUndo == Undo::kTrace)
      loaded.positive = __ldg(from.trace + static_cast<int64_t>(cell) * shape.groups + group);
  } else {
    const int cells_high = (shape.height + 1) / 2, cells_wide = (shape.width + 1) / 2;
    const int column = cell % cells_wide, line = cell / cells_wide % cells_high,
              image = cell / (cells_wide * cells_high);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int h = 2 * line + k / 2, w = 2 * column + k % 2;
      loaded.pixel[k] =
          h < shape.height && w < shape.width ? (image * shape.height + h) * shape.width + w : -1;
      if (kX && loaded.pixel[k] >= 0) loaded.x[k] = load(x, shape, loaded.pixel[k], group);
    }
    if constexpr (kUndo == Undo::kMax) {
      scatter_windows(from, shape, image, line, column, group, loaded.gradient);
    } else {
      const int height = shape.height / 2, width = shape.width / 2;
      Vector<T> quarter{};
      if (line < height && column < width) {
        quarter = both_gradients<T>(from, shape, (image * height + line) * width + column, group);
#pragma unroll
        for (int j = 0; j < kVector<T>; ++j) quarter.at[j] = as<T>(as_float(quarter.at[j]) * 0.25f);
      }
#pragma unroll
      for (int k = 0; k < 4; ++k) loaded.gradient[k] = quarter;
    }
  }
  return loaded;
}

template <Undo kUndo>
__device__ bool passes(unsigned positive, int j, float x, float scale, float shift) {
  if constexpr (kUndo == Undo::kTrace) return (positive >> j & 1u) != 0;
  if constexpr (kUndo == Undo::kSign || kUndo == Undo::kMean) return !(fmaf(x, scale, shift) <= 0);
  return true;
}

template <Undo kUndo>
constexpr int kBackwardBlocks = kPooled<kUndo> ? 2 : kReduceBlocks;  // per multiprocessor
template <Undo kUndo>
constexpr int kBackwardUnroll = kPooled<kUndo> ? 1 : 2;

enum class NormIs {
  kOfBatch,  // with the statistics of the batch
  kOfConstants,
  kShift,  // x + bias
};

template <Undo kUndo, NormIs kNorm>
constexpr bool kReadsX = kNorm != NormIs::kShift || kUndo == Undo::kSign || kUndo == Undo::kMean;

// Sums g, the gradient of the ReLU's input, and g · (x − mean) (not for kShift) over all `cells`. Writes g to
// dresidual if there is a residual; with constant statistics it also writes dx, which is g for kShift.
template <class T, Undo kUndo, NormIs kNorm>
__global__ void __launch_bounds__(kThreads, kBackwardBlocks<kUndo>)
    sums_kernel(const T* x, Gradient from, Shape shape, int cells, ChannelParameters norm, T* dresidual,
                T* dx, float* parts) {
  constexpr int kWidth = kVector<T>;
  const Place place = place_of(shape);
  float scale[kWidth], shift[kWidth], mean[kWidth], sum[kWidth]{}, products[kWidth]{};
  if (place.works) {
    affine(norm, place.group, scale, shift);
    if constexpr (kNorm != NormIs::kShift) load_channels(mean, norm.mean, place.group);
  }
  walk<kBackwardUnroll<kUndo>, true>(
      cells, place,
      [&](int cell) { return load_cell<T, kUndo, kReadsX<kUndo, kNorm>>(x, from, shape, cell, place.group); },
      [&](int, const Cell<T, kUndo>& cell) {
#pragma unroll
        for (int k = 0; k < kCell<kUndo>; ++k) {
          if (cell.pixel[k] < 0) continue;
          Vector<T> gradient, result;
#pragma unroll
          for (int j = 0; j < kWidth; ++j) {
            const float at = kReadsX<kUndo, kNorm> ? as_float(cell.x[k].at[j]) : 0.f;
            gradient.at[j] =
                passes<kUndo>(cell.positive, j, at, scale[j], shift[j]) ? cell.gradient[k].at[j] : as<T>(0.f);
            const float g = as_float(gradient.at[j]);
            sum[j] += g;
            if constexpr (kNorm != NormIs::kShift) products[j] = fmaf(g, at - mean[j], products[j]);
            if constexpr (kNorm == NormIs::kOfConstants) result.at[j] = as<T>(g * scale[j]);
          }
          if constexpr (kNorm == NormIs::kShift) {
            if (dx != nullptr) store(dx, shape, cell.pixel[k], place.group, gradient);
            continue;
          }
          if constexpr (kUndo == Undo::kTrace) store(dresidual, shape, cell.pixel[k], place.group, gradient);
          if constexpr (kNorm == NormIs::kOfConstants) store(dx, shape, cell.pixel[k], place.group, result);
        }
      });
  write_part(sum, shape, place, parts, 0);
  if constexpr (kNorm != NormIs::kShift) write_part(products, shape, place, parts, 1);
}

// dx = scale · (g − mean g − (x − mean) · mean(g · x̂) / σ), with g the gradient of the ReLU's input. With a
// residual (kTrace), sums_kernel has written g, and this reads it.
template <class T, Undo kUndo>
__global__ void __launch_bounds__(kThreads, kBackwardBlocks<kUndo>)
    backward_kernel(const T* x, Gradient from, Shape shape, int cells, ChannelParameters norm,
                    const float* dweight, const float* dbias, T* dx) {
  constexpr int kWidth = kVector<T>;
  const Place place = place_of(shape);
  if (!place.works) return;
  float scale[kWidth], shift[kWidth], factor[kWidth], constant[kWidth];
  affine(norm, place.group, scale, shift);
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    const int channel = place.group * kWidth + j;
    const float inverse = rsqrtf(__ldg(norm.variance + channel) + norm.eps);
    const float per_row = 1.f / static_cast<float>(shape.rows);
    factor[j] = -scale[j] * inverse * dweight[channel] * per_row;
    constant[j] = -scale[j] * dbias[channel] * per_row - factor[j] * __ldg(norm.mean + channel);
  }
  walk<kBackwardUnroll<kUndo>, false>(
      cells, place, [&](int cell) { return load_cell<T, kUndo>(x, from, shape, cell, place.group); },
      [&](int, const Cell<T, kUndo>& cell) {
#pragma unroll
        for (int k = 0; k < kCell<kUndo>; ++k) {
          if (cell.pixel[k] < 0) continue;
          Vector<T> result;
#pragma unroll
          for (int j = 0; j < kWidth; ++j) {
            const float at = as_float(cell.x[k].at[j]);
            const float g = passes<kUndo>(cell.positive, j, at, scale[j], shift[j])
                                ? as_float(cell.gradient[k].at[j])
                                : 0.f;
            result.at[j] = as<T>(fmaf(scale[j], g, fmaf(factor[j], at, constant[j])));
          }
          store(dx, shape, cell.pixel[k], place.group, result);
        }
      });
}

// `shape` is that of the pooled feature map; height and width are those of x.
template <class T>
__global__ void __launch_bounds__(kThreads, 4)
    mean_pool_kernel(const T* x, Shape shape, int height, int width, T* y) {
  const Place place = place_of(shape);
  if (!place.works) return;
  for (int row = place.first; row < shape.rows; row += place.step) {
    const int column = row % shape.width, line = row / shape.width % shape.height,
              image = row / (shape.width * shape.height);
    Vector<T> loaded[4], result;
#pragma unroll
    for (int k = 0; k < 4; ++k)
      loaded[k] =
          load(x, shape, (image * height + 2 * line + k / 2) * width + 2 * column + k % 2, place.group);
#pragma unroll
    for (int j = 0; j < kVector<T>; ++j) {
      result.at[j] = as<T>(0.25f * (as_float(loaded[0].at[j]) + as_float(loaded[1].at[j]) +
                                    as_float(loaded[2].at[j]) + as_float(loaded[3].at[j])));
    }
    store(y, shape, row, place.group, result);
  }
}

// `shape` is x's.
template <class T>
__global__ void __launch_bounds__(kThreads, 4) mean_pool_backward_kernel(const T* dy, Shape shape, T* dx) {
  const Place place = place_of(shape);
  if (!place.works) return;
  const int height = shape.height / 2, width = shape.width / 2;
  for (int row = place.first; row < shape.rows; row += place.step) {
    const int column = row % shape.width / 2, line = row / shape.width % shape.height / 2,
              image = row / (shape.width * shape.height);
    Vector<T> result{};
    if (line < height && column < width) {
      result = load(dy, shape, (image * height + line) * width + column, place.group);
#pragma unroll
      for (int j = 0; j < kVector<T>; ++j) result.at[j] = as<T>(as_float(result.at[j]) * 0.25f);
    }
    store(dx, shape, row, place.group, result);
  }
}

// A thread computes one of the `lines` × `columns` pixels of y in an image. Neighboring threads read the
// same lines of x, which are in the cache.
template <class From, int kFrom>
__global__ void __launch_bounds__(kThreads)
    space_to_depth_kernel(const From* x, int height, int width, int front, int lines, int columns,
                          int64_t pixels, __nv_bfloat16* y) {
  const int64_t pixel = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (pixel >= pixels) return;
  const auto row = static_cast<int>(pixel / columns);
  const int column = static_cast<int>(pixel % columns) - front, line = row % lines - front,
            image = row / lines;
  Vector<__nv_bfloat16> result[2]{};
#pragma unroll
  for (int i = 0; i < 4 * kFrom; ++i) {
    const int h = 2 * line + i / kFrom / 2, w = 2 * column + i / kFrom % 2;
    if (h < 0 || h >= height || w < 0 || w >= width) continue;
    const int64_t at = ((static_cast<int64_t>(image) * height + h) * width + w) * kFrom + i % kFrom;
    result[i / 8].at[i % 8] = as<__nv_bfloat16>(as_float(x[at]));
  }
  auto* to = reinterpret_cast<Vector<__nv_bfloat16>*>(y + pixel * SpaceToDepth::kChannels);
  to[0] = result[0];
  to[1] = result[1];
}

int64_t vector(DType dtype) { return dtype == DType::kBFloat16 ? 8 : 4; }

Shape shape_of(const FeatureMap& map) {
  const auto groups = static_cast<int>(map.channels / vector(map.dtype));
  return {static_cast<int>(map.pixels()), groups, std::min(groups, kLanes), static_cast<int>(map.height),
          static_cast<int>(map.width)};
}

Shape pooled_shape(const FeatureMap& map, Pool pool) {
  Shape shape = shape_of(map);
  const int more = pool == Pool::kMax ? 1 : 0;
  shape.height = (shape.height + more) / 2;
  shape.width = (shape.width + more) / 2;
  shape.rows = static_cast<int>(map.images) * shape.height * shape.width;
  return shape;
}

// Enough blocks to fill the device, but no more than there is work for.
dim3 grid_of(const Shape& shape, int rows, int blocks_each) {
  const int tiles = (shape.groups + shape.lanes - 1) / shape.lanes;
  const int at_once = kThreads / shape.lanes;
  const int chunks =
      std::min((rows + at_once - 1) / at_once, std::max(1, multiprocessors() * blocks_each / tiles));
  return {static_cast<unsigned>(tiles), static_cast<unsigned>(std::max(1, chunks)), 1};
}

dim3 finish_grid(const FeatureMap& map) {
  return {static_cast<unsigned>((map.channels + kFinishChannels - 1) / kFinishChannels), 1, 1};
}

ChannelParameters parameters_of(const BatchNormParameters& norm) {
  return {static_cast<const float*>(norm.weight), static_cast<const float*>(norm.bias),
          static_cast<const float*>(norm.mean), static_cast<const float*>(norm.variance),
          static_cast<float>(norm.eps)};
}

// Calls call(T{}) with the type of the feature maps.
template <class Call>
void with_type(DType dtype, Call call) {
  if (dtype == DType::kBFloat16)
    call(__nv_bfloat16{});
  else if (dtype == DType::kFloat32)
    call(float{});
  else
    throw std::runtime_error("[tpgm] BatchNorm on CUDA takes bfloat16 and float32 maps");
}

int64_t trace_bytes(const FeatureMap& map, bool residual, Pool pool) {
  if (pool == Pool::kMax) return map.images * ((map.height + 1) / 2) * ((map.width + 1) / 2) * map.channels;
  return residual ? map.pixels() * map.channels / vector(map.dtype) : 0;
}

int64_t scratch_bytes(const FeatureMap& map) {
  return static_cast<int64_t>(grid_of(shape_of(map), static_cast<int>(map.pixels()), kReduceBlocks).y) * 2 *
         map.channels * static_cast<int64_t>(sizeof(float));
}

void statistics(const FeatureMap& map, const void* x, void* mean, void* variance, const Running& running,
                void* scratch, void* stream) {
  const Shape shape = shape_of(map);
  const dim3 grid = grid_of(shape, shape.rows, kReduceBlocks);
  auto* parts = static_cast<float*>(scratch);
  auto* on = static_cast<cudaStream_t>(stream);
  with_type(map.dtype, [&](auto type) {
    using T = decltype(type);
    statistics_kernel<T><<<grid, kThreads, 0, on>>>(static_cast<const T*>(x), shape, parts);
    finish_statistics_kernel<T><<<finish_grid(map), dim3(kFinishChannels, kFinishParts), 0, on>>>(
        static_cast<const T*>(x), parts, static_cast<int>(grid.y), static_cast<int>(map.channels),
        static_cast<double>(map.pixels()), static_cast<float*>(mean), static_cast<float*>(variance), running);
  });
  check_launch();
}

void forward(const FeatureMap& map, const BatchNormParameters& norm, const NormForward& call, void* stream) {
  const Shape shape = shape_of(map);
  const ChannelParameters parameters = parameters_of(norm);
  auto* on = static_cast<cudaStream_t>(stream);
  with_type(map.dtype, [&](auto type) {
    using T = decltype(type);
    const auto* x = static_cast<const T*>(call.x);
    const auto* residual = static_cast<const T*>(call.residual);
    auto* y = static_cast<T*>(call.y);
    if (call.pool != Pool::kNone) {
      const Shape small = pooled_shape(map, call.pool);
      const auto kernel = call.pool == Pool::kMax ? &pooled_forward_kernel<T, Pool::kMax>
                                                  : &pooled_forward_kernel<T, Pool::kMean>;
      kernel<<<grid_of(small, small.rows, kReduceBlocks), kThreads, 0, on>>>(
          x, small, shape.height, shape.width, parameters, y, call.trace);
    } else {
      const auto kernel = residual != nullptr ? &forward_kernel<T, true, true>
                          : call.relu         ? &forward_kernel<T, false, true>
                                              : &forward_kernel<T, false, false>;
      kernel<<<grid_of(shape, shape.rows, kBlocks), kThreads, 0, on>>>(x, residual, shape, parameters, y,
                                                                       call.trace);
    }
  });
  check_launch();
}

template <class T, Undo kUndo>
void backward_of(const FeatureMap& map, const ChannelParameters& norm, const NormBackward& call, float* parts,
                 cudaStream_t stream) {
  const Shape shape = shape_of(map);
  const int cells = kPooled<kUndo>
                        ? static_cast<int>(map.images) * ((shape.height + 1) / 2) * ((shape.width + 1) / 2)
                        : shape.rows;
  const dim3 grid = grid_of(shape, cells, kBackwardBlocks<kUndo>);
  const Gradient from{call.dy, call.dy_second, call.trace};
  const auto* x = static_cast<const T*>(call.x);
  auto* dresidual = static_cast<T*>(call.dresidual);
  auto* dx = static_cast<T*>(call.dx);
  auto *dweight = static_cast<float*>(call.dweight), *dbias = static_cast<float*>(call.dbias);
  const auto sums = norm.weight == nullptr  ? &sums_kernel<T, kUndo, NormIs::kShift>
                    : call.batch_statistics ? &sums_kernel<T, kUndo, NormIs::kOfBatch>
                                            : &sums_kernel<T, kUndo, NormIs::kOfConstants>;
  sums<<<grid, kThreads, 0, stream>>>(x, from, shape, cells, norm, dresidual, dx, parts);
  finish_backward_kernel<<<finish_grid(map), dim3(kFinishChannels, kFinishParts), 0, stream>>>(
      parts, static_cast<int>(grid.y), static_cast<int>(map.channels), norm, dweight, dbias);
  if (call.batch_statistics) {
    constexpr Undo kRest = kUndo == Undo::kTrace ? Undo::kNothing : kUndo;
    const Gradient rest = kUndo == Undo::kTrace ? Gradient{dresidual, nullptr, nullptr} : from;
    backward_kernel<T, kRest><<<grid, kThreads, 0, stream>>>(x, rest, shape, cells, norm, dweight, dbias, dx);
  }
  check_launch();
}

void backward(const FeatureMap& map, const BatchNormParameters& norm, const NormBackward& call, void* scratch,
              void* stream) {
  const ChannelParameters parameters = parameters_of(norm);
  auto* parts = static_cast<float*>(scratch);
  auto* on = static_cast<cudaStream_t>(stream);
  with_type(map.dtype, [&](auto type) {
    using T = decltype(type);
    if (call.pool == Pool::kMax) return backward_of<T, Undo::kMax>(map, parameters, call, parts, on);
    if (call.pool == Pool::kMean) return backward_of<T, Undo::kMean>(map, parameters, call, parts, on);
    if (call.residual) return backward_of<T, Undo::kTrace>(map, parameters, call, parts, on);
    return call.relu ? backward_of<T, Undo::kSign>(map, parameters, call, parts, on)
                     : backward_of<T, Undo::kNothing>(map, parameters, call, parts, on);
  });
}

void mean_pool(const FeatureMap& map, const void* x, void* y, void* stream) {
  const Shape shape = shape_of(map), small = pooled_shape(map, Pool::kMean);
  with_type(map.dtype, [&](auto type) {
    using T = decltype(type);
    mean_pool_kernel<T>
        <<<grid_of(small, small.rows, kBlocks), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
            static_cast<const T*>(x), small, shape.height, shape.width, static_cast<T*>(y));
  });
  check_launch();
}

void mean_pool_backward(const FeatureMap& map, const void* dy, void* dx, void* stream) {
  const Shape shape = shape_of(map);
  with_type(map.dtype, [&](auto type) {
    using T = decltype(type);
    mean_pool_backward_kernel<T>
        <<<grid_of(shape, shape.rows, kBlocks), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
            static_cast<const T*>(dy), shape, static_cast<T*>(dx));
  });
  check_launch();
}

template <class From>
auto space_to_depth_of(int64_t channels) {
  switch (channels) {
    case 1:
      return &space_to_depth_kernel<From, 1>;
    case 2:
      return &space_to_depth_kernel<From, 2>;
    case 3:
      return &space_to_depth_kernel<From, 3>;
    case 4:
      return &space_to_depth_kernel<From, 4>;
    default:
      throw std::runtime_error("[tpgm] space_to_depth takes images of 1 to 4 channels");
  }
}

void space_to_depth(const SpaceToDepth& call, void* stream) {
  if (call.to != DType::kBFloat16)
    throw std::runtime_error("[tpgm] space_to_depth on CUDA makes bfloat16 maps");
  const int64_t pixels = call.images * call.lines() * call.columns();
  const auto blocks = static_cast<unsigned>((pixels + kThreads - 1) / kThreads);
  with_type(call.from, [&](auto type) {
    using From = decltype(type);
    const auto kernel = space_to_depth_of<From>(call.channels);
    kernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const From*>(call.x), static_cast<int>(call.height), static_cast<int>(call.width),
        static_cast<int>(call.front), static_cast<int>(call.lines()), static_cast<int>(call.columns()),
        pixels, static_cast<__nv_bfloat16*>(call.y));
  });
  check_launch();
}

}  // namespace

const BatchNormBackend& batch_norm_cuda() {
  static const BatchNormBackend backend{vector,   trace_bytes, scratch_bytes,      statistics,    forward,
                                        backward, mean_pool,   mean_pool_backward, space_to_depth};
  return backend;
}

}  // namespace tpgm::kernels
