// The layers of our models. They compute what the layers of torch::nn compute, with the same names of
// parameters, but are not initialized (weights are about to be loaded), can be made on any device, and have
// fast paths: fused and folded norms, packed attention, and GEMMs by the fastest library.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tpgm/nn/activation.h"
#include "tpgm/nn/fused_norm.h"

namespace tpgm {

/// While an object lives, its thread makes new parameters and buffers on `device`, as `with
/// torch.device(...)` does in Python. On kMeta a model of any size takes no memory and no time.
class OnDevice {
 public:
  explicit OnDevice(c10::Device device);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  c10::Device before_;
};

/// An uninitialized fp32 tensor for a parameter or buffer.
at::Tensor allocate(at::IntArrayRef sizes);

/// The tensors of a module that autocast casts: the weights of Linears and Conv2ds.
std::vector<at::Tensor> matrix_weights(const torch::nn::Module& module);
/// The biases that are added inside a GEMM: those of the first GEMM of attention and MLP in
/// TransformerBlocks.
std::vector<at::Tensor> gemm_biases(const torch::nn::Module& module);

/// GELU (by erf), or OpenAI's approximation x·sigmoid(1.702x).
at::Tensor activate(Activation activation, const at::Tensor& x);

/// y = x Wᵀ + b. weight [out, in], bias [out].
class LinearImpl : public torch::nn::Module {
 public:
  LinearImpl(int64_t in, int64_t out, bool with_bias = true);
  at::Tensor forward(const at::Tensor& x) const;
  /// residual + forward(x), with one pass fewer over the result where the GEMM can add.
  at::Tensor add_to(const at::Tensor& residual, const at::Tensor& x) const;
  /// activation(forward(x)).
  at::Tensor activated(Activation activation, const at::Tensor& x) const;

  at::Tensor weight, bias;
};
TORCH_MODULE(Linear);

/// Layer normalization over the last dimension.
class LayerNormImpl : public torch::nn::Module {
 public:
  LayerNormImpl(int64_t width, double eps);
  at::Tensor forward(const at::Tensor& x) const;
  double eps() const { return eps_; }

  at::Tensor weight, bias;

 private:
  double eps_;
};
TORCH_MODULE(LayerNorm);

/// A convolution with weight [out, in / groups, kernel, kernel] and, with `with_bias`, bias [out]. It pads by
/// half the kernel, so that the feature map keeps its size with stride 1; kernels of even size throw. With
/// groups it runs in ATen's convolution; a norm is folded only into a convolution without a bias.
class Conv2dImpl : public torch::nn::Module {
 public:
  Conv2dImpl(int64_t in, int64_t out, int64_t kernel, int64_t stride = 1, int64_t groups = 1,
             bool with_bias = false);
  at::Tensor forward(const at::Tensor& x) const;
  /// forward() with other weights of the same shape, and another bias [out] or none.
  at::Tensor convolve(const at::Tensor& x, const at::Tensor& weights, const at::Tensor& bias) const;
  /// Pixels on a side of the result for a feature map with `side` pixels.
  int64_t side_after(int64_t side) const { return (side - 1) / stride_ + 1; }
  /// Multiply-adds for one feature map with `side` pixels on a side.
  int64_t multiply_adds(int64_t side) const;

  at::Tensor weight, bias;  ///< bias may be undefined

 private:
  int64_t stride_, padding_, groups_;
};
TORCH_MODULE(Conv2d);

/// torch::nn::BatchNorm2d with its defaults: momentum 0.1, eps 1e-5, running statistics.
class BatchNorm2dImpl : public torch::nn::Module {
 public:
  static constexpr double kEps = 1e-5;

  explicit BatchNorm2dImpl(int64_t channels);
  at::Tensor forward(const at::Tensor& x);

  at::Tensor weight, bias, running_mean, running_var, num_batches_tracked;
};
TORCH_MODULE(BatchNorm2d);

/// norm(conv(x)) and what follows it: a convolution and one fused operation if fuses_norm() is true, or a
/// convolution with folded weights and what follows if FoldedNorms has the pair.
SharedOutput conv_norm(Conv2dImpl& conv, BatchNorm2dImpl& norm, const at::Tensor& x, const AfterNorm& after);

/// Self-attention with one packed projection: qkv.weight [3·width, width] has queries, keys and values. q, k
/// and v are views of the projection's output. Their gradients go into separate GEMMs; on a GPU with few rows
/// (kFewRows in attention.cpp) and in oneDNN they are stacked first, for one GEMM.
class AttentionImpl : public torch::nn::Module {
 public:
  AttentionImpl(int64_t width, int64_t heads);
  /// The output before `proj`, [batch, tokens, width] → the same shape. `causal`: tokens do not attend to
  /// later ones.
  at::Tensor attend(const at::Tensor& x, bool causal);
  at::Tensor forward(const at::Tensor& x, bool causal) { return proj->forward(attend(x, causal)); }

  Linear qkv{nullptr}, proj{nullptr};

 private:
  int64_t heads_;
};
TORCH_MODULE(Attention);

struct TransformerOptions {
  int64_t width, depth, heads, mlp;  // mlp: the hidden width of the two-layer MLP
  Activation activation;
  double eps;
  bool causal = false;
};

/// The residual stream of a transformer: x, and the output of a branch that is not added yet. The addition is
/// delayed until the next norm, because on some GPUs one kernel does both (residual.h).
class Residual {
 public:
  explicit Residual(at::Tensor x) : x_(std::move(x)) {}
  /// Adds linear(input) to x, now or with the next norm.
  void add(const Linear& linear, at::Tensor input);
  /// norm(x), the input of a branch.
  at::Tensor normed(const LayerNorm& norm);
  /// Drops all but the first `count` tokens.
  void keep_first(int64_t count);
  at::Tensor sum();

 private:
  at::Tensor x_, input_;
  Linear linear_{nullptr};  // linear_(input_) is still to be added
};

/// x + attn(norm1(x)), then x + mlp(norm2(x)).
class TransformerBlockImpl : public torch::nn::Module {
 public:
  explicit TransformerBlockImpl(const TransformerOptions& options);
  /// Computes only the first `wanted` tokens of the result; 0: all.
  void forward(Residual& x, int64_t wanted = 0);

  LayerNorm norm1{nullptr}, norm2{nullptr};
  Attention attn{nullptr};
  Linear fc1{nullptr}, fc2{nullptr};  // registered as mlp.fc1, mlp.fc2

 private:
  Activation activation_;
  bool causal_;
};
TORCH_MODULE(TransformerBlock);

/// Registers `depth` blocks as "blocks.0", "blocks.1", ... in `owner`.
std::vector<TransformerBlock> make_blocks(torch::nn::Module& owner, const TransformerOptions& options);

/// Runs x through the first `count` blocks. With `recompute`, only the inputs of blocks are kept for the
/// backward pass (recompute.h). `wanted`: only so many first tokens of the result are needed, and others may
/// be missing; 0: all.
at::Tensor run_blocks(std::vector<TransformerBlock>& blocks, const at::Tensor& x, size_t count,
                      bool recompute, int64_t wanted = 0);

/// CLIP's attention pooling of the last feature map of a ResNet: the mean over pixels is a token before the
/// pixels, and its query attends to all of them.
class AttentionPoolImpl : public torch::nn::Module {
 public:
  /// position [pixels + 1, width].
  AttentionPoolImpl(int64_t pixels, int64_t width, int64_t heads, int64_t embedding);
  /// [batch, channels, height, width] → [batch, embedding].
  at::Tensor forward(const at::Tensor& x);
  int64_t multiply_adds() const;

  at::Tensor position;
  Linear q_proj{nullptr}, k_proj{nullptr}, v_proj{nullptr}, c_proj{nullptr};

 private:
  int64_t heads_;
};
TORCH_MODULE(AttentionPool);

}  // namespace tpgm
