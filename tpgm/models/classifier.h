// The model that is fine-tuned: a backbone with a linear head or a text head.
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
  /// Whether a fresh head has a bias.
  TORCH_ARG(bool, bias) = true;
  /// L2-normalize the features before the head, as zero-shot heads need it.
  TORCH_ARG(bool, normalize) = false;
  /// Which of the backbone's blocks() gives the features; empty: its output.
  TORCH_ARG(std::string, layer) = "";
  /// The module of the backbone that is the head ("fc"), where the logits are the backbone's outputs and `head`
  /// computes nothing; empty: `head` is.
  TORCH_ARG(std::string, head_name) = "";
};

/// A backbone with one of two heads, which the constructor chooses:
///   - A linear head: logits are `head`(features). `text` and `logit_scale` are undefined.
///   - A text head, with which both towers of CLIP train: logits are the normalized features times the
///     embeddings of the class names, times exp(`logit_scale`). The text tower computes the embeddings in every
///     forward pass. `head` is null.
///
/// Parameters: backbone.*, and head.weight [classes, features] and head.bias, or text.* and logit_scale.
class Classifier : public torch::nn::Module {
 public:
  /// Makes a fresh linear head: weights are normal with standard deviation 0.01, biases 0. It has no
  /// pre-trained values, and therefore no anchor (unanchored()).
  Classifier(std::shared_ptr<Backbone> backbone, const ClassifierOptions& options);
  /// Takes the linear head of a zero-shot classifier or of a checkpoint; `bias` may be undefined. The head is
  /// pre-trained and is anchored like the backbone. options.num_classes must be 0 or the number of classes of
  /// the head.
  Classifier(std::shared_ptr<Backbone> backbone, const at::Tensor& weight, const at::Tensor& bias,
             const ClassifierOptions& options);

  /// Makes a text head. `tokens` [classes, templates, n] are the prompts of each class (tokenize_classes()).
  Classifier(const Clip& clip, at::Tensor tokens);

  /// The logits [batch, classes] of images.
  at::Tensor forward(const at::Tensor& images);
  /// The input of the head: the features of options().layer, L2-normalized with options().normalize.
  at::Tensor features(const at::Tensor& images);

  bool has_text_head() const { return text != nullptr; }
  /// Call this after each step of an optimizer: it keeps parameters in the range that the authors of the
  /// model keep them in (CLIP's logit_scale is at most log(100)).
  void after_update();

  int64_t num_classes() const { return options_.num_classes(); }
  const ClassifierOptions& options() const { return options_; }
  /// The name of the module that is the head: "head", or "backbone.fc" with options().head_name.
  std::string head_module() const;
  /// Globs of the parameters without pre-trained values, for the option `exclude` of methods.
  std::vector<std::string> unanchored() const;
  /// Globs of the blocks from input to output, and of the head if it is anchored: the groups for smoothing
  /// radii.
  std::vector<std::string> block_globs() const;

  std::shared_ptr<Backbone> backbone;
  Linear head{nullptr};            ///< the linear head
  std::shared_ptr<ClipText> text;  ///< the text tower of a text head
  at::Tensor logit_scale;          ///< the logarithm of its scale

 private:
  at::Tensor text_weight();

  ClassifierOptions options_;
  bool fresh_head_;
  at::Tensor tokens_;  // not a buffer: it belongs to the classes, not to the weights
};

}  // namespace tpgm
