// The activations of MLPs, with their keywords.
#pragma once

#include <utility>

#include "tpgm/base/text.h"

namespace tpgm {

enum class Activation {
  kGelu,       // by erf
  kQuickGelu,  // OpenAI's approximation x·sigmoid(1.702x)
};
template <>
struct Keywords<Activation> {
  static constexpr std::pair<Activation, const char*> all[] = {{Activation::kGelu, "gelu"},
                                                               {Activation::kQuickGelu, "quick_gelu"}};
};

}  // namespace tpgm
