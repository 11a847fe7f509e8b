// What a model of ours computes from a checkpoint of another library, under that library's names: features in
// evaluation mode, gradients in training mode, BatchNorm's statistics after some steps.
#pragma once

#include <optional>
#include <string>

#include "tests/torch_nn.h"
#include "tpgm/io/checkpoint.h"
#include "tpgm/models/classifier.h"
#include "tpgm/models/families.h"
#include "tpgm/models/named_models.h"
#include "tpgm/weights/read.h"

namespace tpgm::testing {

/// `inputs` has images, upstream [batch, features], and for a text tower tokens, upstream_text. The loss is
/// Σ features·upstream; a step is SGD's with a rate of 0.01. The results are features, logits, text_features,
/// grad/<name>, grad_text/<name>, and after `steps` after/<name>.
class Parity {
 public:
  Parity(const std::filesystem::path& file, const std::string& model, at::Device device = at::kCPU)
      : checkpoint_(file),
        weights_(read_weights(checkpoint_, model.empty() ? std::nullopt : std::optional(parse_model(model)))),
        recognised_(*recognise(checkpoint_.names())),
        device_(device),
        backbone_(make_backbone(weights_.config)) {
    load_state_dict(*backbone_, weights_.backbone());
    backbone_->to(device);
    if (weights_.has_text()) {
      clip_ = std::make_shared<Clip>(backbone_, make_clip_text(weights_.config));
      load_state_dict(*clip_, without_head());
      clip_->to(device);
    }
  }

  const ModelWeights& weights() const { return weights_; }
  Backbone& backbone() { return *backbone_; }

  at::Tensor features(const at::Tensor& images) {
    const at::NoGradGuard no_grad;
    backbone_->eval();
    return backbone_->forward(images.to(device_)).cpu();
  }

  NamedTensors run(const NamedTensors& inputs, int64_t steps) {
    NamedTensors results("Tensor");
    const at::Tensor images = inputs["images"].to(device_), upstream = inputs["upstream"].to(device_);
    results.insert("features", features(images));
    if (const auto logits = this->logits(inputs); logits.defined()) results.insert("logits", logits);
    backbone_->train();
    step_gradients(images, upstream);
    add(results, "grad/", gradients(*backbone_, weights_.config.family->image_prefix()));
    if (clip_) {
      const at::Tensor tokens = inputs["tokens"].to(device_);
      clip_->zero_grad();
      const at::Tensor text = clip_->text->forward(tokens);
      results.insert("text_features", text.detach().cpu());
      (text * inputs["upstream_text"].to(device_)).sum().backward();
      add(results, "grad_text/", gradients(*clip_->text, "text."));
    }
    if (steps > 0) {
      // The forward pass above moved the statistics.
      load_state_dict(*backbone_, weights_.backbone());
      torch::optim::SGD optimizer(backbone_->parameters(), 0.01);
      for (int64_t i = 0; i < steps; ++i) {
        step_gradients(images, upstream);
        optimizer.step();
      }
      NamedTensors after("Tensor");
      const std::string prefix = weights_.config.family->image_prefix();
      for (const auto& item : state_dict(*backbone_)) after.insert(prefix + item.key(), item.value().cpu());
      add(results, "after/", after);
    }
    return results;
  }

 private:
  NamedTensors without_head() const {
    NamedTensors result("Tensor");
    for (const auto& item : weights_.tensors) {
      if (!item.key().starts_with("head.")) result.insert(item.key(), item.value());
    }
    return result;
  }

  at::Tensor logits(const NamedTensors& inputs) {
    const at::NoGradGuard no_grad;
    const at::Tensor images = inputs["images"].to(device_);
    if (clip_) return clip_->forward(images, inputs["tokens"].to(device_)).cpu();
    if (!weights_.has_head()) return {};
    const at::Tensor* bias = weights_.tensors.find("head.bias");
    Classifier classifier(backbone_, weights_.tensors["head.weight"], bias ? *bias : at::Tensor(), {});
    classifier.to(device_);
    classifier.eval();
    return classifier.forward(images).cpu();
  }

  void step_gradients(const at::Tensor& images, const at::Tensor& upstream) {
    backbone_->zero_grad();
    (backbone_->forward(images) * upstream).sum().backward();
  }

  static NamedTensors gradients(const torch::nn::Module& module, const std::string& prefix) {
    NamedTensors result("Tensor");
    for (const auto& item : module.named_parameters())
      result.insert(prefix + item.key(), item.value().grad().cpu().clone());
    return result;
  }

  /// Under the checkpoint's names.
  void add(NamedTensors& results, const std::string& kind, const NamedTensors& ours) const {
    const Renamed theirs = from_ours(ours, weights_.config, weights_.layout);
    TORCH_CHECK(theirs.unknown.empty(), "no foreign name for ", theirs.unknown.front());
    for (const auto& item : theirs.tensors) {
      std::string name = item.key();
      // MAE's files have the norm of the class token, also where the mean of the patches is asked for.
      if (name.starts_with("fc_norm.") && !checkpoint_.contains(recognised_.prefix + name)) name.erase(0, 3);
      name.erase(0, recognised_.missing.size());
      results.insert(kind + recognised_.prefix + name, item.value().contiguous());
    }
  }

  Checkpoint checkpoint_;
  ModelWeights weights_;
  Recognised recognised_;
  at::Device device_;
  std::shared_ptr<Backbone> backbone_;
  std::shared_ptr<Clip> clip_;
};

/// max |a − b| / max |b|.
inline double difference(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes()) return std::numeric_limits<double>::infinity();
  if (b.numel() == 0) return 0;
  const double scale = b.to(at::kDouble).abs().max().item<double>();
  const double largest = (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
  return scale == 0 ? largest : largest / scale;
}

}  // namespace tpgm::testing
