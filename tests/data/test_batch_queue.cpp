// Batches arrive whole and in order, and an end leaves nothing behind. ThreadSanitizer runs these tests, too.
#include "tpgm/data/batch_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>

namespace tpgm {
namespace {

// Batches of 1 to 5 items, as many as there are slots at a time, each of which holds the numbers of its items. Slots
// have no lock: the queue alone orders who reads and writes them.
class Squares {
 public:
  Squares(int64_t workers, size_t slots)
      : slots_(slots),
        queue_(
            workers, [this] { ++prepared_; },
            [this](int64_t batch, size_t item) {
              // Some take longer, so that they end in another order than they began.
              if ((batch + static_cast<int64_t>(item)) % 7 == 0)
                std::this_thread::sleep_for(std::chrono::microseconds(200));
              slot(batch)[item] = value(batch, item);
            }) {}

  static size_t size(int64_t batch) { return 1 + static_cast<size_t>(batch % 5); }
  int64_t value(int64_t batch, size_t item) const {
    return factor_ * (batch * 10 + static_cast<int64_t>(item));
  }

  void start(int64_t first, int64_t end, int64_t factor = 1) {
    queue_.start(first);
    factor_ = factor;  // workers read it
    next_ = opened_ = first;
    end_ = end;
    while (opened_ < std::min(end_, next_ + static_cast<int64_t>(slots_.size()))) open();
  }
  bool ready(bool wait) { return queue_.ready(wait); }
  bool is_open() const { return next_ < opened_; }
  void halt() { queue_.halt(); }
  // Whether the next batch, which is waited for, has its values.
  bool take() {
    queue_.ready(/*wait=*/true);
    const auto& items = slot(next_);
    bool right = items.size() == size(next_);
    for (size_t i = 0; i < items.size(); ++i) right = right && items[i] == value(next_, i);
    queue_.close();
    ++next_;
    if (opened_ < end_) open();
    return right;
  }
  int prepared() const { return prepared_; }

 private:
  std::vector<int64_t>& slot(int64_t batch) { return slots_[static_cast<size_t>(batch) % slots_.size()]; }
  void open() {
    slot(opened_).assign(size(opened_), -1);
    queue_.open(size(opened_));
    ++opened_;
  }

  std::vector<std::vector<int64_t>> slots_;
  int64_t factor_ = 1, next_ = 0, opened_ = 0, end_ = 0;
  std::atomic<int> prepared_ = 0;
  BatchQueue queue_;
};

TEST(BatchQueue, BatchesAreWholeAndInOrder) {
  for (const int64_t workers : {1, 2, 8}) {
    for (const size_t slots : {1, 4}) {
      Squares squares(workers, slots);
      squares.start(0, 100);
      int64_t taken = 0;
      for (; squares.is_open(); ++taken) ASSERT_TRUE(squares.take()) << taken;
      EXPECT_EQ(taken, 100);
    }
  }
}

TEST(BatchQueue, ABatchThatIsNotReadyCanBeLeft) {
  Squares squares(4, 3);
  squares.start(7, 60);
  for (int64_t taken = 0; taken < 53; ++taken) {
    while (!squares.ready(/*wait=*/false)) std::this_thread::yield();
    ASSERT_TRUE(squares.take()) << taken;
  }
  EXPECT_FALSE(squares.is_open());
}

TEST(BatchQueue, AStartInTheMiddleForgetsWhatWasOpen) {
  Squares squares(4, 4);
  for (int64_t start = 0; start < 50; ++start) {
    squares.start(start, start + 20, /*factor=*/start + 2);
    for (int64_t i = 0; i < start % 6; ++i) ASSERT_TRUE(squares.take()) << start << ", " << i;
  }
}

TEST(BatchQueue, NothingIsBegunAfterAHalt) {
  std::atomic<int> begun = 0;
  BatchQueue queue(
      2, [] {},
      [&](int64_t, size_t) {
        ++begun;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      });
  queue.start(0);
  queue.open(1000);
  while (begun == 0) std::this_thread::yield();
  queue.halt();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const int at_halt = begun;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(begun, at_halt);
  EXPECT_LT(begun, 1000);
  queue.start(0);  // and a start ends it
  queue.open(3);
  EXPECT_TRUE(queue.ready(/*wait=*/true));
  EXPECT_EQ(begun, at_halt + 3);
}

TEST(BatchQueue, DestructionDoesNotWaitForWhatIsOpen) {
  std::atomic<int> made = 0;
  {
    BatchQueue queue(
        3, [] {},
        [&](int64_t, size_t) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
          ++made;
        });
    queue.start(0);
    queue.open(100000);
  }
  EXPECT_LT(made, 1000);
}

TEST(BatchQueue, EveryWorkerIsPreparedBeforeItsFirstItem) {
  Squares squares(3, 2);
  squares.start(0, 50);
  while (squares.is_open()) ASSERT_TRUE(squares.take());
  EXPECT_GE(squares.prepared(), 1);
  EXPECT_LE(squares.prepared(), 3);
}

}  // namespace
}  // namespace tpgm
