// The threads, and what they wait for.
#include "tpgm/data/batch_queue.h"

#include <system_error>
#include <utility>

namespace tpgm {

BatchQueue::BatchQueue(int64_t workers, std::function<void()> prepare, Make make)
    : prepare_(std::move(prepare)), make_(std::move(make)) {
  try {
    for (int64_t i = 0; i < workers; ++i) workers_.emplace_back([this] { work(); });
  } catch (const std::system_error&) {
    stop();
    throw;
  }
}

BatchQueue::~BatchQueue() { stop(); }

void BatchQueue::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void BatchQueue::halt() {
  const std::lock_guard lock(mutex_);
  halted_ = true;
}

void BatchQueue::start(int64_t first) {
  std::unique_lock lock(mutex_);
  halted_ = true;
  ready_.wait(lock, [&] { return busy_ == 0; });
  open_.clear();
  first_ = batch_ = first;
  item_ = 0;
  halted_ = false;
}

void BatchQueue::open(size_t items) {
  {
    const std::lock_guard lock(mutex_);
    open_.push_back({items, items});
  }
  work_.notify_all();
}

bool BatchQueue::ready(bool wait) {
  std::unique_lock lock(mutex_);
  const auto made = [&] { return open_.front().left == 0; };
  if (wait) ready_.wait(lock, made);
  return made();
}

void BatchQueue::close() {
  const std::lock_guard lock(mutex_);
  open_.pop_front();
  ++first_;
}

void BatchQueue::work() {
  prepare_();
  std::unique_lock lock(mutex_);
  while (true) {
    const auto any = [&] { return batch_ < first_ + static_cast<int64_t>(open_.size()); };
    work_.wait(lock, [&] { return stop_ || (!halted_ && any()); });
    if (stop_) return;
    const int64_t batch = batch_;
    const size_t item = item_++;
    if (item_ == open_[static_cast<size_t>(batch - first_)].items) {
      ++batch_;
      item_ = 0;
    }
    ++busy_;
    lock.unlock();
    make_(batch, item);
    lock.lock();
    --busy_;
    const bool made = --open_[static_cast<size_t>(batch - first_)].left == 0;
    if (made || busy_ == 0) ready_.notify_all();
  }
}

}  // namespace tpgm
