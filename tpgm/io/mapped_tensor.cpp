// Entries of a file as tensors: views where alignment allows it, otherwise copies.
#include "tpgm/io/mapped_tensor.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>

#include "tpgm/base/untrusted.h"

namespace tpgm {
namespace {

bool aligned(const char* data, at::ScalarType dtype) {
  return reinterpret_cast<uintptr_t>(data) % c10::elementSize(dtype) == 0;
}

void check_bools(const TensorEntry& entry, const char* data, size_t size) {
  if (entry.dtype != at::kBool) return;
  const auto* wrong = std::find_if(data, data + size, [](char byte) { return byte != 0 && byte != 1; });
  require(wrong == data + size, "a bool tensor has a byte other than 0 and 1");
}

// Copies elements [begin, begin + count) in row-major order.
void gather(const TensorEntry& entry, const char* data, int64_t begin, int64_t count, char* into) {
  const size_t element = c10::elementSize(entry.dtype);
  const size_t rank = entry.shape.size();
  std::vector<int64_t> index(rank);
  int64_t at = 0;  // in elements from `data`
  for (size_t d = rank; d-- > 0; begin /= entry.shape[d]) {
    index[d] = begin % entry.shape[d];
    at += index[d] * entry.strides[d];
  }
  for (; count > 0; --count, into += element) {
    std::memcpy(into, data + static_cast<size_t>(at) * element, element);
    for (size_t d = rank; d-- > 0;) {
      at += entry.strides[d];
      if (++index[d] < entry.shape[d]) break;
      at -= index[d] * entry.strides[d];
      index[d] = 0;
    }
  }
}

}  // namespace

at::Tensor tensor_at(const std::shared_ptr<const MappedFile>& file, const TensorEntry& entry) {
  const auto options = at::TensorOptions().dtype(entry.dtype);
  if (entry.size == 0) return at::empty(entry.shape, options);
  char* data = file->data() + entry.offset;
  check_bools(entry, data, entry.size);
  if (!aligned(data, entry.dtype)) {
    return slice_at(file, entry, 0, entry.numel()).view(entry.shape);
  }
  const auto keep_alive = [file](void*) {};
  return entry.strides.empty() ? at::from_blob(data, entry.shape, keep_alive, options)
                               : at::from_blob(data, entry.shape, entry.strides, keep_alive, options);
}

at::Tensor slice_at(const std::shared_ptr<const MappedFile>& file, const TensorEntry& entry, int64_t begin,
                    int64_t count) {
  const auto options = at::TensorOptions().dtype(entry.dtype);
  if (count == 0) return at::empty({0}, options);
  const size_t element = c10::elementSize(entry.dtype);
  char* data = file->data() + entry.offset;
  const bool contiguous = entry.strides.empty();
  if (contiguous) data += static_cast<size_t>(begin) * element;
  if (contiguous && aligned(data, entry.dtype)) {
    check_bools(entry, data, static_cast<size_t>(count));
    return at::from_blob(data, {count}, [file](void*) {}, options);
  }
  at::Tensor copy = at::empty({count}, options);
  auto* into = static_cast<char*>(copy.mutable_data_ptr());
  if (contiguous) {
    std::memcpy(into, data, static_cast<size_t>(count) * element);
  } else {
    gather(entry, data, begin, count, into);
  }
  check_bools(entry, into, static_cast<size_t>(count));
  return copy;
}

}  // namespace tpgm
