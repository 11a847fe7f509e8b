// The progress of a run, and the time that it will take.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "tpgm/train/loss_queue.h"

namespace tpgm {

/// What a progress line shows.
struct TrainProgress {
  std::string phase;  ///< "ft", or "lp" in the first phase of lp-ft
  int64_t epoch = 0, epochs = 0, step = 0, steps = 0;
  /// Averages since the last log line; empty before the first loss has arrived from the device.
  struct Numbers {
    double images_s, loss, accuracy;
  };
  std::optional<Numbers> numbers;
  double seconds_left = 0;
};
/// "ft epoch 1/3, step 2/30, 512 images/s, loss 1.2345, accuracy 67.89 %".
std::string to_text(const TrainProgress& progress);

/// The same of the radius steps after the last training step.
struct RadiusProgress {
  int64_t step = 0, steps = 0;
  at::Tensor loss;  ///< of radius data, before the step; on the device: reading it synchronizes
  double seconds_left = 0;
};
/// "learning radii: step 12 of 200, loss 0.1234".
std::string to_text(const RadiusProgress& progress);

/// Measures the steps and evaluations of this process.
class RunClock {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static Time now() { return std::chrono::steady_clock::now(); }
  static double since(Time begin) { return std::chrono::duration<double>(now() - begin).count(); }

  /// The time of the run, including `before`, the time in earlier processes.
  double seconds() const { return before + since(begin_); }
  double before = 0;

  /// Starts measuring images per second: at the beginning of a log window, and within one after an evaluation
  /// or in a resumed process. Images of the window that are in `sums` already do not count.
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
