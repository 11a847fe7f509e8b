// Matrix products of models. In bf16 on a GPU like those that were measured they are kernels/products.h's,
// chosen by timing where they are large and convolutions are too (`benchmarkCuDNN` in LibTorch's context, and
// not `deterministicAlgorithms`); large ones in fp32 are oneDNN's on CPUs with AVX-512 that are not Intel's,
// as MKL's are slower there; elsewhere they are ATen's.
#pragma once

#include <ATen/core/Tensor.h>

namespace tpgm {

/// x [..., n] as a matrix [rows, n].
inline at::Tensor as_rows(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

/// a [rows, inner] · b [inner, cols], plus `bias` [cols] where it is defined; all of one type. Takes no
/// gradient.
at::Tensor product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias = {});

/// The same into `out` [rows, cols], or added to what it holds.
void product_into(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, bool add = false);

/// dyᵀ · x, of dy [rows, out] and x [rows, in]: the gradient of weights [out, in]. Takes no gradient itself.
at::Tensor weight_gradient(const at::Tensor& dy, const at::Tensor& x);

/// x [..., in] · weightᵀ [in, out] for autograd, plus `bias` [out] where it is defined. Operands of
/// several types are left to at::linear, and to autocast.
at::Tensor linear_product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});

/// True where that is oneDNN's if both are dense.
bool one_dnn_multiplies(const at::Tensor& x, const at::Tensor& weight);
/// The same of any product, `a` and what is of type `other`.
bool one_dnn_multiplies(const at::Tensor& a, at::ScalarType other, int64_t rows, int64_t cols, int64_t inner);

/// For tests: while it lives, this thread's fp32 products are oneDNN's on every CPU, the small ones too.
class AlwaysOneDnn {
 public:
  AlwaysOneDnn();
  ~AlwaysOneDnn();
  AlwaysOneDnn(const AlwaysOneDnn&) = delete;
  AlwaysOneDnn& operator=(const AlwaysOneDnn&) = delete;
};

}  // namespace tpgm
