// Forward and backward, eagerly or from a graph.
#include "tpgm/train/step.h"

#include <ATen/ATen.h>

#include <cmath>
#include <optional>

#include "tpgm/models/precision.h"

namespace tpgm {
namespace {

// Libraries choose their kernels and take their workspaces in the first steps, which a graph must not see.
constexpr int64_t kWarmUp = 3;

bool same_layout(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() && b.defined() && a.sizes() == b.sizes() && a.strides() == b.strides() &&
         a.scalar_type() == b.scalar_type();
}

}  // namespace

void train_mode(torch::nn::Module& module) {
  module.train();
  for (const auto& each : module.modules()) {
    if (!each->named_buffers(/*recurse=*/false).contains("running_mean")) continue;
    const auto parameters = each->parameters(/*recurse=*/false);
    bool frozen = !parameters.empty();
    for (const auto& parameter : parameters) frozen &= !parameter.requires_grad();
    if (frozen) each->eval();
  }
}

at::Tensor classification_loss(const at::Tensor& logits, const at::Tensor& targets, double smoothing) {
  return at::cross_entropy_loss(logits.to(at::kFloat), targets, /*weight=*/{}, at::Reduction::Mean,
                                /*ignore_index=*/-100, smoothing);
}

at::Tensor contrastive_loss(const at::Tensor& logits, const at::Tensor& labels) {
  const at::Tensor scores = logits.to(at::kFloat);
  const at::Tensor images = at::zeros({scores.size(1)}, scores.options())
                                .index_add(0, labels, at::ones({scores.size(0)}, scores.options()));
  const at::Tensor share = 1 / images.index_select(0, labels);  // of an image in its text's
  const at::Tensor found = at::log_softmax(scores, 0).gather(1, labels.unsqueeze(1)).squeeze(1);
  return (at::cross_entropy_loss(scores, labels) - (found * share).sum() / share.sum()) / 2;
}

TrainingStep::TrainingStep(Classifier& model, Method& method, Optimizer& optimizer,
                           const StepOptions& options)
    : model_(model),
      method_(method),
      optimizer_(optimizer),
      options_(options),
      parameters_(model.parameters()) {}

int64_t TrainingStep::trainable() const {
  int64_t count = 0;
  for (const auto& parameter : parameters_) count += parameter.requires_grad() ? 1 : 0;
  return count;
}

TrainingStep::Result TrainingStep::run(const at::Tensor& images, const at::Tensor& labels,
                                       const at::Tensor& targets) {
  at::Tensor logits;
  {
    std::optional<Autocast> autocast;
    if (options_.amp()) autocast.emplace(images.device().type());
    logits = model_.forward(images);
  }
  const at::Tensor loss =
      options_.contrastive()
          ? contrastive_loss(logits, targets)
          : classification_loss(logits, targets, targets.dim() == 1 ? options_.smoothing() : 0.0);
  (options_.batches() == 1 ? loss : loss / static_cast<double>(options_.batches())).backward();
  const at::NoGradGuard no_grad;
  return {loss.detach(), (logits.argmax(1) == labels).sum()};
}

TrainingStep::Result TrainingStep::replay(const at::Tensor& images, const at::Tensor& labels,
                                          const at::Tensor& targets) {
  if (!graph_) {
    images_ = images.clone();
    labels_ = labels.clone();
    targets_ = targets.clone();
    graph_ = std::make_unique<CudaGraph>();
    optimizer_.zero_grad();
    graph_->capture([this] { result_ = run(images_, labels_, targets_); });
    gradients_.clear();
    for (const auto& parameter : parameters_) gradients_.push_back(parameter.grad());
  } else {
    images_.copy_(images, /*non_blocking=*/true);
    labels_.copy_(labels, /*non_blocking=*/true);
    targets_.copy_(targets, /*non_blocking=*/true);
  }
  for (size_t i = 0; i < parameters_.size(); ++i) parameters_[i].mutable_grad() = gradients_[i];
  graph_->replay();
  // The graph writes to the same memory again in the next step.
  return {result_.loss.clone(), result_.right.clone()};
}

TrainingStep::Result TrainingStep::backward(const at::Tensor& images, const at::Tensor& labels,
                                            const at::Tensor& targets) {
  if (const int64_t count = trainable(); count != trainable_ || !model_.is_training()) {
    train_mode(model_);
    graph_.reset();
    warm_ = 0;
    trainable_ = count;
  }
  const bool graph = options_.cuda_graph() && options_.batches() == 1 && images.is_cuda();
  if (graph && warm_ >= kWarmUp &&
      (!graph_ || (same_layout(images, images_) && same_layout(targets, targets_))))
    return replay(images, labels, targets);
  ++warm_;
  return run(images, labels, targets);
}

void TrainingStep::update(double lr, const Closure& radius_loss) {
  method_.before_step();
  if (options_.clip_grad() > 0) optimizer_.clip_grad_norm(options_.clip_grad());
  optimizer_.step(lr);
  if (model_.text) {  // as CLIP's authors have it: a larger scale makes training unstable
    const at::NoGradGuard no_grad;
    model_.logit_scale.clamp_max_(std::log(100.0));
  }
  method_.after_step(radius_loss);
  optimizer_.zero_grad();
}

}  // namespace tpgm
