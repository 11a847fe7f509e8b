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
  /// For the metadata of what is saved from it, by which it is known again: kModel, kLayout, kNormalize and
  /// kLayer of `keys`, and kView and kTemplates where the checkpoint has them.
  Metadata metadata;
  /// As it was opened, for who wants to know more of it; none if there was no checkpoint.
  std::optional<Checkpoint> checkpoint;
};

/// A model by name ("resnet50", "script:model.pt") or "" for whatever the checkpoint is, with the weights of
/// `checkpoint`, which for a script may be empty. A script is a program: it is run only where `model` names
/// it, whatever the metadata of a checkpoint says, and takes its sizes from there unless it is given others.
/// Everything is checked before anything is returned.
LoadedClassifier load_classifier(const std::string& model, const std::filesystem::path& checkpoint,
                                 const LoadOptions& options);

}  // namespace tpgm
