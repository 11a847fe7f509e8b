// The types of arithmetic.
#include "tpgm/checkpoints/arithmetic.h"

#include <cmath>

#include "tpgm/core/dtype.h"
#include "tpgm/kernels/projection.h"

namespace tpgm {

at::ScalarType working_type(at::ScalarType a, at::ScalarType b) {
  const bool known = a == at::kDouble || a == at::kFloat || a == at::kHalf || a == at::kBFloat16;
  if (a == b && known) return a;
  const auto narrow = [](at::ScalarType type) {
    return type != at::kDouble && (at::isFloatingType(type) || type == at::kComplexFloat);
  };
  return narrow(a) && narrow(b) ? at::kFloat : at::kDouble;
}

at::Tensor working_vector(const at::Tensor& vector, at::ScalarType type, bool complex) {
  if (!complex) return vector.to(type);
  return vector.to(type == at::kDouble ? at::kComplexDouble : at::kComplexFloat).view(type);
}

double l2_distance(const at::Tensor& a, const at::Tensor& b) {
  const auto type = working_type(a.scalar_type(), b.scalar_type());
  const auto dense = [type](const at::Tensor& tensor) { return tensor.detach().cpu().to(type).contiguous(); };
  const at::Tensor x = dense(a), y = dense(b);
  const auto sums = kernels::pair_sums(x.const_data_ptr(), y.const_data_ptr(), dtype_of(type), x.numel());
  return std::sqrt(sums.difference_squared);
}

}  // namespace tpgm
