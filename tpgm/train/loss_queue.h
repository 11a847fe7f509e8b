// Copies losses from the device without synchronizing, and sums them up.
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

/// Sums over images: of losses and correct predictions, and the number of images.
struct LossSums {
  double loss = 0, correct = 0, images = 0;

  double mean_loss() const;  ///< NaN without images
  double accuracy() const;   ///< in percent; NaN without images
};

/// The loss of one step over its batches.
class StepLoss {
 public:
  explicit StepLoss(int64_t step) : step_(step) {}

  void add(const TrainingStep::Result& result, const std::vector<int64_t>& indices);
  /// Starts the copy to the host; to be called after the last add().
  void send();
  /// Waits for the copy.
  LossSums sums() const;

  int64_t step() const { return step_; }
  /// The images of its batches; empty if none could be read.
  const std::vector<int64_t>& indices() const { return indices_; }

 private:
  int64_t step_;
  at::Tensor numbers_;                // sums of loss and correct predictions
  std::unique_ptr<c10::Event> sent_;  // on CUDA
  std::vector<int64_t> indices_;
};

/// Losses that were sent and not read yet. The loop reads them one step late, so that the device is never
/// idle.
class LossQueue {
 public:
  void push(StepLoss loss) { losses_.push_back(std::move(loss)); }
  /// Removes all but the last `leave`, oldest first, and calls take() for each. A loss for which take()
  /// throws is removed, too.
  void read(size_t leave, const std::function<void(const StepLoss& loss, const LossSums& sums)>& take);

 private:
  std::deque<StepLoss> losses_;
};

/// "'a.png', 'b.png', 'c.png' and 1 more", for the error about a loss that is not finite.
std::string first_places(const std::vector<std::string>& places);

}  // namespace tpgm
