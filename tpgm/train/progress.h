// Where a run is, and how long it will take.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "tpgm/train/loss_queue.h"

namespace tpgm {

/// For a progress line.
struct TrainProgress {
  std::string phase;  ///< "ft", or "lp" of lp-ft
  int64_t epoch = 0, epochs = 0, step = 0, steps = 0;
  /// Since the last line of the log; none while no loss has arrived from the device.
  struct Numbers {
    double images_s, loss, accuracy;
  };
  std::optional<Numbers> numbers;
  double seconds_left = 0;
};
/// "ft epoch 1/3, step 2/30, 512 images/s, loss 1.2345, accuracy 67.89 %".
std::string to_text(const TrainProgress& progress);

/// How long things take in this process.
class RunClock {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static Time now() { return std::chrono::steady_clock::now(); }
  static double since(Time begin) { return std::chrono::duration<double>(now() - begin).count(); }

  /// Of the run, with `before` in other processes.
  double seconds() const { return before + since(begin_); }
  double before = 0;

  /// A window of the log begins, or goes on in another epoch or process: of its images, those until now do
  /// not count for the rate.
  void restart(const LossSums& sums) {
    window = now();
    images_before_ = sums.images;
  }
  bool knows(const LossSums& sums) const { return sums.images > images_before_; }
  double images_s(const LossSums& sums) const {
    return (sums.images - images_before_) / std::max(since(window), 1e-9);
  }
  Time window = now();

  void count_step() { ++steps_; }
  void count_evaluation(Time begin) {
    evaluation_ += since(begin);
    ++evaluations_;
  }
  double seconds_left(int64_t steps, int64_t evaluations) const;

 private:
  Time begin_ = now();
  double images_before_ = 0;
  double evaluation_ = 0;  // seconds
  int64_t steps_ = 0, evaluations_ = 0;
};

}  // namespace tpgm
