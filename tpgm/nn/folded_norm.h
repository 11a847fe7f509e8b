// BatchNorms in evaluation, folded by the convolutions before them; see kernels/fold.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <unordered_map>
#include <utility>
#include <vector>

namespace tpgm {

class BatchNorm2dImpl;
class Conv2dImpl;

/// While it lives, conv_norm() in this thread finds the weights of these convolutions with their norms in
/// them, made together, and so are their gradients: in a launch or two for all on a GPU. Norms in training
/// are left out. On a GPU it does something for those that take gradients: without, two operations on maps
/// are as fast. In bf16 weights are rounded before the norm's factor and after it. There is no second
/// derivative.
class FoldedNorms {
 public:
  using Pairs = std::vector<std::pair<const Conv2dImpl*, const BatchNorm2dImpl*>>;
  explicit FoldedNorms(const Pairs& pairs);
  ~FoldedNorms();
  FoldedNorms(const FoldedNorms&) = delete;
  FoldedNorms& operator=(const FoldedNorms&) = delete;

  struct Folded {
    at::Tensor weights, shift;  // norm(conv(x)) is a convolution with `weights`, plus `shift`
  };
  /// That of this convolution and what follows it; null: there is none.
  static const Folded* of(const Conv2dImpl& conv);

 private:
  std::unordered_map<const Conv2dImpl*, Folded> folded_;
  const FoldedNorms* before_;
};

/// A convolution's weights [out, ...] as they are cast, and its norm's tensors [out].
struct NormToFold {
  at::Tensor weights, weight, bias, running_mean, running_var;
};
/// All at once. On the CPU fp32 and fp64, on CUDA bf16 and fp32 weights; the norms in fp32 (fp64 with fp64).
std::vector<FoldedNorms::Folded> fold(const std::vector<NormToFold>& norms, double eps);

}  // namespace tpgm
