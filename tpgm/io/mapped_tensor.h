// Tensors that lie in a mapped file: where, and how to get at them without copying.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tpgm/io/file.h"
#include "tpgm/io/tensor_entry.h"

namespace tpgm {

/// A CPU tensor over the mapping, which it keeps alive; strided like the entry. Writing to it changes what
/// others see of this mapping, never the file. Where the bytes are not aligned to the dtype it is a copy.
/// Throws Malformed on a bool that is neither 0 nor 1, which would be undefined behaviour for a reader.
at::Tensor tensor_at(const std::shared_ptr<const MappedFile>& file, const TensorEntry& entry);

/// Elements [begin, begin + count) of the tensor in row-major order, as a vector; memory is allocated for
/// these alone, and only if they are not contiguous and aligned in the file.
at::Tensor slice_at(const std::shared_ptr<const MappedFile>& file, const TensorEntry& entry, int64_t begin,
                    int64_t count);

}  // namespace tpgm
