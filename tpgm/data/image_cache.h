// Decoded images that are kept for the next epoch.
#pragma once

#include <cstdint>
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

}  // namespace tpgm
