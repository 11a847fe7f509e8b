// What a transformer does between its matrix products, all of it bound by memory: the residual addition with
// the LayerNorm that follows it, the MLP's activation, and the gradients of weights and biases, which
// come out of the passes that make the gradients of the activations. Raw pointers in, no torch.
//
// The residual *stream* is summed up in one type and its *branches* are computed in another: fp32 and bf16
// under autocast. Matrices are dense rows. Sums are combined in an order that depends on the shapes and the
// device alone, so two runs on one device agree bit for bit.
#pragma once

#include <cstdint>

#include "tpgm/kernels/types.h"

namespace tpgm::kernels {

/// CUDA: kFloat32 with kBFloat16 or kFloat32. CPU: these, or both kFloat64. Means, weights, biases and all
/// their gradients have the stream's type.
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
  const void* branch = nullptr;  // or null: sum is x, and is not written
  const void* bias = nullptr;    // [cols], or null
  const void* weight = nullptr;  // [cols], as is shift
  const void* shift = nullptr;
  double eps = 0;
  void* sum = nullptr;
  void* normed = nullptr;  // of the branch's type
  void* mean = nullptr;    // [rows], as is rstd
  void* rstd = nullptr;
};

/// dx is the gradient of x, and of branch + bias as well.
struct AddLayerNormBackward {
  StreamTypes types;
  int64_t rows = 0, cols = 0;
  const void* d_normed = nullptr;
  const void* d_sum = nullptr;  // or null: nobody else read the sum
  const void* sum = nullptr;
  const void* mean = nullptr;
  const void* rstd = nullptr;
  const void* weight = nullptr;
  void* dx = nullptr;
  void* d_branch = nullptr;  // or null; dx in the branch's type
  void* d_weight = nullptr;  // [cols], as are the two below
  void* d_shift = nullptr;
  void* d_bias = nullptr;  // or null
};

enum class Unit : uint8_t { kGelu, kQuickGelu };  // with erf; x·sigmoid(1.702x)

/// y = unit(x), or its gradient.
struct Activate {
  DType dtype = DType::kFloat32;  // of x, y and dy
  Unit unit = Unit::kGelu;
  int64_t rows = 0, cols = 0;
  const void* x = nullptr;
  void* y = nullptr;  // backward: the gradient of x

  const void* dy = nullptr;  // backward
  void* d_bias = nullptr;    // backward: [cols], the column sums of the gradient, float (kFloat64: double)
};

/// The column sums of up to kMaxParts matrices beside each other.
struct ColumnSums {
  static constexpr int kMaxParts = 3;
  DType dtype = DType::kFloat32;
  int64_t rows = 0, cols = 0;  // of each
  int parts = 0;
  const void* from[kMaxParts] = {};
  int64_t stride[kMaxParts] = {};  // elements from one row to the next
  void* sums = nullptr;            // [parts · cols], float (kFloat64: double)
  void* beside = nullptr;          // not null: [rows, parts · cols], gets the matrices themselves
};

struct ResidualBackend {
  /// Columns, and strides, must be a multiple of this and not more than that; pointers are aligned to 16
  /// bytes.
  int64_t multiple_of, most_norm_cols;
  /// Bytes of the scratch memory that a backward pass or column sums over so many columns need: `sums` is 3
  /// for AddLayerNormBackward, 1 for the activation's, ColumnSums::parts for those.
  int64_t (*scratch_bytes)(int64_t cols, int sums);

  void (*add_layer_norm)(const AddLayerNorm&, void* stream);
  void (*add_layer_norm_backward)(const AddLayerNormBackward&, void* scratch, void* stream);
  void (*activate)(const Activate&, void* stream);
  void (*activate_backward)(const Activate&, void* scratch, void* stream);
  void (*column_sums)(const ColumnSums&, void* scratch, void* stream);
};

/// The CPU's is the oracle: plain loops.
const ResidualBackend& residual_cpu();
const ResidualBackend& residual_cuda();

}  // namespace tpgm::kernels
