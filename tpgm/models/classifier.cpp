#include "tpgm/models/classifier.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <utility>

#include "tpgm/models/clip.h"
#include "tpgm/models/registry.h"
#include "tpgm/models/script.h"
#include "tpgm/models/weights.h"

namespace tpgm {
namespace {

constexpr const char* kCall = "load_classifier";

std::shared_ptr<Classifier> with_fresh_head(std::shared_ptr<Backbone> backbone,
                                            const ClassifierOptions& options) {
  TORCH_CHECK(options.num_classes() > 0, "[", kCall, "] a fresh head needs the number of classes");
  return std::make_shared<Classifier>(std::move(backbone), options);
}

std::shared_ptr<Classifier> with_zero_shot_head(std::shared_ptr<Backbone> backbone,
                                                const LoadOptions& options) {
  const ZeroShotHead head = load_zero_shot(options.head_file());
  return std::make_shared<Classifier>(std::move(backbone), head.weight, at::Tensor(),
                                      ClassifierOptions(options.classifier()).normalize(true));
}

}  // namespace

Classifier::Classifier(std::shared_ptr<Backbone> image_model, const ClassifierOptions& options)
    : backbone(register_module("backbone", std::move(image_model))), options_(options), fresh_head_(true) {
  TORCH_CHECK(options.num_classes() > 0, "[Classifier] num_classes is ", options.num_classes(),
              ", expected at least 1");
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

at::Tensor Classifier::features(const at::Tensor& images) {
  const at::Tensor features = backbone->features(images, options_.layer());
  return options_.normalize() ? normalized(features) : features;
}

std::vector<std::string> Classifier::unanchored() const {
  return fresh_head_ ? std::vector<std::string>{"head.*"} : std::vector<std::string>();
}

std::vector<std::string> Classifier::block_globs() const {
  auto globs = tpgm::block_globs(*backbone, "backbone.");
  globs.emplace_back("head.*");
  return globs;
}

LoadedClassifier load_classifier(const std::string& model, const std::filesystem::path& checkpoint,
                                 const LoadOptions& options) {
  LoadedClassifier result;
  std::shared_ptr<Backbone> backbone;
  at::Tensor head, bias;
  if (is_script(model)) {
    const auto script = std::make_shared<ScriptBackbone>(model);
    if (!checkpoint.empty()) load_weights(*script, checkpoint);
    backbone = script;
    result.metadata["tpgm.model"] = model;
  } else {
    ModelWeights weights = read_weights(Checkpoint(checkpoint, "", kCall),
                                        model.empty() ? std::nullopt : std::optional(parse_model(model)));
    backbone = make_backbone(weights.config);
    load_state_dict(*backbone, weights.backbone(), {}, checkpoint);
    if (weights.has_head()) {
      head = weights.tensors["head.weight"];
      if (const auto* found = weights.tensors.find("head.bias")) bias = *found;
    }
    result.notes = std::move(weights.notes);
    result.metadata = {{"tpgm.model", to_text(weights.config)}, {"tpgm.layout", to_text(weights.layout)}};
  }
  switch (options.head()) {
    case Head::kFresh:
      if (head.defined())
        result.notes.push_back(fmt::format("left out the head of {} classes for a fresh one", head.size(0)));
      result.model = with_fresh_head(std::move(backbone), options.classifier());
      break;
    case Head::kZeroShot:
      result.model = with_zero_shot_head(std::move(backbone), options);
      break;
    case Head::kCheckpoint:
      TORCH_CHECK(
          head.defined(), "[", kCall, "] '", checkpoint.string(),
          "' has no classification head; ask for a fresh one, or make one from text with 'tpgm zeroshot'");
      result.model = std::make_shared<Classifier>(std::move(backbone), head, bias, options.classifier());
      break;
  }
  return result;
}

}  // namespace tpgm
