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
  kCheckpoint,  // the checkpoint's own, or the outputs of a script; an error if there is none, or of another size
  kFresh,
  kZeroShot,  // a file that save_zero_shot() wrote
};

struct LoadOptions {
  TORCH_ARG(Head, head) = Head::kCheckpoint;
  TORCH_ARG(std::filesystem::path, head_file);  // of kZeroShot
  TORCH_ARG(ClassifierOptions, classifier);
  /// A script that is run wherever it lies if the checkpoint says that its model is a script: the one that the
  /// recipe of its run names (script_of_run()).
  TORCH_ARG(std::filesystem::path, script);
  /// The checkpoint, if the caller has opened it; it is not opened again then.
  TORCH_ARG(std::optional<Checkpoint>, opened);
};

struct LoadedClassifier {
  std::shared_ptr<Classifier> model;
  /// For the user to read; see ModelWeights.
  std::vector<std::string> notes;
  /// For the metadata of what is saved from it, by which it is known again: kModel, kLayout, kNormalize,
  /// kLayer and kHeadName of `keys`, and kView and kTemplates where the checkpoint has them.
  Metadata metadata;
  /// The class names of `head_file`, with Head::kZeroShot.
  std::vector<std::string> class_names;
  /// The open checkpoint, for callers that need more of it; empty if there was none.
  std::optional<Checkpoint> checkpoint;
  /// The logits are the outputs of a script, in the order of the classes: the head is frozen and computes
  /// nothing. The layer that computes them is model->options().head_name: the one that options.classifier() or
  /// the metadata names, or else the last if it is linear with a bias; empty if it is not known.
  bool outputs_are_logits = false;
};

/// `model` names the model ("resnet50", "script:model.pt"); empty: the checkpoint says what it is.
/// `checkpoint` has the weights; for a script it may be empty. Sizes of a script come from the metadata unless
/// `model` gives them. With Head::kCheckpoint a script without a head of ours is a classifier by itself: its
/// outputs are the logits. Everything is checked before anything is returned.
///
/// A script is a program, so a checkpoint cannot choose freely what is run: its metadata may name a script in
/// or below its own folder or the working folder, or stand for options.script(). A script that is no longer
/// where the metadata says is looked for beside the checkpoint, by the name of its file. A note names what is
/// run, whoever names it.
///
/// A file may be a link, whose own place counts, as in the caches of hubs; links of folders count as where they
/// lead. Of the root folder only what is directly in it counts, because everything is below it.
LoadedClassifier load_classifier(const std::string& model, const std::filesystem::path& checkpoint,
                                 const LoadOptions& options);

/// Whether a checkpoint brings a head of its own; the outputs of a script are none. `model` and `script` as for
/// load_classifier(), which runs a script as this does.
bool has_head(const std::string& model, const std::filesystem::path& checkpoint,
              const std::filesystem::path& script = {});

}  // namespace tpgm
