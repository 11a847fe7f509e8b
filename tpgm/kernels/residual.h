// The passes of a transformer between its GEMMs, all of them bound by memory: the residual addition fused
// with the LayerNorm that follows it, the activation of the MLP, and column sums. The backward passes also
// give the gradients of weights and biases, without another pass. Raw pointers in, no torch.
//
// The residual *stream* (x and its sums) has one type and the *branches* (attention and MLP) have another:
// fp32 and bf16 under autocast. Matrices are row-major and dense. Sums are combined in an order that depends
// on the shapes and the device alone, so two runs on one device are bit-exact.
#pragma once

#include <cstdint>

#include "tpgm/kernels/types.h"

namespace tpgm::kernels {

/// CUDA: a stream of kFloat32 with branches of kBFloat16 or kFloat32. CPU: these, or both kFloat64. Means,
/// weights, biases and all their gradients have the type of the stream.
struct StreamTypes {
  DType stream = DType::kFloat32;
  DType branch = DType::kFloat32;
};

/// sum = x + (branch + bias), normed = (sum − mean)·rstd·weight + shift with rstd = 1 / sqrt(variance + eps),
/// row by row.
struct AddLayerNorm {
  StreamTypes types;
  int64_t rows = 0, cols = 0;
  const void* x = nullptr;
  const void* branch = nullptr;  // null: the sum is x itself and is not written
  const void* bias = nullptr;    // [cols], or null
  const void* weight = nullptr;  // [cols], as is shift
  const void* shift = nullptr;
  double eps = 0;
  void* sum = nullptr;
  void* normed = nullptr;  // in the type of the branch
  void* mean = nullptr;    // [rows], as is rstd
  void* rstd = nullptr;
};

/// dx is the gradient of x and also of branch + bias.
struct AddLayerNormBackward {
  StreamTypes types;
  int64_t rows = 0, cols = 0;
  const void* d_normed = nullptr;
  const void* d_sum = nullptr;  // null: the sum had no other use
  const void* sum = nullptr;
  const void* mean = nullptr;
  const void* rstd = nullptr;
  const void* weight = nullptr;
  void* dx = nullptr;
  void* d_branch = nullptr;  // not null: dx in the type of the branch
  void* d_weight = nullptr;  // [cols], as are the two below
  void* d_shift = nullptr;
  void* d_bias = nullptr;  // or null
};

/// The activation of an MLP: GELU with erf, or CLIP's x·sigmoid(1.702x).
enum class Unit : uint8_t { kGelu, kQuickGelu };

/// y = unit(x), or the gradient of x.
struct Activate {
  DType dtype = DType::kFloat32;  // of x, y and dy
  Unit unit = Unit::kGelu;
  int64_t rows = 0, cols = 0;
  const void* x = nullptr;
  void* y = nullptr;  // backward: the gradient of x

  const void* dy = nullptr;  // backward
  void* d_bias = nullptr;    // backward: [cols], the column sums of the gradient, float (kFloat64: double)
};

/// The column sums of up to kMaxParts matrices side by side: the gradient of a bias.
struct ColumnSums {
  static constexpr int kMaxParts = 3;
  DType dtype = DType::kFloat32;
  int64_t rows = 0, cols = 0;  // of each
  int parts = 0;
  const void* from[kMaxParts] = {};
  int64_t stride[kMaxParts] = {};  // elements from one row to the next
  void* sums = nullptr;            // [parts · cols], float (kFloat64: double)
  void* beside = nullptr;          // not null: [rows, parts · cols] ← the matrices, concatenated
};

struct ResidualBackend {
  /// `cols` and strides must be multiples of `multiple_of`; LayerNorm takes at most `most_norm_cols`.
  /// Pointers are aligned to 16 bytes.
  int64_t multiple_of, most_norm_cols;
  /// The size of `scratch` for so many columns. `sums` is 3 for add_layer_norm_backward, 1 for
  /// activate_backward, and ColumnSums::parts for column_sums.
  int64_t (*scratch_bytes)(int64_t cols, int sums);

  void (*add_layer_norm)(const AddLayerNorm&, void* stream);
  void (*add_layer_norm_backward)(const AddLayerNormBackward&, void* scratch, void* stream);
  void (*activate)(const Activate&, void* stream);
  void (*activate_backward)(const Activate&, void* scratch, void* stream);
  void (*column_sums)(const ColumnSums&, void* scratch, void* stream);
};

/// Plain loops: the oracle for CUDA.
const ResidualBackend& residual_cpu();
const ResidualBackend& residual_cuda();

}  // namespace tpgm::kernels
