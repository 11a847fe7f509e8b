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
  /// Whether a fresh head has one.
  TORCH_ARG(bool, bias) = true;
  /// L2-normalise the features before the head, as zero-shot heads need it.
  TORCH_ARG(bool, normalize) = false;
  /// Which of the backbone's blocks() gives the features; empty: its output.
  TORCH_ARG(std::string, layer) = "";
};

/// A backbone, and one of two kinds of head, which the constructor chooses:
///   - A linear head: logits are `head`(features). It is fresh, or was made before.
///   - A text head, for CLIP's two towers that train together: logits are the normalised features times the
///     embeddings of the class names, times exp(`logit_scale`). The text tower makes them anew in every
///     forward pass. `head` is null then; with a linear head `text` and `logit_scale` are undefined.
///
/// Names: backbone.*; of a linear head head.weight [classes, features] and head.bias, of a text head text.*
/// and logit_scale.
class Classifier : public torch::nn::Module {
 public:
  /// A fresh linear head: normal with deviation 0.01, bias 0. It has no pre-trained values, hence no
  /// anchor: see unanchored().
  Classifier(std::shared_ptr<Backbone> backbone, const ClassifierOptions& options);
  /// The linear head of a zero-shot classifier or of a checkpoint (`bias` may be undefined). It is part of
  /// what was pre-trained and is anchored like the rest. options.num_classes, if given, must agree.
  Classifier(std::shared_ptr<Backbone> backbone, const at::Tensor& weight, const at::Tensor& bias,
             const ClassifierOptions& options);

  /// A text head. `tokens` [classes, templates, n]: the sentences of each class, see tokenize_classes().
  Classifier(const Clip& clip, at::Tensor tokens);

  /// images to logits [batch, classes].
  at::Tensor forward(const at::Tensor& images);
  /// What the head is given: features of options().layer, normalised where options() say so.
  at::Tensor features(const at::Tensor& images);

  bool has_text_head() const { return text != nullptr; }
  /// To be called after each of an optimizer's steps: what the model's authors hold its parameters to.
  void after_update();

  int64_t num_classes() const { return options_.num_classes(); }
  const ClassifierOptions& options() const { return options_; }
  /// Globs of the parameters that have no pre-trained values, for a method's `exclude`.
  std::vector<std::string> unanchored() const;
  /// Globs of blocks, input to output, and then the head if it is anchored: one per group of smoothing.
  std::vector<std::string> block_globs() const;

  std::shared_ptr<Backbone> backbone;
  Linear head{nullptr};            ///< the linear head
  std::shared_ptr<ClipText> text;  ///< the text head's tower
  at::Tensor logit_scale;          ///< and the logarithm of its scale

 private:
  at::Tensor text_weight();

  ClassifierOptions options_;
  bool fresh_head_;
  at::Tensor tokens_;  // no buffer: it belongs to the classes, not to the weights
};

}  // namespace tpgm
