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

}  // namespace tpgm
