// BatchNorm fused with the addition, the ReLU and the pooling that follow it, on feature maps in NHWC
// (channels_last). Raw pointers in, no torch.
//
// These kernels are bound by memory. The forward pass reads x once for its statistics and once for y; the
// backward pass reads x and dy once for the sums and once for dx. Nothing else is stored: the backward pass
// of ReLU and pooling recomputes the sign from x, or reads a bit or a byte per element (`trace`).
//
// Sums are combined in an order that depends on shapes and the device alone, so two runs on one device are
// bit-exact.
#pragma once

#include <cstdint>

#include "tpgm/kernels/types.h"

namespace tpgm::kernels {

/// The pooling after the ReLU: none; max over 3×3 pixels, stride 2, padding 1; mean over 2×2 pixels,
/// stride 2.
enum class Pool : uint8_t { kNone, kMax, kMean };

/// Type and shape of a batch of feature maps. CUDA takes kBFloat16 and kFloat32, the CPU kFloat32 and
/// kFloat64. Parameters and statistics of channels are float, or double with kFloat64.
struct FeatureMap {
  DType dtype = DType::kFloat32;
  int64_t images = 0, height = 0, width = 0, channels = 0;

  int64_t pixels() const { return images * height * width; }
};

/// norm(x) = (x − mean) / sqrt(variance + eps) · weight + bias, per channel. If weight, mean and variance are
/// null, norm(x) = x + bias: the rest is folded into the convolution's weights; see fold_norm.h.
struct BatchNormParameters {
  const void* weight = nullptr;
  const void* bias = nullptr;
  const void* mean = nullptr;
  const void* variance = nullptr;
  double eps = 0;
};

/// y = pool(relu(norm(x) + residual)).
struct NormForward {
  const void* x = nullptr;
  const void* residual = nullptr;  // or null; excludes pool
  bool relu = true;                // must be true with residual or pool
  Pool pool = Pool::kNone;
  void* y = nullptr;
  uint8_t* trace = nullptr;  // trace_bytes() bytes for the backward pass; null: there will be none
};

struct NormBackward {
  const void* x = nullptr;
  const void* dy = nullptr;         // gradient of y
  const void* dy_second = nullptr;  // not null: added to dy, where two layers read y
  bool residual = false, relu = true;
  Pool pool = Pool::kNone;
  bool batch_statistics = true;  // mean and variance come from x (training); else they are constants or null
  const uint8_t* trace = nullptr;
  /// Where norm(x) = x + bias, dx is also the gradient of the residual: dresidual and dweight are null. If
  /// there is no ReLU and no dy_second either, dx equals dy and is null.
  void* dx = nullptr;
  void* dresidual = nullptr;  // with residual
  void* dweight = nullptr;
  void* dbias = nullptr;  // never null
};

/// Running statistics: running ← running + momentum · (batch − running), with the unbiased variance.
struct Running {
  void* mean = nullptr;  // all three are given, or none
  void* variance = nullptr;
  int64_t* batches = nullptr;  // num_batches_tracked
  double momentum = 0;
};

/// Rearranges images so that a convolution of stride 2 becomes one of stride 1: the channels of a pixel of y
/// are 2×2 pixels of x (line, column, channel), then zeros. y is padded with `front` lines and columns of
/// zeros before and `back` after. The three channels of an image are too few for tensor cores; twelve of
/// sixteen are not.
struct SpaceToDepth {
  static constexpr int64_t kChannels = 16;                  // of y
  int64_t images = 0, height = 0, width = 0, channels = 0;  // of x; even, even, at most 4
  int64_t front = 0, back = 0;
  DType from = DType::kFloat32, to = DType::kBFloat16;  // CPU: both the same, fp32 or fp64
  const void* x = nullptr;
  void* y = nullptr;

  int64_t lines() const { return front + height / 2 + back; }  // of y
  int64_t columns() const { return front + width / 2 + back; }
};

struct BatchNormBackend {
  /// The number of channels must be a multiple of this.
  int64_t (*vector)(DType);
  /// The size of `trace`.
  int64_t (*trace_bytes)(const FeatureMap&, bool residual, Pool);
  /// The size of `scratch` for a call of statistics() or backward().
  int64_t (*scratch_bytes)(const FeatureMap&);

  void (*statistics)(const FeatureMap&, const void* x, void* mean, void* variance, const Running&,
                     void* scratch, void* stream);
  void (*forward)(const FeatureMap&, const BatchNormParameters&, const NormForward&, void* stream);
  void (*backward)(const FeatureMap&, const BatchNormParameters&, const NormBackward&, void* scratch,
                   void* stream);

  /// Pool::kMean by itself: y from x, and dx from dy. `map` has the shape of x.
  void (*mean_pool)(const FeatureMap& map, const void* x, void* y, void* stream);
  void (*mean_pool_backward)(const FeatureMap& map, const void* dy, void* dx, void* stream);

  void (*space_to_depth)(const SpaceToDepth&, void* stream);
};

/// Plain loops: the oracle for CUDA.
const BatchNormBackend& batch_norm_cpu();
const BatchNormBackend& batch_norm_cuda();

}  // namespace tpgm::kernels
