// Types to compute in.
#include "tpgm/checkpoints/arithmetic.h"

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

}  // namespace tpgm
