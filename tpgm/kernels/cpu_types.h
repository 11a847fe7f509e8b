// The element types of the CPU kernels. Include it only in .cpp files: LibTorch has 16-bit types of its own.
#pragma once

#include <bit>
#include <stdexcept>

#include "tpgm/kernels/types.h"

#define TPGM_INLINE inline __attribute__((always_inline))

namespace tpgm::kernels {

struct BFloat16 {
  uint16_t bits;
};
using Float16 = _Float16;

template <class C, class T>
TPGM_INLINE C load(T value) {
  if constexpr (std::is_same_v<T, BFloat16>)
    return static_cast<C>(std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16));
  else
    return static_cast<C>(value);
}

template <class T, class C>
TPGM_INLINE T store(C value) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
    const auto rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;  // to nearest, ties to even
    return BFloat16{static_cast<uint16_t>(value == value ? rounded : 0x7fc0u)};
  } else {
    return static_cast<T>(value);
  }
}

/// call(T{}) with float or double, the types of BatchNorm on the CPU.
template <class Call>
void with_float_or_double(DType dtype, Call call) {
  if (dtype == DType::kFloat32)
    call(float{});
  else if (dtype == DType::kFloat64)
    call(double{});
  else
    throw std::runtime_error("[tpgm] BatchNorm on the CPU takes float32 and float64");
}

}  // namespace tpgm::kernels
