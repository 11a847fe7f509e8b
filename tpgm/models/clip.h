// CLIP (Radford et al. 2021): an image tower and a text tower with a joint embedding space.
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
  /// The token at whose first position the features of a text are taken. -1: the largest token of each text,
  /// which in CLIP's vocabulary is end-of-text.
  TORCH_ARG(int64_t, end_of_text) = -1;
};

/// Parameters: stem.token.weight [vocab, width], stem.position [context, width], blocks.*, norm,
/// projection.weight [embedding, width].
class ClipText : public torch::nn::Module {
 public:
  explicit ClipText(const ClipTextOptions& options);
  /// tokens [texts, n], int64 with n ≤ context → [texts, embedding], not normalized.
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

/// Parameters: visual.*, text.*, and logit_scale (a logarithm).
class Clip : public torch::nn::Module {
 public:
  /// Throws unless both towers have the same number of features.
  Clip(std::shared_ptr<Backbone> visual, std::shared_ptr<ClipText> text);

  /// The scaled cosine similarity of each pair, [images, texts].
  at::Tensor forward(const at::Tensor& images, const at::Tensor& tokens);
  void reset_parameters();

  std::shared_ptr<Backbone> visual;
  std::shared_ptr<ClipText> text;
  at::Tensor logit_scale;
};

/// L2-normalizes each row.
at::Tensor normalized(const at::Tensor& features);

}  // namespace tpgm
