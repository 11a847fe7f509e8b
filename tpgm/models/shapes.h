// The shapes of a checkpoint's tensors, from which a family reads its sizes.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/ordered_dict.h>

#include <cstdint>
#include <string>

namespace tpgm {

/// The tensors below a prefix ("visual."), under our names. They come from a file that may be broken, so that
/// each question throws for what is missing or has too few dimensions, with the name.
class Shapes {
 public:
  using Tensors = torch::OrderedDict<std::string, at::Tensor>;

  /// `tensors` must outlive it.
  Shapes(const Tensors& tensors, std::string prefix);

  bool has(const std::string& name) const;
  /// One of the sizes of a tensor that has so many dimensions.
  int64_t size(const std::string& name, int64_t dimension, int64_t dimensions) const;
  /// Of [1 + side², width] positions, the class token's first, the side.
  int64_t side(const std::string& name) const;
  /// How many blocks there are: before + "0" + after, before + "1" + after, ...; at least one.
  int64_t count(const std::string& before, const std::string& after) const;

 private:
  const Tensors& tensors_;
  std::string prefix_;
};

}  // namespace tpgm
