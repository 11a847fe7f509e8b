// An image model with a head: what is fine-tuned.
#pragma once

#include <torch/arg.h>

#include <memory>
#include <string>
#include <vector>

#include "tpgm/models/backbone.h"
#include "tpgm/models/clip.h"
#include "tpgm/nn/layers.h"

namespace tpgm {

struct ClassifierOptions {
  TORCH_ARG(int64_t, num_classes) = 0;
  /// Of the fresh head.
  TORCH_ARG(bool, bias) = true;
  /// L2-normalise the features before the head, as zero-shot heads need it.
  TORCH_ARG(bool, normalize) = false;
  /// Which of the backbone's blocks() gives the features; empty: its output.
  TORCH_ARG(std::string, layer) = "";
};

/// Names: backbone.*, head.weight [classes, features], head.bias; with a text tower text.* and logit_scale in
/// place of the head.
class Classifier : public torch::nn::Module {
 public:
  /// With a fresh linear head: normal with deviation 0.01, bias 0. It has no pre-trained values, hence no
  /// anchor: see unanchored().
  Classifier(std::shared_ptr<Backbone> backbone, const ClassifierOptions& options);
  /// With the head of a zero-shot classifier, or of a checkpoint (`bias` may be undefined). It is part of
  /// what was pre-trained and is anchored like the rest. options.num_classes, if given, must agree.
  Classifier(std::shared_ptr<Backbone> backbone, const at::Tensor& weight, const at::Tensor& bias,
             const ClassifierOptions& options);

  /// Both towers of CLIP, which train together: the head is made from text anew in every forward pass.
  /// `tokens` [classes, templates, n]: the sentences of each class, see tokenize_classes(). There is no
  /// `head` then.
  Classifier(const Clip& clip, at::Tensor tokens);

  /// images to logits [batch, classes].
  at::Tensor forward(const at::Tensor& images);
  /// What the head sees.
  at::Tensor features(const at::Tensor& images);

  /// To be called after each of an optimizer's steps: what the model's authors hold its parameters to.
  void after_update();

  int64_t num_classes() const { return options_.num_classes(); }
  const ClassifierOptions& options() const { return options_; }
  /// Globs of the parameters that have no pre-trained values, for a method's `exclude`.
  std::vector<std::string> unanchored() const;
  /// Globs of blocks, input to output, and then the head if it is anchored: one per group of smoothing.
  std::vector<std::string> block_globs() const;

  std::shared_ptr<Backbone> backbone;
  Linear head{nullptr};            ///< or
  std::shared_ptr<ClipText> text;  ///< and
  at::Tensor logit_scale;

 private:
  at::Tensor text_head();

  ClassifierOptions options_;
  bool fresh_head_;
  at::Tensor tokens_;  // no buffer: it belongs to the classes, not to the weights
};

}  // namespace tpgm
