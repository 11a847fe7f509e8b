// Folds BatchNorms in evaluation mode into the weights of the convolutions before them (kernels/fold_norm.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <unordered_map>
#include <utility>
#include <vector>

namespace tpgm {

class BatchNorm2dImpl;
class Conv2dImpl;

/// While an object lives, conv_norm() in its thread uses folded weights for these pairs. The constructor
/// folds all weights together, in one or two launches on a GPU, and the backward pass computes all their
/// gradients together.
///
/// It leaves out norms in training mode and convolutions with a bias. On a GPU it also leaves out pairs
/// without gradients, for which a convolution and a norm are as fast. In bf16 weights are rounded twice:
/// before and after they are multiplied by the norm's scale. Folded weights have no second derivative.
class FoldedNorms {
 public:
  using Pairs = std::vector<std::pair<const Conv2dImpl*, const BatchNorm2dImpl*>>;
  explicit FoldedNorms(const Pairs& pairs);
  ~FoldedNorms();
  FoldedNorms(const FoldedNorms&) = delete;
  FoldedNorms& operator=(const FoldedNorms&) = delete;

  /// norm(conv(x)) is a convolution with `weights`, plus `shift` per channel.
  struct Folded {
    at::Tensor weights, shift;
  };
  /// The folded weights of this convolution in the current thread; null if there are none.
  static const Folded* of(const Conv2dImpl& conv);

 private:
  std::unordered_map<const Conv2dImpl*, Folded> folded_;
  const FoldedNorms* before_;
};

/// The weights of a convolution [out, ...], cast as autocast would, and the tensors of its norm [out].
struct NormToFold {
  at::Tensor weights, weight, bias, running_mean, running_var;
};
/// Folds all of them at once. Weights are fp32 or fp64 on the CPU, bf16 or fp32 on CUDA; norms are fp32, or
/// fp64 with fp64 weights.
std::vector<FoldedNorms::Folded> fold(const std::vector<NormToFold>& norms, double eps);

}  // namespace tpgm
