// Losses on their way from the device, and what they add up to.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tpgm/train/step.h"

namespace tpgm {

/// Sums over images.
struct LossSums {
  double loss = 0, correct = 0, images = 0;

  /// NaN without images, as the next.
  double mean_loss() const;
  double accuracy() const;  ///< in per cent
};

/// The loss of one step, of one batch or several.
class StepLoss {
 public:
  explicit StepLoss(int64_t step) : step_(step) {}

  void add(const TrainingStep::Result& result, const std::vector<int64_t>& indices);
  /// Begins the way to the host, after the last add().
  void send();
  /// Waits until it has arrived.
  LossSums sums() const;

  int64_t step() const { return step_; }
  /// The images of its batches; none if none of them could be read.
  const std::vector<int64_t>& indices() const { return indices_; }

 private:
  int64_t step_;
  at::Tensor numbers_;                // sums of loss and correct predictions
  std::unique_ptr<c10::Event> sent_;  // on CUDA
  std::vector<int64_t> indices_;
};

/// Losses that were sent and not read yet. Reading one step late does not hold up the device.
class LossQueue {
 public:
  void push(StepLoss loss) { losses_.push_back(std::move(loss)); }
  /// Takes out all but the last `leave`, the oldest first. A loss is gone if take() throws.
  void read(size_t leave, const std::function<void(const StepLoss& loss, const LossSums& sums)>& take);

 private:
  std::deque<StepLoss> losses_;
};

/// For the error about a loss that is not finite: "'a.png', 'b.png', 'c.png' and 1 more".
std::string first_places(const std::vector<std::string>& places);

}  // namespace tpgm
