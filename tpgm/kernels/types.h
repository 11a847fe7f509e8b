// What all kernels share: the types of elements, and how to run loops.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>

#ifdef __CUDACC__
#define TPGM_ANYWHERE __host__ __device__
#else
#define TPGM_ANYWHERE
#endif

namespace tpgm::kernels {

enum class DType : uint8_t { kFloat64, kFloat32, kFloat16, kBFloat16 };

/// What elements of type T are computed in.
template <class T>
using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// Runs body(begin, end) over [0, n) on as many threads as it likes.
using ParallelFor = std::function<void(int64_t n, const std::function<void(int64_t, int64_t)>& body)>;

/// Gives memory on a device, aligned for any type, that stays where it is for as long as the one who asked
/// lives: with the `bytes` at `contents`, which is on the host, or zeros where that is null.
using Memory = std::function<void*(size_t bytes, const void* contents)>;

}  // namespace tpgm::kernels
