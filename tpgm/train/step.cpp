// Eager steps, and steps that are captured in CUDA graphs and replayed.
#include "tpgm/train/step.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "tpgm/base/error_text.h"
#include "tpgm/nn/layers.h"
#include "tpgm/nn/precision.h"

namespace tpgm {
namespace {

// Libraries choose their kernels and take their workspaces in the first steps, which a graph must not see.
constexpr int64_t kWarmUp = 3;

void put(const at::Tensor& tensor, at::Tensor& buffer) {
  if (buffer.defined()) {
    buffer.copy_(tensor, /*non_blocking=*/true);
  } else {
    buffer = tensor.clone();
  }
}

// For the handler of a capture's error: CUDA's own message about a wait names no way out.
void explain_a_wait() {
  try {
    throw;
  } catch (const std::exception& error) {
    const std::string text = short_message(error);
    const auto cuda = text.find("CUDA");  // before it there may be a file's name
    TORCH_CHECK(cuda == std::string::npos || text.find("captur", cuda) == std::string::npos,
                "[TrainingStep] the step could not be captured, as something in it waits for the device (",
                text, "); `no-cuda-graph` (StepOptions::cuda_graph(false)) runs it as it is");
  } catch (...) {
  }
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

TrainingStep::Layout::Layout(const at::Tensor& tensor)
    : sizes(tensor.sizes().vec()), strides(tensor.strides().vec()), type(tensor.scalar_type()) {}

TrainingStep::TrainingStep(Classifier& model, Method& method, Optimizer& optimizer,
                           const StepOptions& options)
    : model_(model),
      method_(method),
      capturable_(dynamic_cast<Capturable*>(&method)),
      optimizer_(optimizer),
      options_(options),
      tensors_(named_tensors(model).values()) {
  if (capturable_)
    capturable_->read_in_bfloat16(options_.amp() ? matrix_weights(model_) : std::vector<at::Tensor>());
}

TrainingStep::~TrainingStep() {
  if (options_.amp() && capturable_) capturable_->read_in_bfloat16({});
}

at::Tensor TrainingStep::radius_loss(const RadiusBatch& batch) {
  std::optional<Autocast> autocast;
  if (options_.amp()) autocast.emplace(batch.images.device().type());
  return classification_loss(model_.forward(batch.images), batch.targets,
                             batch.targets.dim() == 1 ? options_.radius_smoothing() : 0.0);
}

int64_t TrainingStep::captured() const {
  return std::count_if(kinds_.begin(), kinds_.end(),
                       [](const auto& each) { return each.second.capture != nullptr; });
}

void TrainingStep::forget() {
  kinds_.clear();
  memory_.reset();
  images_ = labels_ = targets_ = at::Tensor();
}

// Captures know addresses, and which parameters have gradients.
void TrainingStep::follow_changes() {
  std::vector<Place> places;
  for (const auto& tensor : tensors_) {
    places.emplace_back(tensor.defined() ? tensor.const_data_ptr() : nullptr, tensor.requires_grad());
  }
  const bool changed = places != places_ || optimizer_.generation() != generation_;
  if (changed) forget();
  if (changed || !model_.is_training()) train_mode(model_);
  places_ = std::move(places);
  generation_ = optimizer_.generation();
}

bool TrainingStep::captures(const at::Tensor& images, const at::Tensor& labels, const at::Tensor& targets) {
  if (!capturable_ || !options_.cuda_graph() || options_.batches() != 1 || !images.is_cuda()) return false;
  follow_changes();
  if (data_ != Layouts{Layout(images), Layout(labels), Layout(targets)}) return false;
  const auto plan = capturable_->next_step();
  const auto kind = plan ? kinds_.find(plan->kind) : kinds_.end();
  if (kind == kinds_.end()) return false;
  // The first is captured when all kinds seen so far can be: a step that runs as it is needs its memory
  // beside that of the captures.
  return kind->second.capture || std::all_of(kinds_.begin(), kinds_.end(),
                                             [](const auto& each) { return each.second.warm >= kWarmUp; });
}

TrainingStep::Result TrainingStep::step(const at::Tensor& images, const at::Tensor& labels,
                                        const at::Tensor& targets, double lr,
                                        const NextRadiusBatch& next_radius_batch) {
  std::deque<RadiusBatch> fetched;
  if (captures(images, labels, targets)) {
    const auto plan = *capturable_->next_step();
    TORCH_CHECK(next_radius_batch || plan.radius_losses == 0,
                "[TrainingStep] the method learns from radius data, and there are none");
    Kind& kind = kinds_[plan.kind];
    Layouts layouts;
    for (int64_t i = 0; i < plan.radius_losses; ++i) {
      const auto& [x, y] = fetched.emplace_back(next_radius_batch());
      layouts.insert(layouts.end(), {Layout(x), Layout(y)});
    }
    if (layouts == kind.radius_data) {
      optimizer_.set_lr(lr);
      return replay(kind, images, labels, targets, fetched);
    }
  }
  const Result result = backward(images, labels, targets);
  const auto next = [&] {
    if (fetched.empty()) return next_radius_batch();
    const RadiusBatch batch = fetched.front();
    fetched.pop_front();
    return batch;
  };
  update(lr, next_radius_batch ? next : NextRadiusBatch());
  return result;
}

TrainingStep::Result TrainingStep::replay(Kind& kind, const at::Tensor& images, const at::Tensor& labels,
                                          const at::Tensor& targets,
                                          const std::deque<RadiusBatch>& radius_batches) {
  const c10::DeviceGuard guard(images.device());
  put(images, images_);
  put(labels, labels_);
  put(targets, targets_);
  const bool is_new = !kind.capture;
  auto capture = is_new ? std::make_unique<Capture>() : std::move(kind.capture);
  capture->radius_batches.resize(radius_batches.size());
  for (size_t i = 0; i < radius_batches.size(); ++i) {
    put(radius_batches[i].images, capture->radius_batches[i].images);
    put(radius_batches[i].targets, capture->radius_batches[i].targets);
  }
  if (is_new) {
    if (!memory_) memory_ = CudaGraph::memory();
    optimizer_.zero_grad();
    try {
      capture->graph.capture(memory_, [&] {
        capture->result = run(images_, labels_, targets_);
        auto batch = capture->radius_batches.begin();
        take_step([&] { return radius_loss(*batch++); });
      });
    } catch (...) {  // gradients are in the graph's memory, which was never written
      optimizer_.zero_grad();
      forget();
      explain_a_wait();
      throw;
    }
  }
  capture->graph.replay();
  // The graph writes to the same memory again in the next step.
  const Result result = {capture->result.loss.clone(), capture->result.correct.clone()};
  kind.capture = std::move(capture);
  if (!is_new) capturable_->replayed();  // a new one has called the hooks
  return result;
}

TrainingStep::Result TrainingStep::backward(const at::Tensor& images, const at::Tensor& labels,
                                            const at::Tensor& targets) {
  follow_changes();
  const Layouts data{Layout(images), Layout(labels), Layout(targets)};
  usual_ = data == data_;
  if (!usual_ && captured() == 0) {
    kinds_.clear();
    data_ = data;
    usual_ = true;
  }
  const Result result = run(images, labels, targets);
  ++accumulated_;
  return result;
}

void TrainingStep::skip() {
  optimizer_.zero_grad();
  accumulated_ = 0;
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

void TrainingStep::update(double lr, const NextRadiusBatch& next_radius_batch) {
  const auto plan = capturable_ ? capturable_->next_step() : std::nullopt;
  Layouts radius_data;
  optimizer_.set_lr(lr);
  const auto loss = [&] {
    const RadiusBatch batch = next_radius_batch();
    radius_data.insert(radius_data.end(), {Layout(batch.images), Layout(batch.targets)});
    return radius_loss(batch);
  };
  average();
  take_step(next_radius_batch ? loss : Closure());
  if (!plan || !usual_) return;
  Kind& kind = kinds_[plan->kind];
  if (kind.capture) return;
  kind.warm = kind.warm > 0 && kind.radius_data == radius_data ? kind.warm + 1 : 1;
  kind.radius_data = std::move(radius_data);
}

// Every batch was divided by how many there should have been.
void TrainingStep::average() {
  const int64_t ran = std::exchange(accumulated_, 0);
  if (ran == 0 || ran >= options_.batches()) return;
  const at::NoGradGuard no_grad;
  const double factor = static_cast<double>(options_.batches()) / static_cast<double>(ran);
  for (const auto& group : optimizer_.groups()) {
    for (const auto& item : group.parameters) {
      if (auto& gradient = item.value().mutable_grad(); gradient.defined()) gradient.mul_(factor);
    }
  }
}

// After the gradients: the rest of a step, as it runs and as it is captured.
void TrainingStep::take_step(const Closure& radius_loss) {
  method_.before_step();
  if (options_.clip_grad() > 0) optimizer_.clip_grad_norm(options_.clip_grad());
  optimizer_.step();
  model_.after_update();
  optimizer_.zero_grad();  // a radius step can use their memory
  method_.after_step(radius_loss);
}

}  // namespace tpgm
