// Access to the shapes of a checkpoint's tensors, from which a family reads its sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tpgm/io/named_tensors.h"

namespace tpgm {

/// The tensors below a prefix ("visual."), under our names. The file may be broken: every function throws,
/// with the name, if a tensor is missing or has another number of dimensions.
class Shapes {
 public:
  /// `tensors` must outlive the object.
  Shapes(const NamedTensors& tensors, std::string prefix);

  bool has(const std::string& name) const;
  /// The size of one dimension of a tensor, which must have `dimensions` dimensions.
  int64_t size(const std::string& name, int64_t dimension, int64_t dimensions) const;
  /// The side of position embeddings [1 + side², width], where the first is that of the class token.
  int64_t side(const std::string& name) const;
  /// The number of blocks: how many of before + "0" + after, before + "1" + after, … there are, at least one.
  /// Throws if there are too few tensors for blocks of at least `tensors_of_block` tensors, so that a file of
  /// a few tensors cannot claim a huge model.
  int64_t count(const std::string& before, const std::string& after, size_t tensors_of_block) const;

 private:
  const NamedTensors& tensors_;
  std::string prefix_;
};

}  // namespace tpgm
