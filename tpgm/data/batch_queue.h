// Worker threads that make the items of batches ahead of their use. It knows neither tensors nor images.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tpgm {

/// Batches have consecutive numbers. The caller opens a batch when there is room for its items, the workers make the
/// items in order, several at once, and the caller takes the batches in order.
///
/// All calls must come from one thread. What the caller writes before open() is visible to the workers that make the
/// items, and what they write is visible to the caller once ready() is true.
class BatchQueue {
 public:
  /// Makes one item of a batch. Workers call it, for different items at the same time. It must not throw.
  using Make = std::function<void(int64_t batch, size_t item)>;

  /// Each worker calls `prepare` once. Throws std::system_error if a thread cannot be started.
  BatchQueue(int64_t workers, std::function<void()> prepare, Make make);
  /// Waits for the items that are being made.
  ~BatchQueue();
  BatchQueue(const BatchQueue&) = delete;
  BatchQueue& operator=(const BatchQueue&) = delete;

  /// No other item is begun until start() and open(). Items that are being made become ready.
  void halt();
  /// Forgets all batches, after it has waited for the items that are being made. `first` is opened next.
  void start(int64_t first);
  /// Opens the batch after the last one; it has at least one item.
  void open(size_t items);
  /// True if all items of the first open batch are made. With `wait` it waits for them.
  bool ready(bool wait);
  /// Closes the first open batch, which is ready.
  void close();

 private:
  void work();
  void stop();

  std::function<void()> prepare_;
  Make make_;
  std::mutex mutex_;
  std::condition_variable work_, ready_;
  struct Open {
    size_t items, left;  // in all, and not made yet
  };
  std::deque<Open> open_;
  int64_t first_ = 0;  // the number of the first open batch
  // The next item to be made.
  int64_t batch_ = 0;
  size_t item_ = 0;
  int64_t busy_ = 0;  // workers that make an item
  bool halted_ = false, stop_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace tpgm
