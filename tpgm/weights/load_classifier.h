// Model, weights and head in one call.
#pragma once

#include <torch/arg.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tpgm/io/checkpoint.h"
#include "tpgm/io/metadata.h"
#include "tpgm/models/classifier.h"

namespace tpgm {

enum class Head {
  kCheckpoint,  // the checkpoint's own; an error if it has none, or of another size
  kFresh,
  kZeroShot,  // a file that save_zero_shot() wrote
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
  /// For the metadata of what is saved from it, by which it is known again: kModel, kLayout, kNormalize and
  /// kLayer of `keys`, and kView and kTemplates where the checkpoint has them.
  Metadata metadata;
  /// The class names of `head_file`, with Head::kZeroShot.
  std::vector<std::string> class_names;
  /// The open checkpoint, for callers that need more of it; empty if there was none.
  std::optional<Checkpoint> checkpoint;
};

/// `model` names the model ("resnet50", "script:model.pt"); empty: the checkpoint says what it is.
/// `checkpoint` has the weights; for a script it may be empty. A script is a program, so only `model` can
/// name it, never the metadata of a checkpoint; its sizes come from the metadata unless `model` gives them.
/// Everything is checked before anything is returned.
LoadedClassifier load_classifier(const std::string& model, const std::filesystem::path& checkpoint,
                                 const LoadOptions& options);

}  // namespace tpgm
