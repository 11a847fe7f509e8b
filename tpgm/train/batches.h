// The batches of a run: its loaders, mixup and CutMix, and radius data.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "tpgm/data/loader.h"
#include "tpgm/train/setup.h"
#include "tpgm/train/step.h"

namespace tpgm {

/// A Loader, or anything else that returns the same batch for the same epoch and number.
struct BatchSource {
  int64_t batches = 0;  ///< per epoch
  std::function<void(int64_t epoch, int64_t first)> start;
  std::function<std::optional<Batch>()> next;
  /// Returns the name of an image of a batch, for messages.
  std::function<std::string(int64_t index)> place;
};
/// The batches of a loader, which must outlive the result.
BatchSource batches_of(Loader& loader);

/// Full batches in a new order every epoch, with the transforms of training.
std::unique_ptr<Loader> training_loader(const Setup& setup);
/// Full batches in a new order every epoch, with the transforms of evaluation; null without radius data.
std::unique_ptr<Loader> radius_loader(const Setup& setup);
/// The whole subset in order, with the transforms of evaluation.
std::unique_ptr<Loader> evaluation_loader(const Setup& setup, const SampleSubset& subset);

/// A training batch after mixup or CutMix, as the options say. The mixing is a function of seed, epoch and
/// number. `targets` are labels, or class probabilities.
struct MixedBatch {
  at::Tensor images, targets;
};
MixedBatch mix_batch(const Batch& batch, const TrainOptions& options, int64_t epoch, int64_t number,
                     int64_t classes);
/// The same for the radius batch of this number, with `radius-mix` and `radius-smoothing`, and a random stream
/// of its own.
MixedBatch mix_radius_batch(const Batch& batch, const TrainOptions& options, int64_t number, int64_t classes);

/// Batches of radius data, epoch after epoch without end.
class RadiusBatches {
 public:
  /// `drawn` counts the batches that were drawn, and is where a resumed run continues. It must outlive this.
  RadiusBatches(BatchSource source, int64_t& drawn) : source_(std::move(source)), drawn_(drawn) {}

  /// The next batch with at least one readable image. Throws if there is none.
  Batch next();

 private:
  BatchSource source_;
  int64_t& drawn_;
  int64_t epoch_ = -1;
};

}  // namespace tpgm
