// Ordered dictionaries of tensors (state dicts, anchors, checkpoints) and of numbers (radii).
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/ordered_dict.h>

#include <string>

namespace tpgm {

using NamedTensors = torch::OrderedDict<std::string, at::Tensor>;
using NamedNumbers = torch::OrderedDict<std::string, double>;

}  // namespace tpgm
