// What a convolutional network does between its convolutions, on maps whose channels lie next to each other
// (NHWC): BatchNorm together with the addition, the ReLU and the pooling that follow it. Raw pointers in, no
// torch.
//
// All of it is bound by memory. Forward reads a map once for its statistics and once for its result; backward
// reads map and gradient once for the sums and once for the result. Nothing else touches memory: ReLU and
// pooling are undone from the map itself, from a bit or from a byte per element.
//
// Sums are combined in an order that depends on shapes and the device alone, so two runs on one device agree
// bit for bit.
#pragma once

#include <cstdint>

#include "tpgm/kernels/types.h"

namespace tpgm::kernels {

/// After the ReLU: nothing; the largest of 3×3 pixels, stride 2, padded by 1; the mean of 2×2 pixels,
/// stride 2.
enum class Pool : uint8_t { kNone, kMax, kMean };

/// The shape of what is normalised. `dtype` is the maps' (CUDA: kBFloat16, kFloat32; CPU: kFloat32,
/// kFloat64). Everything per channel is float, or double with kFloat64.
struct NormMap {
  DType dtype = DType::kFloat32;
  int64_t images = 0, height = 0, width = 0, channels = 0;

  int64_t pixels() const { return images * height * width; }
};

/// norm(x) = (x − mean) / sqrt(variance + eps) · weight + bias, per channel. Where weight, mean and variance
/// are null it is x + bias: the rest is in the convolution's weights; see fold_norm.h.
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
  bool relu = true;                // always with residual and pool
  Pool pool = Pool::kNone;
  void* y = nullptr;
  uint8_t* trace = nullptr;  // trace_bytes() for the backward pass
};

struct NormBackward {
  const void* x = nullptr;
  const void* dy = nullptr;         // of y
  const void* dy_second = nullptr;  // or null: y had two readers, and this is the other's
  bool residual = false, relu = true;
  Pool pool = Pool::kNone;
  bool batch_statistics = true;  // mean and variance are the map's own; else they are constants, or null
  const uint8_t* trace = nullptr;
  /// With a norm that is x + bias, the residual's gradient is dx too, and without anything to undo (no ReLU,
  /// one reader) dx is dy: dresidual and dweight are null then, and in the second case dx.
  void* dx = nullptr;
  void* dresidual = nullptr;  // with residual
  void* dweight = nullptr;
  void* dbias = nullptr;  // never null
};

/// Running averages of batch statistics: running ← running + momentum · (batch − running), the variance
/// unbiased.
struct Running {
  void* mean = nullptr;  // all three, or none
  void* variance = nullptr;
  int64_t* batches = nullptr;  // counts them
  double momentum = 0;
};

/// Images for a convolution of stride 2 as maps for one of stride 1: a pixel of y has 2×2 pixels of x in its
/// channels, (line, column, channel) one after the other, then zeros. y has `front` lines and columns of
/// zeros before and `back` behind. Three channels of an image fill no vector of a tensor core; twelve of
/// sixteen do.
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
  /// Channels must be a multiple of this.
  int64_t (*vector)(DType);
  /// What `trace` needs.
  int64_t (*trace_bytes)(const NormMap&, bool residual, Pool);
  /// What `scratch` needs, for a call of statistics() or backward().
  int64_t (*scratch_bytes)(const NormMap&);

  void (*statistics)(const NormMap&, const void* x, void* mean, void* variance, const Running&, void* scratch,
                     void* stream);
  void (*forward)(const NormMap&, const BatchNormParameters&, const NormForward&, void* stream);
  void (*backward)(const NormMap&, const BatchNormParameters&, const NormBackward&, void* scratch,
                   void* stream);

  /// Pool::kMean by itself: y from x, and dx from dy. `map` is x's shape.
  void (*mean_pool)(const NormMap& map, const void* x, void* y, void* stream);
  void (*mean_pool_backward)(const NormMap& map, const void* dy, void* dx, void* stream);

  void (*space_to_depth)(const SpaceToDepth&, void* stream);
};

/// The CPU's is the oracle: plain loops.
const BatchNormBackend& batch_norm_cpu();
const BatchNormBackend& batch_norm_cuda();

}  // namespace tpgm::kernels
