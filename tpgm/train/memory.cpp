#include "tpgm/train/memory.h"

#include <ATen/ATen.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <memory>
#include <mutex>

#include "tpgm/io/state_dict.h"
#include "tpgm/nn/precision.h"
#include "tpgm/train/from_options.h"
#include "tpgm/train/step.h"

namespace tpgm {
namespace {

int64_t bytes_of(const at::Tensor& tensor) {
  return tensor.numel() * static_cast<int64_t>(tensor.element_size());
}

// Listens to LibTorch's allocators: what is live now, and the most that was.
class LiveBytes : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t size, size_t, size_t, c10::Device) override {
    const std::lock_guard lock(mutex_);
    live_ += size;
    most_ = std::max(most_, live_);
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t most() const { return most_; }

 private:
  std::mutex mutex_;
  int64_t live_ = 0, most_ = 0;
};

int64_t peak_of(Setup& setup, int64_t count) {
  Classifier& model = *setup.model;
  const int64_t size = model.backbone->image_size();
  auto images = at::zeros({count, model.backbone->channels(), size, size}, at::TensorOptions(setup.device));
  if (setup.options.channels_last.value_or(false)) images = images.contiguous(at::MemoryFormat::ChannelsLast);
  const auto labels = at::zeros({count}, at::TensorOptions(setup.device).dtype(at::kLong));
  auto live = std::make_shared<LiveBytes>();
  {
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, live);
    std::optional<Autocast> autocast;
    if (setup.options.amp && setup.device.is_cuda()) autocast.emplace(setup.device.type());
    const auto logits = model.forward(images);
    autocast.reset();
    classification_loss(logits, labels).backward();
  }
  for (auto& parameter : model.parameters()) parameter.mutable_grad().reset();
  return live->most();
}

}  // namespace

MemoryEstimate estimate_memory(Setup& setup) {
  MemoryEstimate result;
  NamedTensors buffers("Tensor");
  for (const auto& item : setup.model->named_buffers()) {
    buffers.insert(item.key(), item.value().clone());
    result.weights += bytes_of(item.value());
  }
  int64_t trainable = 0, anchored = 0;
  const auto constrained = constrained_by(*setup.method);
  for (const auto& item : setup.model->named_parameters()) {
    const int64_t bytes = bytes_of(item.value());
    result.weights += bytes;
    if (item.value().requires_grad()) trainable += bytes;
    if (std::find(constrained.begin(), constrained.end(), item.key()) != constrained.end()) anchored += bytes;
  }
  result.gradients = trainable;
  result.optimizer = state_tensors_per_parameter(optim_of(setup.options)) * trainable;
  result.anchor = anchored;
  if (setup.options.model_ema) result.ema = result.weights;

  train_mode(*setup.model);
  const int64_t two = peak_of(setup, 2), four = peak_of(setup, 4);
  // Both hold the gradients at the end; what grows with the batch is what counts.
  const auto each = static_cast<double>(four - two) / 2;
  const double fixed = std::max(0.0, static_cast<double>(two) - 2 * each - static_cast<double>(trainable));
  result.activations = static_cast<int64_t>(fixed + each * static_cast<double>(setup.options.batch_size));
  const at::NoGradGuard no_grad;
  for (const auto& item : setup.model->named_buffers()) item.value().copy_(buffers[item.key()]);
  return result;
}

}  // namespace tpgm
