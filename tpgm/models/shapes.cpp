#include "tpgm/models/shapes.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <utility>

namespace tpgm {
Shapes::Shapes(const NamedTensors& tensors, std::string prefix)
    : tensors_(tensors), prefix_(std::move(prefix)) {}

bool Shapes::has(const std::string& name) const { return tensors_.contains(prefix_ + name); }

int64_t Shapes::size(const std::string& name, int64_t dimension, int64_t dimensions) const {
  const at::Tensor* tensor = tensors_.find(prefix_ + name);
  TORCH_CHECK(tensor != nullptr, "the tensor for our '", prefix_, name,
              "' is missing: is the checkpoint complete?");
  TORCH_CHECK(tensor->dim() == dimensions && tensor->numel() > 0, "the tensor for our '", prefix_, name,
              "' is ", fmt::format("[{}]", fmt::join(tensor->sizes(), ",")), ", expected ", dimensions,
              " dimensions and elements");
  return tensor->size(dimension);
}

int64_t Shapes::side(const std::string& name) const {
  const int64_t positions = size(name, 0, 2);
  const auto side = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(positions - 1))));
  TORCH_CHECK(side > 0 && side * side == positions - 1, "the tensor for our '", prefix_, name, "' has ",
              positions, " rows, expected one and a square");
  return side;
}

int64_t Shapes::count(const std::string& before, const std::string& after, size_t tensors_of_block) const {
  size_t count = 0;
  while (has(fmt::format("{}{}{}", before, count, after))) ++count;
  TORCH_CHECK(count > 0, "the tensor for our '", prefix_, before, "0", after,
              "' is missing: is the checkpoint complete?");
  // A module takes memory even on kMeta, so a file with few tensors must not claim many blocks.
  TORCH_CHECK(count <= tensors_.size() / tensors_of_block, "there are ", count, " tensors '", prefix_, before,
              "*", after, "', but with ", tensors_.size(),
              " in all not the rest of as many blocks: is the checkpoint complete?");
  return static_cast<int64_t>(count);
}

}  // namespace tpgm
