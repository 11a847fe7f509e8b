// Convolutions, normalisations and perceptrons; attention has a file of its own.
#include "tpgm/models/layers.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "tpgm/models/recompute.h"

namespace tpgm {
namespace {

thread_local c10::Device parameter_device = at::kCPU;

constexpr double kMomentum = 0.1, kBatchNormEps = 1e-5;

}  // namespace

OnDevice::OnDevice(c10::Device device) : before_(parameter_device) { parameter_device = device; }
OnDevice::~OnDevice() { parameter_device = before_; }

at::Tensor allocate(at::IntArrayRef sizes) {
  return at::empty(sizes, at::TensorOptions(at::kFloat).device(parameter_device));
}

LinearImpl::LinearImpl(int64_t in, int64_t out, bool with_bias)
    : weight(register_parameter("weight", allocate({out, in}))) {
  if (with_bias) bias = register_parameter("bias", allocate({out}));
}

at::Tensor LinearImpl::forward(const at::Tensor& x) const { return at::linear(x, weight, bias); }

at::Tensor LinearImpl::add_to(const at::Tensor& residual, const at::Tensor& x) const {
  // Autocast has no such product for operands of two types.
  if (at::autocast::is_autocast_enabled(x.device().type())) return residual + forward(x);
  return (residual.flatten(0, -2) + bias).addmm_(x.flatten(0, -2), weight.t()).view_as(residual);
}

LayerNormImpl::LayerNormImpl(int64_t width, double eps)
    : weight(register_parameter("weight", allocate({width}))),
      bias(register_parameter("bias", allocate({width}))),
      eps_(eps) {}

at::Tensor LayerNormImpl::forward(const at::Tensor& x) const {
  return at::layer_norm(x, {weight.size(0)}, weight, bias, eps_);
}

Conv2dImpl::Conv2dImpl(int64_t in, int64_t out, int64_t kernel, int64_t stride)
    : weight(register_parameter("weight", allocate({out, in, kernel, kernel}))),
      stride_(stride),
      padding_(kernel / 2) {}

at::Tensor Conv2dImpl::forward(const at::Tensor& x) const { return convolve(x, weight, {}); }

at::Tensor Conv2dImpl::convolve(const at::Tensor& x, const at::Tensor& weights,
                                const at::Tensor& bias) const {
  // oneDNN writes beyond its workspace in the backward pass of such a one in channels-last, when its channels
  // do not fill a vector (uxlfoundation/oneDNN#6035). Without a stride it does not.
  if (x.is_cpu() && weights.size(2) == 1 && stride_ > 1 && weights.size(1) < 16) {
    const at::Tensor pixels = x.slice(2, 0, std::nullopt, stride_).slice(3, 0, std::nullopt, stride_);
    return at::conv2d(pixels, weights, bias);
  }
  return at::conv2d(x, weights, bias, stride_, padding_);
}

int64_t Conv2dImpl::multiply_adds(int64_t side) const {
  return weight.numel() * side_after(side) * side_after(side);
}

BatchNorm2dImpl::BatchNorm2dImpl(int64_t channels)
    : weight(register_parameter("weight", allocate({channels}))),
      bias(register_parameter("bias", allocate({channels}))),
      running_mean(register_buffer("running_mean", allocate({channels}))),
      running_var(register_buffer("running_var", allocate({channels}))),
      num_batches_tracked(register_buffer(
          "num_batches_tracked", at::zeros({}, at::TensorOptions(at::kLong).device(parameter_device)))) {}

at::Tensor BatchNorm2dImpl::forward(const at::Tensor& x) {
  if (is_training()) num_batches_tracked.add_(1);
  return at::batch_norm(x, weight, bias, running_mean, running_var, is_training(), kMomentum, kBatchNormEps,
                        at::globalContext().userEnabledCuDNN());
}

at::Tensor BatchNorm2dImpl::scale() const { return weight * (running_var + kBatchNormEps).rsqrt_(); }

at::Tensor BatchNorm2dImpl::shift(const at::Tensor& scale) const {
  return at::addcmul(bias, running_mean, scale, -1);
}

at::Tensor conv_norm(Conv2dImpl& conv, BatchNorm2dImpl& norm, const at::Tensor& x) {
  // On a GPU the bias of a convolution is a pass of its own, so that there is nothing to win.
  const bool fold = x.is_cpu() && !norm.is_training() && !at::GradMode::is_enabled();
  if (!fold) return norm.forward(conv.forward(x));
  const at::Tensor scale = norm.scale();
  return conv.convolve(x, conv.weight * scale.view({-1, 1, 1, 1}), norm.shift(scale));
}

Activation parse_activation(const std::string& text) {
  if (text == "gelu") return Activation::kGelu;
  if (text == "quick_gelu") return Activation::kQuickGelu;
  TORCH_CHECK(false, "[parse_activation] no activation '", text, "'; known are gelu and quick_gelu");
}

at::Tensor activate(Activation activation, const at::Tensor& x) {
  if (activation == Activation::kGelu) return at::gelu(x);
  // silu(cx)/c: one pass less than with a sigmoid, and one tensor less to keep for the gradient.
  constexpr double kScale = 1.702;
  return at::silu(x * kScale) * (1 / kScale);
}

TransformerBlockImpl::TransformerBlockImpl(const TransformerOptions& options)
    : activation_(options.activation), causal_(options.causal) {
  norm1 = register_module("norm1", LayerNorm(options.width, options.eps));
  attn = register_module("attn", Attention(options.width, options.heads));
  norm2 = register_module("norm2", LayerNorm(options.width, options.eps));
  const auto mlp = register_module("mlp", std::make_shared<torch::nn::Module>());
  fc1 = mlp->register_module("fc1", Linear(options.width, options.mlp));
  fc2 = mlp->register_module("fc2", Linear(options.mlp, options.width));
}

at::Tensor TransformerBlockImpl::forward(const at::Tensor& x) {
  const at::Tensor seen = attn->proj->add_to(x, attn->attend(norm1->forward(x), causal_));
  return fc2->add_to(seen, activate(activation_, fc1->forward(norm2->forward(seen))));
}

std::vector<TransformerBlock> make_blocks(torch::nn::Module& owner, const TransformerOptions& options) {
  const auto list = owner.register_module("blocks", std::make_shared<torch::nn::Module>());
  std::vector<TransformerBlock> blocks;
  for (int64_t i = 0; i < options.depth; ++i) {
    blocks.push_back(list->register_module(fmt::format("{}", i), TransformerBlock(options)));
  }
  return blocks;
}

at::Tensor run_blocks(std::vector<TransformerBlock>& blocks, at::Tensor x, size_t count, bool recompute) {
  for (size_t i = 0; i < count; ++i) {
    const auto block = blocks[i].ptr();
    const auto run = [block](const at::Tensor& input) { return block->forward(input); };
    x = recompute ? recomputed(run, x, block->parameters()) : run(x);
  }
  return x;
}

}  // namespace tpgm
