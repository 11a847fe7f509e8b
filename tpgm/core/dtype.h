// LibTorch's scalar types as the kernels' DType.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include "tpgm/kernels/types.h"

namespace tpgm {

inline kernels::DType dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return kernels::DType::kFloat64;
    case at::kFloat:
      return kernels::DType::kFloat32;
    case at::kHalf:
      return kernels::DType::kFloat16;
    case at::kBFloat16:
      return kernels::DType::kBFloat16;
    default:
      TORCH_CHECK(false, "kernels take float64, float32, float16 and bfloat16 tensors, not ", type);
  }
}

}  // namespace tpgm
