// Where a tensor lies in a file, and how.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tpgm {

/// What a file says of one tensor. Parsers hand out only entries that lie within their file.
struct TensorEntry {
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  ///< in elements, none negative; empty for a contiguous tensor
  size_t offset = 0;             ///< of its first element, in bytes from the beginning of the file
  size_t size = 0;               ///< in bytes, from there to the end of its last element in memory

  int64_t numel() const;
  size_t nbytes() const { return static_cast<size_t>(numel()) * c10::elementSize(dtype); }
};

/// The bytes that a tensor of this shape takes, as if sizes of 0 were 1 (so that its strides fit as well), or
/// Malformed if that overflows.
int64_t bytes_of_shape(const std::vector<int64_t>& shape, at::ScalarType dtype);

}  // namespace tpgm
