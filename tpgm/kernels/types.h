// The types that all kernels share: element types, parallel loops and allocators.
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

/// The type in which kernels compute with elements of type T.
template <class T>
using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// Runs body(begin, end) over parts of [0, n), on any number of threads.
using ParallelFor = std::function<void(int64_t n, const std::function<void(int64_t, int64_t)>& body)>;

/// Allocates device memory, aligned for any type, that must outlive the object it is given to. It holds a
/// copy of the `bytes` at `contents` (host memory), or zeros if `contents` is null.
using Memory = std::function<void*(size_t bytes, const void* contents)>;

}  // namespace tpgm::kernels
