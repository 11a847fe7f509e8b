// Vector loads and stores, and sums over a warp, for all CUDA kernels.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace tpgm::kernels {

inline constexpr unsigned kAllLanes = 0xffffffffu;

/// How many elements the widest load, 16 bytes, holds.
template <class T>
constexpr int kVector = 16 / sizeof(T);

/// N consecutive elements, read and written at once.
template <class T, int N = kVector<T>>
struct alignas(sizeof(T) * N) Vector {
  T at[N];
};

template <int N, class T>
__device__ Vector<T, N> read(const T* from) {
  return *reinterpret_cast<const Vector<T, N>*>(from);
}

template <class T, int N>
__device__ void write(T* to, const Vector<T, N>& vector) {
  *reinterpret_cast<Vector<T, N>*>(to) = vector;
}

/// Whether N elements can be read at `pointer` at once.
template <int N, class T>
__device__ bool aligned(const T* pointer) {
  return (reinterpret_cast<uintptr_t>(pointer) & (sizeof(T) * N - 1)) == 0;
}

/// The sum over a warp, in a fixed order, in every lane.
__device__ inline float warp_sum(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(kAllLanes, value, offset);
  return value;
}

}  // namespace tpgm::kernels
