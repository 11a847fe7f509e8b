// CLIP (Radford et al. 2021): an image tower and a text tower that meet in one space.
#pragma once

#include <torch/arg.h>

#include <memory>
#include <vector>

#include "tpgm/models/backbone.h"
#include "tpgm/nn/layers.h"

namespace tpgm {

struct ClipTextOptions {
  TORCH_ARG(int64_t, context) = 77;
  TORCH_ARG(int64_t, vocab) = 49408;
  TORCH_ARG(int64_t, width) = 512;
  TORCH_ARG(int64_t, depth) = 12;
  TORCH_ARG(int64_t, heads) = 8;
  /// Hidden width of the MLPs; 0: four times the width.
  TORCH_ARG(int64_t, mlp) = 0;
  TORCH_ARG(int64_t, embedding) = 512;
  TORCH_ARG(Activation, activation) = Activation::kQuickGelu;
  TORCH_ARG(double, eps) = 1e-5;
  /// The token whose first place in a text gives its features. By default the largest in each text, which in
  /// CLIP's vocabulary is end-of-text.
  TORCH_ARG(int64_t, end_of_text) = -1;
};

/// Names: stem.token.weight [vocab, width], stem.position [context, width], blocks.*, norm,
/// projection.weight [embedding, width].
class ClipText : public torch::nn::Module {
 public:
  explicit ClipText(const ClipTextOptions& options);
  /// tokens [texts, n], int64, n ≤ context, to [texts, embedding].
  at::Tensor forward(const at::Tensor& tokens);
  const ClipTextOptions& options() const { return options_; }
  void reset_parameters();

 private:
  ClipTextOptions options_;
  at::Tensor token_, position_;
  std::vector<TransformerBlock> blocks_;
  LayerNorm norm_{nullptr};
  Linear projection_{nullptr};
};

/// Names: visual.*, text.*, logit_scale (a logarithm).
class Clip : public torch::nn::Module {
 public:
  /// Both towers must give features of one size.
  Clip(std::shared_ptr<Backbone> visual, std::shared_ptr<ClipText> text);

  /// [images, texts]: the cosine of each pair, scaled.
  at::Tensor forward(const at::Tensor& images, const at::Tensor& tokens);
  void reset_parameters();

  std::shared_ptr<Backbone> visual;
  std::shared_ptr<ClipText> text;
  at::Tensor logit_scale;
};

/// Rows of length one.
at::Tensor normalized(const at::Tensor& features);

}  // namespace tpgm
