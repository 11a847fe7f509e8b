// All layers but attention, which is in attention.cpp.
#include "tpgm/nn/layers.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "tpgm/nn/folded_norm.h"
#include "tpgm/nn/gemm.h"
#include "tpgm/nn/one_dnn.h"
#include "tpgm/nn/precision.h"
#include "tpgm/nn/recompute.h"
#include "tpgm/nn/residual.h"

namespace tpgm {
namespace {

thread_local c10::Device parameter_device = at::kCPU;

constexpr double kMomentum = 0.1;

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

at::Tensor LinearImpl::forward(const at::Tensor& x) const {
  // On a GPU autocast has to cast the bias, too, and linear_gemm() does not.
  return x.is_cpu() ? linear_gemm(x, autocasted(weight), bias) : at::linear(x, autocasted(weight), bias);
}

at::Tensor LinearImpl::add_to(const at::Tensor& residual, const at::Tensor& x) const {
  // addmm_ takes operands of one type, and under autocast there are two.
  if (at::autocast::is_autocast_enabled(x.device().type()) || runs_in_one_dnn(x, weight))
    return residual + forward(x);
  return (residual.flatten(0, -2) + bias).addmm_(x.flatten(0, -2), weight.t()).view_as(residual);
}

at::Tensor LinearImpl::activated(Activation activation, const at::Tensor& x) const {
  if (!fuses_columns(x, branch_type(x), weight.size(0))) return activate(activation, forward(x));
  return linear_act(autocasted(x), autocasted(weight), bias,
                    activation == Activation::kGelu ? kernels::Unit::kGelu : kernels::Unit::kQuickGelu);
}

LayerNormImpl::LayerNormImpl(int64_t width, double eps)
    : weight(register_parameter("weight", allocate({width}))),
      bias(register_parameter("bias", allocate({width}))),
      eps_(eps) {}

at::Tensor LayerNormImpl::forward(const at::Tensor& x) const {
  if (fuses_stream(x, x.scalar_type()))
    return add_layer_norm(x, {}, {}, weight, bias, eps_, x.scalar_type()).normed;
  return at::layer_norm(x, {weight.size(0)}, weight, bias, eps_);
}

Conv2dImpl::Conv2dImpl(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t groups,
                       bool with_bias)
    : stride_(stride), padding_(kernel / 2), groups_(groups) {
  TORCH_CHECK(kernel % 2 == 1, "[Conv2d] no padding keeps the size of a feature map with a kernel of ",
              kernel, " pixels; for patches that do not overlap see VisionTransformer");
  TORCH_CHECK(groups > 0 && in % groups == 0 && out % groups == 0, "[Conv2d] ", in, " and ", out,
              " channels cannot be divided into ", groups, " groups");
  weight = register_parameter("weight", allocate({out, in / groups, kernel, kernel}));
  if (with_bias) bias = register_parameter("bias", allocate({out}));
}

at::Tensor Conv2dImpl::forward(const at::Tensor& x) const { return convolve(x, autocasted(weight), bias); }

at::Tensor Conv2dImpl::convolve(const at::Tensor& x, const at::Tensor& weights,
                                const at::Tensor& bias) const {
  // In channels-last, oneDNN's backward pass of a strided 1×1 convolution writes beyond its workspace if the
  // input channels do not fill a vector (uxlfoundation/oneDNN#6035). Without a stride it does not.
  if (x.is_cpu() && weights.size(2) == 1 && stride_ > 1 && weights.size(1) < 16) {
    const at::Tensor pixels = x.slice(2, 0, std::nullopt, stride_).slice(3, 0, std::nullopt, stride_);
    return at::conv2d(pixels, weights, bias, /*stride=*/1, padding_, /*dilation=*/1, groups_);
  }
  if (groups_ > 1) return at::conv2d(x, weights, bias, stride_, padding_, /*dilation=*/1, groups_);
  if (x.is_cuda() && weights.size(2) == 1 && stride_ == 1 && weights.scalar_type() == at::kBFloat16 &&
      x.is_contiguous(at::MemoryFormat::ChannelsLast)) {
    // The channels of a pixel lie next to each other, so this is a GEMM, and cuBLAS is faster at it than
    // cuDNN. Not in fp32, where convolutions may use TF32 and GEMMs by default may not.
    return at::linear(x.permute({0, 2, 3, 1}), weights.flatten(1), bias).permute({0, 3, 1, 2});
  }
  if (conv_runs_as_gemm(x, weights, stride_)) return conv_gemm(x, weights, bias, stride_);
  if (!bias.defined() && uses_space_to_depth(x, weights, stride_)) return space_to_depth_conv2d(x, weights);
  return at::conv2d(x, weights, bias, stride_, padding_);
}

std::vector<at::Tensor> matrix_weights(const torch::nn::Module& module) {
  std::vector<at::Tensor> weights;
  for (const auto& each : module.modules(/*include_self=*/false)) {
    if (const auto* linear = each->as<LinearImpl>()) weights.push_back(linear->weight);
    if (const auto* conv = each->as<Conv2dImpl>()) weights.push_back(conv->weight);
  }
  return weights;
}

std::vector<at::Tensor> gemm_biases(const torch::nn::Module& module) {
  std::vector<at::Tensor> biases;
  for (const auto& each : module.modules(/*include_self=*/false)) {
    if (const auto* block = each->as<TransformerBlockImpl>())
      biases.insert(biases.end(), {block->attn->qkv->bias, block->fc1->bias});
  }
  return biases;
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
  if (is_training()) {
    check_values_per_channel(x);
    num_batches_tracked.add_(1);
  }
  return at::batch_norm(x, weight, bias, running_mean, running_var, is_training(), kMomentum, kEps,
                        at::globalContext().userEnabledCuDNN());
}

SharedOutput conv_norm(Conv2dImpl& conv, BatchNorm2dImpl& norm, const at::Tensor& x, const AfterNorm& after) {
  const auto* folded = FoldedNorms::of(conv);
  const NormTensors tensors = folded != nullptr ? NormTensors{.bias = folded->shift}
                                                : NormTensors{norm.weight, norm.bias, norm.running_mean,
                                                              norm.running_var, norm.num_batches_tracked};
  at::Tensor y;
  if (folded != nullptr && x.is_cpu()) {
    y = conv.convolve(x, folded->weights, folded->shift);
  } else {
    y = folded != nullptr ? conv.convolve(x, folded->weights, {}) : conv.forward(x);
    if (fuses_norm(y, tensors, after))
      return fused_norm(y, tensors, after, {norm.is_training(), kMomentum, BatchNorm2dImpl::kEps});
    y = folded != nullptr ? y + folded->shift.view({-1, 1, 1}).to(y.scalar_type()) : norm.forward(y);
  }
  if (after.residual.defined()) y.add_(after.residual);
  if (after.relu) y.relu_();
  if (after.pool == kernels::Pool::kMax) y = at::max_pool2d(y, 3, 2, 1);
  if (after.pool == kernels::Pool::kMean) y = at::avg_pool2d(y, 2);
  return {y, y};
}

at::Tensor activate(Activation activation, const at::Tensor& x) {
  if (activation == Activation::kGelu) return at::gelu(x);
  // silu(cx) / c = x·sigmoid(cx), with one pass fewer and one tensor fewer kept for the gradient.
  constexpr double kScale = 1.702;
  return at::silu(x * kScale) * (1 / kScale);
}

void Residual::add(const Linear& linear, at::Tensor input) {
  sum();
  linear_ = linear;
  input_ = std::move(input);
}

at::Tensor Residual::normed(const LayerNorm& norm) {
  const at::ScalarType branches = branch_type(x_);
  if (!fuses_stream(x_, branches)) return norm->forward(sum());
  at::Tensor branch, bias;
  if (input_.defined()) {
    branch = linear_gemm(autocasted(input_), autocasted(linear_->weight));
    bias = linear_->bias;
    input_.reset();
  }
  auto [sum, normed] = add_layer_norm(x_, branch, bias, norm->weight, norm->bias, norm->eps(), branches);
  x_ = std::move(sum);
  return normed;
}

void Residual::keep_first(int64_t count) {
  x_ = x_.narrow(1, 0, count);
  if (input_.defined()) input_ = input_.narrow(1, 0, count);
}

at::Tensor Residual::sum() {
  if (input_.defined()) x_ = linear_->add_to(x_, std::exchange(input_, at::Tensor()));
  return x_;
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

void TransformerBlockImpl::forward(Residual& x, int64_t wanted) {
  x.add(attn->proj, attn->attend(x.normed(norm1), causal_));
  if (wanted > 0) x.keep_first(wanted);
  x.add(fc2, fc1->activated(activation_, x.normed(norm2)));
}

std::vector<TransformerBlock> make_blocks(torch::nn::Module& owner, const TransformerOptions& options) {
  const auto list = owner.register_module("blocks", std::make_shared<torch::nn::Module>());
  std::vector<TransformerBlock> blocks;
  for (int64_t i = 0; i < options.depth; ++i) {
    blocks.push_back(list->register_module(fmt::format("{}", i), TransformerBlock(options)));
  }
  return blocks;
}

at::Tensor run_blocks(std::vector<TransformerBlock>& blocks, const at::Tensor& x, size_t count,
                      bool recompute, int64_t wanted) {
  Residual stream(x);
  for (size_t i = 0; i < count; ++i) {
    const auto block = blocks[i].ptr();
    const int64_t wanted_here = i + 1 == count ? wanted : 0;
    if (recompute) {
      const auto run = [block, wanted_here](const at::Tensor& input) {
        Residual inside(input);
        block->forward(inside, wanted_here);
        return inside.sum();
      };
      stream = Residual(recomputed(run, stream.sum(), block->parameters()));
    } else {
      block->forward(stream, wanted_here);
    }
  }
  return stream.sum();
}

}  // namespace tpgm
