// Selects the parameters that a method constrains, and matches them with their anchor by name.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "tpgm/base/names.h"
#include "tpgm/core/module_view.h"
#include "tpgm/io/named_tensors.h"

namespace tpgm {

/// A constrained tensor of the model and its pre-trained values.
struct Selected {
  std::string name;
  at::Tensor tensor;
  at::Tensor pretrained;
};

/// The trainable parameters of `module` except those that an `exclude` glob matches, in the order of the
/// module, each with the tensor of the same name in `anchor`. Other names in `anchor` are ignored.
///
/// A parameter that the module holds under several names (tied weights) is selected once, under the first;
/// any of its names may exclude it, and any may name its anchor.
///
/// Throws if a glob matches no parameter, a selected parameter has no anchor or one of another shape, tied
/// names have different anchors, or nothing is left to constrain.
std::vector<Selected> select(const ModuleView& module, const NamedTensors& anchor,
                             const std::vector<std::string>& exclude);

/// The same for all parameters, trainable or not, and all floating-point buffers.
std::vector<Selected> select_with_buffers(const ModuleView& module, const NamedTensors& anchor,
                                          const std::vector<std::string>& exclude);

}  // namespace tpgm
