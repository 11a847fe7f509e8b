#include "tpgm/models/clip.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <utility>

#include "tpgm/nn/init.h"

namespace tpgm {

ClipText::ClipText(const ClipTextOptions& options) : options_(options) {
  TORCH_CHECK(options.context() > 0 && options.vocab() > 0 && options.width() > 0 && options.depth() > 0 &&
                  options.embedding() > 0,
              "[ClipText] context, vocab, width, depth and embedding must be positive");
  const auto stem = register_module("stem", std::make_shared<torch::nn::Module>());
  const auto token = stem->register_module("token", std::make_shared<torch::nn::Module>());
  token_ = token->register_parameter("weight", allocate({options.vocab(), options.width()}));
  position_ = stem->register_parameter("position", allocate({options.context(), options.width()}));
  blocks_ = make_blocks(*this, {.width = options.width(),
                                .depth = options.depth(),
                                .heads = options.heads(),
                                .mlp = options.mlp() > 0 ? options.mlp() : 4 * options.width(),
                                .activation = options.activation(),
                                .eps = options.eps(),
                                .causal = true});
  norm_ = register_module("norm", LayerNorm(options.width(), options.eps()));
  projection_ =
      register_module("projection", Linear(options.width(), options.embedding(), /*with_bias=*/false));
}

at::Tensor ClipText::forward(const at::Tensor& tokens) {
  TORCH_CHECK(tokens.dim() == 2 && tokens.scalar_type() == at::kLong && tokens.size(1) <= options_.context(),
              "[ClipText] tokens are ", tokens.scalar_type(), " ", tokens.sizes(),
              ", expected int64 [texts, at most ", options_.context(), "]");
  const at::Tensor embedded = at::embedding(token_, tokens) + position_.narrow(0, 0, tokens.size(1));
  const at::Tensor x = run_blocks(blocks_, embedded, blocks_.size(), /*recompute=*/false);
  // Attention is causal, so tokens after the end do not matter.
  const at::Tensor end =
      (options_.end_of_text() < 0 ? tokens : tokens.eq(options_.end_of_text()).to(at::kInt)).argmax(1);
  const at::Tensor last = x.index({at::arange(x.size(0), tokens.options()), end});
  return projection_->forward(norm_->forward(last));
}

void ClipText::reset_parameters() {
  const at::NoGradGuard no_grad;
  token_.normal_(0, 0.02);
  position_.normal_(0, 0.01);
  init_blocks(blocks_, options_.width(), /*clip=*/true);
  init_norm(*norm_);
  projection_->weight.normal_(0, 1 / std::sqrt(static_cast<double>(options_.width())));
}

Clip::Clip(std::shared_ptr<Backbone> image_tower, std::shared_ptr<ClipText> text_tower)
    : visual(register_module("visual", std::move(image_tower))),
      text(register_module("text", std::move(text_tower))),
      logit_scale(register_parameter("logit_scale", allocate({}))) {
  TORCH_CHECK(visual->num_features() == text->options().embedding(), "[Clip] images become ",
              visual->num_features(), " features and texts ", text->options().embedding(),
              "; they must be as many");
}

at::Tensor Clip::forward(const at::Tensor& images, const at::Tensor& tokens) {
  const at::Tensor image_features = normalized(visual->forward(images));
  const at::Tensor text_features = normalized(text->forward(tokens));
  return logit_scale.exp() * image_features.matmul(text_features.t());
}

void Clip::reset_parameters() {
  const at::NoGradGuard no_grad;
  visual->reset_parameters();
  text->reset_parameters();
  logit_scale.fill_(std::log(1 / 0.07));
}

at::Tensor normalized(const at::Tensor& features) {
  return features / features.norm(2, -1, /*keepdim=*/true).clamp_min(1e-12);
}

}  // namespace tpgm
