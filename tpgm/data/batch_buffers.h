// The memory of the batches of a loader.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/Event.h>

#include <deque>
#include <memory>
#include <vector>

namespace tpgm {

/// Tensors for the images of a batch, which are reused when nothing else refers to them.
class BatchBuffers {
 public:
  BatchBuffers(at::IntArrayRef shape, at::TensorOptions options, size_t most)
      : shape_(shape.vec()), options_(options), most_(most) {}

  at::Tensor take() {
    for (auto& each : buffers_) {
      const bool free = each.tensor.use_count() == 1 && each.tensor.storage().use_count() == 1;
      if (free && (!each.copied || each.copied->query())) {
        each.copied.reset();
        return each.tensor;
      }
    }
    if (buffers_.size() == most_) buffers_.pop_front();  // its user still holds it
    return buffers_.emplace_back(Buffer{at::empty(shape_, options_), {}}).tensor;
  }
  /// `tensor` is not reused before the event `copied`, until which the device reads it.
  void in_use(const at::Tensor& tensor, std::shared_ptr<c10::Event> copied) {
    for (auto& each : buffers_) {
      if (each.tensor.is_alias_of(tensor)) each.copied = copied;
    }
  }

 private:
  struct Buffer {
    at::Tensor tensor;
    std::shared_ptr<c10::Event> copied;
  };
  std::vector<int64_t> shape_;
  at::TensorOptions options_;
  size_t most_;
  std::deque<Buffer> buffers_;
};

}  // namespace tpgm
