// Things by name, in an order: the one type of that kind in all rooms.
#pragma once

#include <string>

namespace at {
class Tensor;
}  // namespace at

namespace torch {
template <typename Key, typename Value>
class OrderedDict;  // <torch/ordered_dict.h>
}  // namespace torch

namespace tpgm {

using NamedTensors = torch::OrderedDict<std::string, at::Tensor>;
using NamedNumbers = torch::OrderedDict<std::string, double>;

}  // namespace tpgm
