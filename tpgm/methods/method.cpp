#include "tpgm/methods/method.h"

namespace tpgm {

std::vector<std::string> constrained_by(const Method& method) {
  const auto* has = dynamic_cast<const HasRadii*>(&method);
  return has ? has->constrained() : std::vector<std::string>();
}

NamedNumbers radii_of(const Method& method) {
  const auto* has = dynamic_cast<const HasRadii*>(&method);
  return has ? has->radii() : NamedNumbers();
}

NamedNumbers ratios_of(const Method& method) {
  const auto* has = dynamic_cast<const HasRadii*>(&method);
  return has ? has->ratios() : NamedNumbers();
}

std::optional<HasDiagnosis::Diagnosis> diagnosis_of(Method& method) {
  auto* has = dynamic_cast<HasDiagnosis*>(&method);
  return has ? has->diagnosis() : std::nullopt;
}

}  // namespace tpgm
