// Sizes of the tensors in a file.
#include "tpgm/io/tensor_entry.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "tpgm/base/untrusted.h"

namespace tpgm {

int64_t TensorEntry::numel() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

int64_t bytes_of_shape(const std::vector<int64_t>& shape, at::ScalarType dtype) {
  auto bytes = static_cast<int64_t>(c10::elementSize(dtype));
  for (const int64_t extent : shape) {
    require(extent >= 0 && !__builtin_mul_overflow(bytes, std::max<int64_t>(extent, 1), &bytes),
            "its shape [{}] is negative or overflows 64 bits",
            printable(fmt::format("{}", fmt::join(shape, ","))));
  }
  return bytes;
}

}  // namespace tpgm
