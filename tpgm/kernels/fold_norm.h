// Folds BatchNorm layers in evaluation mode into the weights of the convolutions before them. Such a norm
// multiplies each channel by a factor and adds a constant: the factor is multiplied into the weights here,
// and the constant is added to the feature maps (batch_norm.h, BatchNormParameters). Raw pointers in, no
// torch.
#pragma once

#include <cstdint>
#include <vector>

#include "tpgm/kernels/batch_norm.h"
#include "tpgm/kernels/types.h"

namespace tpgm::kernels {

/// One convolution and its norm, with scale = weight / sqrt(variance + eps) and shift = bias − mean · scale.
/// The weights are `rows` (one per output channel) of `cols` dense elements. `dtype` is the type of weights,
/// folded and their gradients (CUDA: kBFloat16, kFloat32; CPU: kFloat32, kFloat64); parameters and gradients
/// of channels are float, or double with kFloat64.
struct Fold {
  DType dtype = DType::kFloat32;
  int64_t rows = 0, cols = 0;
  const void* weights = nullptr;
  BatchNormParameters norm;

  void* folded = nullptr;  // forward: scale · weights, and
  void* shift = nullptr;   // [rows]

  const void* dfolded = nullptr;  // backward: gradients of the two above; a null one counts as zero
  const void* dshift = nullptr;
  void* dweights = nullptr;  // null if dfolded is
  void* dscale = nullptr;    // gradient of the norm's weight
};

/// Each call works on all convolutions of a model.
struct FoldNormBackend {
  void (*forward)(const std::vector<Fold>&, const ParallelFor&, void* stream);
  void (*backward)(const std::vector<Fold>&, const ParallelFor&, void* stream);
};

const FoldNormBackend& fold_norm_cpu();
/// One launch for up to 128 convolutions.
const FoldNormBackend& fold_norm_cuda();

}  // namespace tpgm::kernels
