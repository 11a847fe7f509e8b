#include "tpgm/models/classifier.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <utility>

#include "tpgm/nn/precision.h"

namespace tpgm {

Classifier::Classifier(std::shared_ptr<Backbone> image_model, const ClassifierOptions& options)
    : backbone(register_module("backbone", std::move(image_model))), options_(options), fresh_head_(true) {
  TORCH_CHECK(options.num_classes() > 0, "[Classifier] num_classes is ", options.num_classes(),
              "; a fresh head needs at least 1");
  head = register_module(
      "head", Linear(backbone->num_features(options.layer()), options.num_classes(), options.bias()));
  const at::NoGradGuard no_grad;
  head->weight.normal_(0, 0.01);
  if (options.bias()) head->bias.zero_();
}

Classifier::Classifier(std::shared_ptr<Backbone> image_model, const at::Tensor& weight,
                       const at::Tensor& bias, const ClassifierOptions& options)
    : backbone(register_module("backbone", std::move(image_model))), options_(options), fresh_head_(false) {
  const int64_t features = backbone->num_features(options.layer());
  TORCH_CHECK(weight.dim() == 2 && weight.size(0) > 0 && weight.size(1) == features,
              "[Classifier] the head is ", weight.sizes(), ", expected [classes,", features,
              "]: is it of another model?");
  TORCH_CHECK(!bias.defined() || (bias.dim() == 1 && bias.size(0) == weight.size(0)),
              "[Classifier] the head's bias is ", bias.sizes(), ", its weight ", weight.sizes());
  TORCH_CHECK(options.num_classes() == 0 || options.num_classes() == weight.size(0),
              "[Classifier] the head has ", weight.size(0), " classes, ", options.num_classes(),
              " were asked for; take a fresh head, or one made for these classes");
  options_.num_classes(weight.size(0)).bias(bias.defined());
  head = register_module("head", Linear(features, weight.size(0), bias.defined()));
  const at::NoGradGuard no_grad;
  head->weight.copy_(weight);
  if (bias.defined()) head->bias.copy_(bias);
}

Classifier::Classifier(const Clip& clip, at::Tensor tokens)
    : backbone(register_module("backbone", clip.visual)),
      text(register_module("text", clip.text)),
      logit_scale(register_parameter("logit_scale", clip.logit_scale)),
      fresh_head_(false),
      tokens_(std::move(tokens)) {
  TORCH_CHECK(tokens_.dim() == 3 && tokens_.numel() > 0, "[Classifier] tokens are ", tokens_.sizes(),
              ", expected [classes, templates, n]");
  options_.num_classes(tokens_.size(0)).bias(false).normalize(true);
}

// Computes what make_zero_shot() computes, with gradients.
at::Tensor Classifier::text_weight() {
  if (tokens_.device() != logit_scale.device()) tokens_ = tokens_.to(logit_scale.device());
  at::Tensor embedded = normalized(text->forward(tokens_.flatten(0, 1)));
  if (tokens_.size(1) > 1)
    embedded = normalized(embedded.view({tokens_.size(0), tokens_.size(1), -1}).mean(1));
  return embedded * logit_scale.exp();
}

at::Tensor Classifier::forward(const at::Tensor& images) {
  const CastWeights cast(matrix_weights(*this), gemm_biases(*this));
  const at::Tensor x = features(images);
  return has_text_head() ? x.matmul(text_weight().t()) : head->forward(x);
}

void Classifier::after_update() {
  if (!text) return;
  // As the authors of CLIP do: a larger scale makes training unstable.
  const at::NoGradGuard no_grad;
  logit_scale.clamp_max_(std::log(100.0));
}

at::Tensor Classifier::features(const at::Tensor& images) {
  const at::Tensor features = backbone->features(images, options_.layer());
  return options_.normalize() ? normalized(features) : features;
}

std::string Classifier::head_module() const {
  return options_.head_name().empty() ? "head" : "backbone." + options_.head_name();
}

std::vector<std::string> Classifier::unanchored() const {
  return fresh_head_ ? std::vector<std::string>{"head.*"} : std::vector<std::string>();
}

std::vector<std::string> Classifier::block_globs() const {
  auto globs = tpgm::block_globs(*backbone, "backbone.");
  if (has_text_head()) {
    globs.insert(globs.end(), {"text.*", "logit_scale"});
  } else if (!fresh_head_) {
    globs.emplace_back("head.*");
  }
  return globs;
}

}  // namespace tpgm
