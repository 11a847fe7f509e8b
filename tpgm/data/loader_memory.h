// The memory of the loader: a cache of decoded images, and buffers for batches.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/Event.h>

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "tpgm/data/image.h"

namespace tpgm {

/// Keeps decoded images up to a limit of bytes. Thread-safe.
class ImageCache {
 public:
  ImageCache(int64_t limit, int64_t images)
      : limit_(limit), images_(limit > 0 ? static_cast<size_t>(images) : 0) {}

  bool enabled() const { return limit_ > 0; }
  std::shared_ptr<const Image> get(int64_t i) {
    const std::lock_guard lock(mutex_);
    return images_[static_cast<size_t>(i)];
  }
  void put(int64_t i, const std::shared_ptr<const Image>& image) {
    const std::lock_guard lock(mutex_);
    const auto bytes = static_cast<int64_t>(image->pixels.size());
    if (images_[static_cast<size_t>(i)] || used_ + bytes > limit_) return;
    used_ += bytes;
    images_[static_cast<size_t>(i)] = image;
  }

 private:
  int64_t limit_, used_ = 0;
  std::mutex mutex_;
  std::vector<std::shared_ptr<const Image>> images_;
};

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
