// Tensors of a mapped file, without copies where possible.
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

/// A CPU tensor that is a view of the mapping and keeps it alive, with the strides of the entry. Writing to
/// it changes other tensors of this mapping, never the file. If the bytes are not aligned to the dtype, it is
/// a copy. Throws Malformed on a bool that is neither 0 nor 1, because reading it would be undefined
/// behavior.
at::Tensor tensor_at(const std::shared_ptr<const MappedFile>& file, const TensorEntry& entry);

/// Elements [begin, begin + count) of the tensor in row-major order, as a vector. They are a copy only if
/// they are not contiguous and aligned in the file.
at::Tensor slice_at(const std::shared_ptr<const MappedFile>& file, const TensorEntry& entry, int64_t begin,
                    int64_t count);

}  // namespace tpgm
