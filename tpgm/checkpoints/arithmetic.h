// Converts tensors of any type to types that the kernels know, and measures distances.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

namespace tpgm {

/// The real type for arithmetic on two tensors: their own if they share one that the kernels know, otherwise
/// fp32, or fp64 if fp32 could not hold their values.
at::ScalarType working_type(at::ScalarType a, at::ScalarType b);

/// The vector, contiguous and in a type from working_type(); no copy if it is so already. With `complex`, the
/// result has two elements per number; real numbers get an imaginary part of 0.
at::Tensor working_vector(const at::Tensor& vector, at::ScalarType type, bool complex);

/// ‖a − b‖₂ of two real tensors of one shape, summed in fp64 on the CPU.
double l2_distance(const at::Tensor& a, const at::Tensor& b);

}  // namespace tpgm
