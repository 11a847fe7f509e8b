#include "tpgm/models/vit.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "tpgm/nn/init.h"
#include "tpgm/nn/residual.h"

namespace tpgm {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// Concatenates a token of zeros and patches [batch, patches, width], and adds offsets [1 + patches, width];
// the result has the wider type of the two. It takes one pass over the tokens, and two in the backward pass.
struct Tokens : torch::autograd::Function<Tokens> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& patches, const at::Tensor& offsets) {
    const int64_t batch = patches.size(0), count = patches.size(1);
    at::Tensor tokens = at::empty({batch, 1 + count, patches.size(2)},
                                  patches.options().dtype(at::result_type(patches, offsets)));
    tokens.select(1, 0).copy_(offsets[0]);
    at::Tensor behind = tokens.narrow(1, 1, count);
    at::add_out(behind, patches, offsets.narrow(0, 1, count));
    context->saved_data["patches"] = patches.scalar_type();
    context->saved_data["offsets"] = offsets.scalar_type();
    return tokens;
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& grads) {
    const at::Tensor& grad = grads[0];
    at::Tensor d_patches, d_offsets;
    if (context->needs_input_grad(0)) {
      const auto type = context->saved_data["patches"].toScalarType();
      d_patches = grad.narrow(1, 1, grad.size(1) - 1).to(type, false, false, at::MemoryFormat::Contiguous);
    }
    if (context->needs_input_grad(1))
      d_offsets = grad.sum(0, /*keepdim=*/false, context->saved_data["offsets"].toScalarType());
    return {d_patches, d_offsets};
  }
};

}  // namespace

VisionTransformer::VisionTransformer(const VitOptions& options) : options_(options) {
  TORCH_CHECK(options.width() > 0 && options.depth() > 0 && options.channels() > 0 && options.patch() > 0,
              "[VisionTransformer] width, depth, channels and patch must be positive");
  TORCH_CHECK(options.image_size() > 0 && options.image_size() % options.patch() == 0,
              "[VisionTransformer] image_size ", options.image_size(), " is not a multiple of the patch, ",
              options.patch());
  const int64_t width = options.width(), side = options.image_size() / options.patch();
  const auto stem = register_module("stem", std::make_shared<torch::nn::Module>());
  const auto patch = stem->register_module("patch", std::make_shared<torch::nn::Module>());
  patch_weight_ = patch->register_parameter(
      "weight", allocate({width, options.channels(), options.patch(), options.patch()}));
  if (options.patch_bias()) patch_bias_ = patch->register_parameter("bias", allocate({width}));
  class_token_ = stem->register_parameter("class_token", allocate({width}));
  position_ = stem->register_parameter("position", allocate({1 + side * side, width}));
  if (options.pre_norm()) pre_norm_ = stem->register_module("norm", LayerNorm(width, options.eps()));
  blocks_ = make_blocks(*this, {.width = width,
                                .depth = options.depth(),
                                .heads = options.heads(),
                                .mlp = options.mlp() > 0 ? options.mlp() : 4 * width,
                                .activation = options.activation(),
                                .eps = options.eps()});
  norm_ = register_module("norm", LayerNorm(width, options.eps()));
  if (options.embedding() > 0) {
    projection_ = register_module("projection", Linear(width, options.embedding(), /*with_bias=*/false));
  }
}

at::Tensor VisionTransformer::embed(const at::Tensor& images) {
  check_images(images, /*any_size=*/false);
  // Patches do not overlap, so the convolution is one GEMM, which writes the tokens in the order that the
  // blocks expect.
  const int64_t batch = images.size(0), patch = options_.patch(), side = options_.image_size() / patch;
  const at::Tensor pixels = images.view({batch, options_.channels(), side, patch, side, patch})
                                .permute({0, 2, 4, 1, 3, 5})
                                .to(branch_type(images), false, false, at::MemoryFormat::Contiguous)
                                .reshape({batch, side * side, -1});
  const at::Tensor patches = at::linear(pixels, patch_weight_.flatten(1));
  const at::Tensor bias =
      (patch_bias_.defined() ? patch_bias_ : at::zeros_like(class_token_)).expand({side * side, -1});
  const at::Tensor tokens = Tokens::apply(patches, position_ + at::cat({class_token_.unsqueeze(0), bias}));
  return pre_norm_.is_empty() ? tokens : pre_norm_->forward(tokens);
}

at::Tensor VisionTransformer::pooled(const at::Tensor& tokens) const {
  return options_.pool() == Pool::kClass ? tokens.select(1, 0)
                                         : tokens.narrow(1, 1, tokens.size(1) - 1).mean(1);
}

at::Tensor VisionTransformer::features(const at::Tensor& images, const std::string& layer) {
  const size_t last = layer.empty() ? blocks_.size() + 2 : index_of(layer);
  const at::Tensor x = run_blocks(blocks_, embed(images), std::min(last, blocks_.size()),
                                  options_.recompute(), options_.pool() == Pool::kClass ? 1 : 0);
  at::Tensor token = pooled(x);
  if (last > blocks_.size()) token = norm_->forward(token);
  return last > blocks_.size() + 1 && !projection_.is_empty() ? projection_->forward(token) : token;
}

int64_t VisionTransformer::num_features(const std::string& layer) const {
  const bool projected = !projection_.is_empty() && (layer.empty() || layer == "projection");
  if (!layer.empty()) index_of(layer);
  return projected ? options_.embedding() : options_.width();
}

std::vector<std::string> VisionTransformer::blocks() const {
  std::vector<std::string> names{"stem"};
  for (size_t i = 0; i < blocks_.size(); ++i) names.push_back(fmt::format("blocks.{}", i));
  names.emplace_back("norm");
  if (!projection_.is_empty()) names.emplace_back("projection");
  return names;
}

int64_t VisionTransformer::multiply_adds() const {
  const int64_t width = options_.width(), tokens = position_.size(0);
  int64_t count = (tokens - 1) * patch_weight_.numel();
  for (const auto& block : blocks_) {
    count += tokens * (block->attn->qkv->weight.numel() + block->attn->proj->weight.numel() +
                       block->fc1->weight.numel() + block->fc2->weight.numel()) +
             2 * tokens * tokens * width;
  }
  return count + (projection_.is_empty() ? 0 : projection_->weight.numel());
}

void VisionTransformer::reset_parameters() {
  const at::NoGradGuard no_grad;
  const double std = options_.pre_norm() ? 1 / std::sqrt(static_cast<double>(options_.width())) : 0.02;
  for (auto norm : {pre_norm_, norm_}) {
    if (!norm.is_empty()) init_norm(*norm);
  }
  // By the fan-in of a patch. CLIP uses the default of torch.nn.Conv2d, which has the same standard
  // deviation.
  patch_weight_.normal_(0, 1 / std::sqrt(3.0 * static_cast<double>(patch_weight_[0].numel())));
  if (patch_bias_.defined()) patch_bias_.zero_();
  class_token_.normal_(0, options_.pre_norm() ? std : 1e-6);
  position_.normal_(0, std);
  init_blocks(blocks_, options_.width(), options_.pre_norm());
  if (!projection_.is_empty()) projection_->weight.normal_(0, std);
}

at::Tensor resize_position(const at::Tensor& position, int64_t to, int64_t extra) {
  const int64_t patches = position.size(0) - extra;
  const auto side = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(patches))));
  TORCH_CHECK(position.dim() == 2 && patches > 0 && side * side == patches, "[resize_position] ",
              position.size(0), " positions are not ", extra, " and a square");
  const at::Tensor map =
      position.narrow(0, extra, patches).to(at::kFloat).view({1, side, side, -1}).permute({0, 3, 1, 2});
  const at::Tensor resized = at::_upsample_bicubic2d_aa(map, {to, to}, /*align_corners=*/false);
  return at::cat(
      {position.narrow(0, 0, extra), resized.flatten(2).squeeze(0).t().to(position.scalar_type())});
}

}  // namespace tpgm
