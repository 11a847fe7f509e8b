// A backbone and a head, from checkpoints, scripts and text.
#include "tpgm/models/classifier.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "tpgm/models/clip.h"
#include "tpgm/models/precision.h"
#include "tpgm/models/registry.h"
#include "tpgm/models/script.h"
#include "tpgm/models/weights.h"

namespace tpgm {
namespace {

constexpr const char* kCall = "load_classifier";

// What a checkpoint gives to a classifier.
struct Parts {
  std::shared_ptr<Backbone> backbone;
  at::Tensor head, bias;
  std::optional<ModelConfig> config;  // a script has none
  Metadata metadata;
};

// The weights of a script, and of a classifier with one, go by its own names.
Parts load_script(const std::string& model, const std::filesystem::path& checkpoint,
                  LoadedClassifier& result) {
  const auto script = std::make_shared<ScriptBackbone>(model);
  Parts parts{script, {}, {}, {}, {}};
  result.metadata["tpgm.model"] = model;
  if (checkpoint.empty()) return parts;
  const Checkpoint opened(checkpoint, "", kCall);
  StateDict backbone("Tensor");
  for (const auto& name : opened.names()) {
    if (name.starts_with("backbone.")) backbone.insert(name.substr(9), opened.tensor(name));
  }
  if (backbone.is_empty() || !opened.contains("head.weight")) {  // the script's alone
    load_weights(*script, checkpoint);
    return parts;
  }
  load_state_dict(*script, backbone, {}, checkpoint);
  parts.head = opened.tensor("head.weight");
  if (opened.contains("head.bias")) parts.bias = opened.tensor("head.bias");
  parts.metadata = opened.metadata();
  return parts;
}

Parts load_model(const std::string& model, const std::filesystem::path& file, LoadedClassifier& result) {
  const Checkpoint checkpoint(file, "", kCall);
  ModelWeights weights =
      read_weights(checkpoint, model.empty() ? std::nullopt : std::optional(parse_model(model)));
  Parts parts{make_backbone(weights.config), {}, {}, weights.config, checkpoint.metadata()};
  load_state_dict(*parts.backbone, weights.backbone(), {}, file);
  if (weights.has_head()) parts.head = weights.tensors["head.weight"];
  if (const auto* bias = weights.tensors.find("head.bias")) parts.bias = *bias;
  result.notes = std::move(weights.notes);
  weights.config.recompute.reset();  // of how to compute, not of what
  result.metadata = {{"tpgm.model", to_text(weights.config)}, {"tpgm.layout", to_text(weights.layout)}};
  for (const char* key : {"tpgm.view", "tpgm.templates"}) {
    if (const auto found = checkpoint.metadata().find(key); found != checkpoint.metadata().end())
      result.metadata.insert(*found);
  }
  return parts;
}

std::shared_ptr<Classifier> with_zero_shot_head(const Parts& parts, const LoadOptions& options) {
  const ZeroShotHead head = load_zero_shot(options.head_file());
  if (parts.config && !head.model.empty()) {
    std::vector<std::string> texts;
    ModelConfig made_with = parse_model(head.model);
    TORCH_CHECK(made_with.family == parts.config->family, "[", kCall, "] '", options.head_file().string(),
                "' was made with a ", to_text(made_with.family), ", and this is a ",
                to_text(parts.config->family));
    for (const auto& [size, theirs, ours] : conflicts(made_with, *parts.config)) {
      if (size != "image_size" && size != "recompute")
        texts.push_back(fmt::format("{} {}, not {}", size, theirs, ours));
    }
    TORCH_CHECK(texts.empty(), "[", kCall, "] '", options.head_file().string(),
                "' was made with another model (", fmt::format("{}", fmt::join(texts, ", ")),
                "); make one with this");
  }
  return std::make_shared<Classifier>(parts.backbone, head.weight, at::Tensor(),
                                      ClassifierOptions(options.classifier()).normalize(true));
}

// The checkpoint's own, used as it was trained.
std::shared_ptr<Classifier> with_own_head(const Parts& parts, const std::filesystem::path& checkpoint,
                                          const LoadOptions& options) {
  TORCH_CHECK(
      parts.head.defined(), "[", kCall, "] ",
      checkpoint.empty() ? "a script" : fmt::format("'{}'", checkpoint.string()),
      " has no classification head of its own; make one from text with 'tpgm zeroshot' and give it with "
      "--head, or train one");
  ClassifierOptions own(options.classifier());
  if (parts.metadata.contains("tpgm.normalize")) own.normalize(true);
  if (const auto layer = parts.metadata.find("tpgm.layer"); layer != parts.metadata.end())
    own.layer(layer->second);
  return std::make_shared<Classifier>(parts.backbone, parts.head, parts.bias, own);
}

}  // namespace

Classifier::Classifier(std::shared_ptr<Backbone> image_model, const ClassifierOptions& options)
    : backbone(register_module("backbone", std::move(image_model))), options_(options), fresh_head_(true) {
  TORCH_CHECK(options.num_classes() > 0, "[Classifier] num_classes is ", options.num_classes(),
              "; a fresh head needs at least 1");
  head = register_module(
      "head", Linear(backbone->num_features(options.layer()), options.num_classes(), options.bias()));
  const at::NoGradGuard no_grad;
  head->weight.normal_(0, 0.01);
  if (options.bias()) head->bias.zero_();
}

Classifier::Classifier(std::shared_ptr<Backbone> image_model, const at::Tensor& weight,
                       const at::Tensor& bias, const ClassifierOptions& options)
    : backbone(register_module("backbone", std::move(image_model))), options_(options), fresh_head_(false) {
  const int64_t features = backbone->num_features(options.layer());
  TORCH_CHECK(weight.dim() == 2 && weight.size(0) > 0 && weight.size(1) == features,
              "[Classifier] the head is ", weight.sizes(), ", expected [classes,", features,
              "]: is it of another model?");
  TORCH_CHECK(!bias.defined() || (bias.dim() == 1 && bias.size(0) == weight.size(0)),
              "[Classifier] the head's bias is ", bias.sizes(), ", its weight ", weight.sizes());
  TORCH_CHECK(options.num_classes() == 0 || options.num_classes() == weight.size(0),
              "[Classifier] the head has ", weight.size(0), " classes, ", options.num_classes(),
              " were asked for; take a fresh head, or one made for these classes");
  options_.num_classes(weight.size(0)).bias(bias.defined());
  head = register_module("head", Linear(features, weight.size(0), bias.defined()));
  const at::NoGradGuard no_grad;
  head->weight.copy_(weight);
  if (bias.defined()) head->bias.copy_(bias);
}

Classifier::Classifier(const Clip& clip, at::Tensor tokens)
    : backbone(register_module("backbone", clip.visual)),
      text(register_module("text", clip.text)),
      logit_scale(register_parameter("logit_scale", clip.logit_scale)),
      fresh_head_(false),
      tokens_(std::move(tokens)) {
  TORCH_CHECK(tokens_.dim() == 3 && tokens_.numel() > 0, "[Classifier] tokens are ", tokens_.sizes(),
              ", expected [classes, templates, n]");
  options_.num_classes(tokens_.size(0)).bias(false).normalize(true);
}

// As make_zero_shot() has it, with gradients.
at::Tensor Classifier::text_head() {
  if (tokens_.device() != logit_scale.device()) tokens_ = tokens_.to(logit_scale.device());
  at::Tensor embedded = normalized(text->forward(tokens_.flatten(0, 1)));
  if (tokens_.size(1) > 1)
    embedded = normalized(embedded.view({tokens_.size(0), tokens_.size(1), -1}).mean(1));
  return embedded * logit_scale.exp();
}

at::Tensor Classifier::forward(const at::Tensor& images) {
  const CastWeights cast(matrix_weights(*this), product_biases(*this));
  const at::Tensor seen = features(images);
  return text ? seen.matmul(text_head().t()) : head->forward(seen);
}

at::Tensor Classifier::features(const at::Tensor& images) {
  const at::Tensor features = backbone->features(images, options_.layer());
  return options_.normalize() ? normalized(features) : features;
}

std::vector<std::string> Classifier::unanchored() const {
  return fresh_head_ ? std::vector<std::string>{"head.*"} : std::vector<std::string>();
}

std::vector<std::string> Classifier::block_globs() const {
  auto globs = tpgm::block_globs(*backbone, "backbone.");
  if (text) {
    globs.insert(globs.end(), {"text.*", "logit_scale"});
  } else if (!fresh_head_) {
    globs.emplace_back("head.*");
  }
  return globs;
}

LoadedClassifier load_classifier(const std::string& model, const std::filesystem::path& checkpoint,
                                 const LoadOptions& options) {
  LoadedClassifier result;
  const Parts parts =
      is_script(model) ? load_script(model, checkpoint, result) : load_model(model, checkpoint, result);
  if (options.head() == Head::kCheckpoint) {
    result.model = with_own_head(parts, checkpoint, options);
  } else {
    if (parts.head.defined()) {
      result.notes.push_back(fmt::format("left out the head of {} classes", parts.head.size(0)));
    }
    result.model = options.head() == Head::kFresh
                       ? std::make_shared<Classifier>(parts.backbone, options.classifier())
                       : with_zero_shot_head(parts, options);
  }
  if (result.model->options().normalize()) result.metadata["tpgm.normalize"] = "true";
  if (!result.model->options().layer().empty())
    result.metadata["tpgm.layer"] = result.model->options().layer();
  return result;
}

}  // namespace tpgm
