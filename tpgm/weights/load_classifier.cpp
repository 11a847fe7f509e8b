// A backbone and a head, from checkpoints, model files and text.
#include "tpgm/weights/load_classifier.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <utility>

#include "tpgm/base/call.h"
#include "tpgm/models/families.h"
#include "tpgm/models/named_models.h"
#include "tpgm/text/zero_shot.h"
#include "tpgm/weights/read.h"

namespace tpgm {
namespace {

// What a checkpoint gives to a classifier.
struct Parts {
  std::shared_ptr<Backbone> backbone;
  at::Tensor head, bias;
  std::optional<ModelConfig> config;  // of a model that is made from sizes
  Metadata metadata;
};

// Loads a model that is a file (a script). The tensors of its checkpoint have the model's own names, also in
// the checkpoint of a classifier.
Parts load_file(ModelConfig config, const std::filesystem::path& path, LoadedClassifier& result) {
  if (!path.empty()) {
    result.checkpoint.emplace(path);
    // The file may have moved since, but the sizes stay unless the user gives others.
    const auto trained = model_of(*result.checkpoint);
    if (trained && trained->family == config.family) fill(config, *trained);
  }
  Parts parts{make_backbone(config), {}, {}, {}, {}};
  keys::kModel.set(result.metadata, to_text(config));
  if (!result.checkpoint) return parts;
  const Checkpoint& checkpoint = *result.checkpoint;
  const NamedTensors backbone = below(checkpoint.tensors(), "backbone.");
  if (backbone.is_empty() || !checkpoint.contains("head.weight")) {  // the model's alone
    load_weights(*parts.backbone, checkpoint);
    return parts;
  }
  load_state_dict(*parts.backbone, backbone, {}, path);
  parts.head = checkpoint.tensor("head.weight");
  if (checkpoint.contains("head.bias")) parts.bias = checkpoint.tensor("head.bias");
  parts.metadata = checkpoint.metadata();
  keys::kView.copy(parts.metadata, result.metadata);
  return parts;
}

Parts load_model(const std::optional<ModelConfig>& wanted, const std::filesystem::path& file,
                 LoadedClassifier& result) {
  const Checkpoint checkpoint(file);
  result.checkpoint = checkpoint;
  ModelWeights weights = read_weights(checkpoint, wanted);
  Parts parts{make_backbone(weights.config), {}, {}, weights.config, checkpoint.metadata()};
  load_state_dict(*parts.backbone, weights.backbone(), {}, file);
  if (weights.has_head()) parts.head = weights.tensors["head.weight"];
  if (const auto* bias = weights.tensors.find("head.bias")) parts.bias = *bias;
  result.notes = std::move(weights.notes);
  weights.config.recompute.reset();  // it changes how features are computed, not their values
  keys::kModel.set(result.metadata, to_text(weights.config));
  keys::kLayout.set(result.metadata, to_text(weights.layout));
  keys::kView.copy(checkpoint.metadata(), result.metadata);
  keys::kTemplates.copy(checkpoint.metadata(), result.metadata);
  return parts;
}

std::shared_ptr<Classifier> with_zero_shot_head(const Parts& parts, const LoadOptions& options,
                                                LoadedClassifier& result) {
  ZeroShotHead head = load_zero_shot(options.head_file());
  if (parts.config && !head.model.empty()) {
    std::vector<std::string> texts;
    ModelConfig made_with = parse_model(head.model);
    TORCH_CHECK(made_with.family == parts.config->family, "'", options.head_file().string(),
                "' was made with a ", made_with.family->name, ", and this is a ", parts.config->family->name);
    for (const auto& [size, theirs, ours] : conflicts(made_with, *parts.config)) {
      if (size != "image_size" && size != "recompute")
        texts.push_back(fmt::format("{} {}, not {}", size, theirs, ours));
    }
    TORCH_CHECK(texts.empty(), "'", options.head_file().string(), "' was made with another model (",
                fmt::format("{}", fmt::join(texts, ", ")), "); make one with this");
  }
  result.class_names = std::move(head.class_names);
  return std::make_shared<Classifier>(parts.backbone, head.weight, at::Tensor(),
                                      ClassifierOptions(options.classifier()).normalize(true));
}

// The checkpoint's own, used as it was trained.
std::shared_ptr<Classifier> with_own_head(const Parts& parts, const std::filesystem::path& checkpoint,
                                          const LoadOptions& options) {
  TORCH_CHECK(
      parts.head.defined(), checkpoint.empty() ? "a script" : fmt::format("'{}'", checkpoint.string()),
      " has no classification head of its own; make a zero-shot head from class names and give it with "
      "`head`, or train one");
  ClassifierOptions own(options.classifier());
  if (keys::kNormalize.of(parts.metadata)) own.normalize(true);
  if (keys::kLayer.in(parts.metadata)) own.layer(keys::kLayer.of(parts.metadata));
  return std::make_shared<Classifier>(parts.backbone, parts.head, parts.bias, own);
}

}  // namespace

LoadedClassifier load_classifier(const std::string& model, const std::filesystem::path& checkpoint,
                                 const LoadOptions& options) try {
  LoadedClassifier result;
  const auto wanted = model.empty() ? std::nullopt : std::optional(parse_model(model));
  const Parts parts = wanted && wanted->family->is_file() ? load_file(*wanted, checkpoint, result)
                                                          : load_model(wanted, checkpoint, result);
  if (options.head() == Head::kCheckpoint) {
    result.model = with_own_head(parts, checkpoint, options);
  } else {
    if (parts.head.defined()) {
      result.notes.push_back(fmt::format("left out the head of {} classes", parts.head.size(0)));
    }
    result.model = options.head() == Head::kFresh
                       ? std::make_shared<Classifier>(parts.backbone, options.classifier())
                       : with_zero_shot_head(parts, options, result);
  }
  const auto& used = result.model->options();
  keys::kNormalize.set(result.metadata, used.normalize());
  if (!used.layer().empty()) keys::kLayer.set(result.metadata, used.layer());
  return result;
} catch (...) {
  rethrow_from("load_classifier");
}

}  // namespace tpgm
