// A BatchNorm in evaluation is a factor and a constant for each channel. The factor can go into the weights
// of the convolution before it, and then only the constant is left to do on maps; see batch_norm.h,
// BatchNormParameters. Raw pointers in, no torch.
#pragma once

#include <cstdint>
#include <vector>

#include "tpgm/kernels/batch_norm.h"
#include "tpgm/kernels/types.h"

namespace tpgm::kernels {

/// One convolution, its weights as `rows` (one for each channel of the result) of `cols` dense elements, and
/// its norm: scale = weight / sqrt(variance + eps), shift = bias - mean · scale. `dtype` is that of weights,
/// folded and gradients (CUDA: kBFloat16, kFloat32; CPU: kFloat32, kFloat64); everything per channel is
/// float, or double with kFloat64.
struct Fold {
  DType dtype = DType::kFloat32;
  int64_t rows = 0, cols = 0;
  const void* weights = nullptr;
  BatchNormParameters norm;

  void* folded = nullptr;  // forward: scale · weights
  void* shift = nullptr;

  const void* dfolded = nullptr;  // backward; null: zero
  const void* dshift = nullptr;   // null: zero
  void* dweights = nullptr;       // null with dfolded
  void* dscale = nullptr;         // of the norm's weight
};

struct FoldNormBackend {
  void (*forward)(const std::vector<Fold>&, const ParallelFor&, void* stream);
  void (*backward)(const std::vector<Fold>&, const ParallelFor&, void* stream);
};

const FoldNormBackend& fold_norm_cpu();
/// A launch for all of them.
const FoldNormBackend& fold_norm_cuda();

}  // namespace tpgm::kernels
