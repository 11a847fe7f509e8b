// An image model with a head: what is fine-tuned.
#pragma once

#include <torch/arg.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tpgm/models/backbone.h"
#include "tpgm/models/layers.h"
#include "tpgm/models/zero_shot.h"

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

enum class Head {
  kCheckpoint,  // the checkpoint's own; an error if it has none, or of another size
  kFresh,
  kZeroShot,  // a file of `tpgm zeroshot`
};

struct LoadOptions {
  TORCH_ARG(Head, head) = Head::kCheckpoint;
  TORCH_ARG(std::filesystem::path, head_file);  // of kZeroShot
  TORCH_ARG(ClassifierOptions, classifier);
};

struct LoadedClassifier {
  std::shared_ptr<Classifier> model;
  /// For the user to read; see ModelWeights.
  std::vector<std::string> notes;
  /// For the metadata of what is saved from it, by which it is known again: "tpgm.model"; "tpgm.layout", the
  /// one it came in; "tpgm.normalize" and "tpgm.layer" of the head; "tpgm.view", how it saw pictures, and
  /// "tpgm.templates", what it was told of them, where the checkpoint says so.
  std::map<std::string, std::string> metadata;
};

/// A model by name ("resnet50", "script:model.pt") or "" for whatever the checkpoint is, with the weights of
/// `checkpoint`, which for a script may be empty. Everything is checked before anything is returned.
LoadedClassifier load_classifier(const std::string& model, const std::filesystem::path& checkpoint,
                                 const LoadOptions& options);

}  // namespace tpgm
