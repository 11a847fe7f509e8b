// Vectors of any type as vectors the kernels know.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

namespace tpgm {

/// The real type in which two tensors are computed with: their own if it is one and the same that the kernels
/// know, and otherwise fp32, or fp64 where fp32 could not hold their values.
at::ScalarType working_type(at::ScalarType a, at::ScalarType b);

/// A contiguous vector in a type from working_type(); no copy if it is one already. With `complex`, numbers
/// are pairs, and real ones have an imaginary part of 0.
at::Tensor working_vector(const at::Tensor& vector, at::ScalarType type, bool complex);

/// ‖a − b‖₂ of two real tensors of one shape, summed in fp64 on the CPU.
double l2_distance(const at::Tensor& a, const at::Tensor& b);

}  // namespace tpgm
