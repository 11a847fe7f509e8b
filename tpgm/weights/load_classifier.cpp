// A backbone and a head, from checkpoints, model files and text.
#include "tpgm/weights/load_classifier.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <system_error>
#include <utility>

#include "tpgm/base/call.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/models/families.h"
#include "tpgm/models/named_models.h"
#include "tpgm/text/zero_shot.h"
#include "tpgm/weights/read.h"

namespace tpgm {
namespace {

namespace fs = std::filesystem;

// What a checkpoint gives to a classifier.
struct Parts {
  std::shared_ptr<Backbone> backbone;
  at::Tensor head, bias;
  std::optional<ModelConfig> config;  // of a model that is made from sizes; else it is a file (a script)
  Metadata metadata;
};

// Whether a file is in `folder` or below it, whatever links lead to these folders. Everything is below the root,
// which says nothing: there a file must be directly in it.
bool is_below(const fs::path& file, const fs::path& folder) {
  std::error_code error;
  const fs::path inside = fs::weakly_canonical(file.parent_path(), error);
  const fs::path above = fs::weakly_canonical(folder, error);
  if (error || above.empty()) return false;
  if (above == above.root_path()) return inside == above;
  const fs::path way = inside.lexically_relative(above);
  return !way.empty() && *way.begin() != "..";
}

// The working folder may have been deleted.
fs::path absolute_path(const fs::path& path) {
  std::error_code error;
  const fs::path result = fs::absolute(path, error);
  TORCH_CHECK(!error, "the path '", path.string(),
              "' is that of a working folder that does not exist any more; ", "change into one that does");
  return result.lexically_normal();
}

// The model of a checkpoint whose metadata names a script, with the file to run. See load_classifier().
ModelConfig find_script(const Checkpoint& checkpoint, ModelConfig named, const fs::path& of_recipe,
                        std::vector<std::string>& notes) {
  const fs::path file = absolute_path(named.file);
  const fs::path folder = absolute_path(checkpoint.files().front()).parent_path();
  std::vector<fs::path> places = {of_recipe};
  std::error_code error;
  if (is_below(file, folder) || is_below(file, fs::current_path(error))) places.push_back(file);
  if (!fs::exists(file, error)) places.push_back(folder / file.filename());
  for (const auto& place : places) {
    if (!fs::is_regular_file(place, error)) continue;
    named.file = place.string();
    notes.push_back(fmt::format("runs the TorchScript program '{}', named by {}", place.string(),
                                place == of_recipe ? "the recipe of its run" : "its metadata"));
    return named;
  }
  const bool there = fs::is_regular_file(file, error);
  if (!there) named.file = "FILE";
  TORCH_CHECK(false, "'", checkpoint.path().string(), "' names the TorchScript program '", file.string(),
              there
                  ? "' as its model, which is neither in or below its own folder nor the working folder; if "
                    "you trust it, give it as `model` "
                  : "' as its model, which is not there, nor beside the checkpoint; give it as `model` ",
              to_text(named));
}

// Whether a checkpoint is that of a classifier with this backbone, and not of the backbone alone, whose own
// names may be "backbone.x" and "head.weight" too.
bool is_classifier_of(const Backbone& backbone, const Checkpoint& checkpoint) {
  const auto names = state_dict(backbone).keys();
  return checkpoint.contains("head.weight") &&
         std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return checkpoint.contains("backbone." + name); });
}

// Loads a model that is a file (a script). The tensors of its checkpoint have the model's own names, also in
// the checkpoint of a classifier.
Parts load_file(ModelConfig config, LoadedClassifier& result) {
  if (result.checkpoint) {
    // The file may have moved since, but the sizes stay unless the user gives others.
    const auto trained = model_of(*result.checkpoint);
    if (trained && trained->family == config.family) fill(config, *trained);
  }
  Parts parts{make_backbone(config), {}, {}, {}, {}};
  config.file = absolute_path(config.file).string();  // to be found from other folders
  keys::kModel.set(result.metadata, to_text(config));
  if (!result.checkpoint) return parts;
  const Checkpoint& checkpoint = *result.checkpoint;
  if (!is_classifier_of(*parts.backbone, checkpoint)) {
    load_weights(*parts.backbone, checkpoint);
    return parts;
  }
  load_state_dict(*parts.backbone, below(checkpoint.tensors(), "backbone."), {}, checkpoint.path());
  parts.head = checkpoint.tensor("head.weight");
  if (checkpoint.contains("head.bias")) parts.bias = checkpoint.tensor("head.bias");
  parts.metadata = checkpoint.metadata();
  keys::kView.copy(parts.metadata, result.metadata);
  return parts;
}

Parts load_model(const std::optional<ModelConfig>& wanted, LoadedClassifier& result) {
  const Checkpoint& checkpoint = *result.checkpoint;
  ModelWeights weights = read_weights(checkpoint, wanted);
  Parts parts{make_backbone(weights.config), {}, {}, weights.config, checkpoint.metadata()};
  load_state_dict(*parts.backbone, weights.backbone(), {}, checkpoint.path());
  if (weights.has_head()) parts.head = weights.tensors["head.weight"];
  if (const auto* bias = weights.tensors.find("head.bias")) parts.bias = *bias;
  result.notes = std::move(weights.notes);
  weights.config.recompute.reset();  // it changes how features are computed, not their values
  keys::kModel.set(result.metadata, to_text(weights.config));
  keys::kLayout.set(result.metadata, to_text(weights.layout));
  if (weights.view != ImageView()) keys::kView.set(result.metadata, weights.view);
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

// Whether a head only selects features: each of its rows is that of an identity matrix. Arithmetic on files
// may have rounded it.
bool only_selects(const at::Tensor& head) {
  const at::Tensor selected = at::zeros_like(head).scatter_(1, head.argmax(1, /*keepdim=*/true), 1);
  return at::allclose(head, selected, /*rtol=*/0, /*atol=*/1e-5);
}

// The linear layers of a script that may have computed its outputs.
std::vector<std::string> head_candidates(const Backbone& backbone) {
  const std::string suffix = ".weight";
  std::vector<std::string> names;
  for (const auto& item : backbone.named_parameters()) {
    const at::Tensor& weight = item.value();
    if (item.key().ends_with(suffix) && weight.dim() == 2 && weight.size(0) == backbone.num_features(""))
      names.push_back(item.key().substr(0, item.key().size() - suffix.size()));
  }
  return names;
}

// A script whose last layer is linear with a bias, as those of classifiers: its name; else empty.
std::string last_linear(const Backbone& backbone) {
  const auto parameters = backbone.named_parameters();
  const std::string suffix = ".bias";
  if (parameters.size() < 2 || !parameters.keys().back().ends_with(suffix)) return "";
  const std::string last = parameters.keys().back();
  const std::string layer = last.substr(0, last.size() - suffix.size());
  const at::Tensor *weight = parameters.find(layer + ".weight"), *bias = parameters.find(last);
  const int64_t outputs = backbone.num_features("");
  const bool linear = weight && weight->dim() == 2 && weight->size(0) == outputs && bias->numel() == outputs;
  return linear ? layer : "";
}

// The layer of a script that is its head: the one that is named, or the last. Empty: it is not known.
std::string find_head(const Backbone& backbone, const std::string& named) {
  if (named.empty()) return last_linear(backbone);
  const auto candidates = head_candidates(backbone);
  const bool known = std::find(candidates.begin(), candidates.end(), named) != candidates.end();
  TORCH_CHECK(known, "`head-name` ", printable(named), ": the script has no linear layer of this name with ",
              backbone.num_features(""), " outputs; ",
              candidates.empty() ? "it has none with so many"
                                 : fmt::format("those are {}", fmt::join(candidates, ", ")));
  return named;
}

// The checkpoint's own, used as it was trained. A script without one returns logits, and then nothing but the
// script is trained: a frozen identity stands for the head.
std::shared_ptr<Classifier> with_own_head(const Parts& parts, const std::filesystem::path& checkpoint,
                                          const LoadOptions& options, LoadedClassifier& result) {
  const at::Tensor head =
      parts.head.defined() || parts.config ? parts.head : at::eye(parts.backbone->num_features());
  TORCH_CHECK(head.defined(), "'", checkpoint.string(),
              "' has no classification head of its own; make a zero-shot head from class names and give it "
              "with `head`, or train one");
  ClassifierOptions own(options.classifier());
  if (keys::kNormalize.of(parts.metadata)) own.normalize(true);
  if (keys::kLayer.in(parts.metadata)) own.layer(keys::kLayer.of(parts.metadata));
  result.outputs_are_logits = !parts.config && !parts.bias.defined() && only_selects(head);
  if (result.outputs_are_logits) {
    own.head_name(find_head(*parts.backbone,
                            own.head_name().empty() ? keys::kHeadName.of(parts.metadata) : own.head_name()));
  } else {
    TORCH_CHECK(own.head_name().empty(), "`head-name` ", own.head_name(),
                " is for a script whose outputs are the logits; '", checkpoint.string(), "' has a head");
  }
  auto model = std::make_shared<Classifier>(parts.backbone, head, parts.bias, own);
  if (result.outputs_are_logits) model->head->weight.set_requires_grad(false);
  return model;
}

// The model that is wanted, or else the script that the metadata name; nothing if names and shapes say what it is.
std::optional<ModelConfig> find_model(const std::string& model, const std::optional<Checkpoint>& checkpoint,
                                      const fs::path& script, std::vector<std::string>& notes) {
  if (!model.empty()) {
    auto given = parse_model(model);
    if (given.family->is_file())
      notes.push_back(fmt::format("runs the TorchScript program '{}', given as `model`", given.file));
    return given;
  }
  const auto named = model_of(*checkpoint);
  if (!named || !named->family->is_file()) return std::nullopt;
  return find_script(*checkpoint, *named, script, notes);
}

}  // namespace

bool has_head(const std::string& model, const fs::path& checkpoint, const fs::path& script) try {
  const std::optional<Checkpoint> opened(checkpoint);
  std::vector<std::string> notes;
  auto wanted = find_model(model, opened, script, notes);
  if (!wanted || !wanted->family->is_file()) return read_weights(*opened, wanted).has_head();
  if (const auto trained = model_of(*opened); trained && trained->family == wanted->family)
    fill(*wanted, *trained);
  return is_classifier_of(*make_backbone(*wanted), *opened);
} catch (...) {
  rethrow_from("has_head");
}

LoadedClassifier load_classifier(const std::string& model, const std::filesystem::path& checkpoint,
                                 const LoadOptions& options) try {
  LoadedClassifier result;
  const bool without_weights = is_script(model) && checkpoint.empty();
  if (!without_weights) result.checkpoint = options.opened() ? options.opened() : Checkpoint(checkpoint);
  const auto wanted = find_model(model, result.checkpoint, options.script(), result.notes);
  const Parts parts =
      wanted && wanted->family->is_file() ? load_file(*wanted, result) : load_model(wanted, result);
  if (options.head() == Head::kCheckpoint) {
    result.model = with_own_head(parts, checkpoint, options, result);
  } else {
    if (parts.head.defined()) {
      result.notes.push_back(fmt::format("left out the head of {} classes", parts.head.size(0)));
    } else if (const std::string layer = parts.config ? "" : last_linear(*parts.backbone);
               !layer.empty() && options.head() == Head::kFresh && options.classifier().num_classes() > 1) {
      result.notes.push_back(fmt::format(
          "the script already returns {} logits (of its last layer, '{}'); a fresh head is put on top of "
          "them, and `head` checkpoint uses them",
          parts.backbone->num_features(""), layer));
    }
    result.model = options.head() == Head::kFresh
                       ? std::make_shared<Classifier>(parts.backbone, options.classifier())
                       : with_zero_shot_head(parts, options, result);
  }
  if (!parts.config) {
    const auto parameters = parts.backbone->parameters();
    const auto frozen = std::count_if(parameters.begin(), parameters.end(),
                                      [](const at::Tensor& each) { return !each.requires_grad(); });
    if (frozen > 0)
      result.notes.push_back(
          fmt::format("{} of {} parameters of the script are frozen (requires_grad = False) and do not train",
                      frozen, parameters.size()));
  }
  const auto& used = result.model->options();
  keys::kNormalize.set(result.metadata, used.normalize());
  if (!used.layer().empty()) keys::kLayer.set(result.metadata, used.layer());
  if (!used.head_name().empty()) keys::kHeadName.set(result.metadata, used.head_name());
  return result;
} catch (...) {
  rethrow_from("load_classifier");
}

}  // namespace tpgm
