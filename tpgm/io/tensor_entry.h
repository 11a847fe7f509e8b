// The place and layout of a tensor in a file.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tpgm {

/// One tensor of a file. Parsers return only entries that lie within their file.
struct TensorEntry {
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  ///< in elements, none negative; empty for a contiguous tensor
  size_t offset = 0;             ///< byte of the file at which its first element begins
  size_t size = 0;               ///< bytes from there to the end of its last element in memory order

  int64_t numel() const;
  size_t nbytes() const { return static_cast<size_t>(numel()) * c10::elementSize(dtype); }
};

/// The bytes of a tensor of this shape, with sizes of 0 counted as 1 (so that its strides fit as well).
/// Throws Malformed on overflow.
int64_t bytes_of_shape(const std::vector<int64_t>& shape, at::ScalarType dtype);

}  // namespace tpgm
