// Where a run's batches come from.
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

/// A Loader, or anything that gives the same batches for the same (epoch, number).
struct BatchSource {
  int64_t batches = 0;  ///< of an epoch
  std::function<void(int64_t epoch, int64_t first)> start;
  std::function<std::optional<Batch>()> next;
  /// Names an image of a batch, for messages.
  std::function<std::string(int64_t index)> place;
};
/// The loader must outlive it.
BatchSource batches_of(Loader& loader);

/// Full batches in a new order every epoch, as training sees images.
std::unique_ptr<Loader> training_loader(const Setup& setup);
/// Full batches in a new order every epoch, as evaluation sees images; none if there are no radius data.
std::unique_ptr<Loader> radius_loader(const Setup& setup);
/// All of the subset in order, as evaluation sees it.
std::unique_ptr<Loader> evaluation_loader(const Setup& setup, const SampleSubset& subset);

/// What is computed with a training batch: mixed as the options say, by (seed, epoch, number). `targets` are
/// the labels, or shares of classes.
struct MixedBatch {
  at::Tensor images, targets;
};
MixedBatch mix_batch(const Batch& batch, const TrainOptions& options, int64_t epoch, int64_t number,
                     int64_t classes);

/// Radius data one batch after the other, epoch after epoch.
class RadiusBatches {
 public:
  /// `drawn` is how many were, of a run that is resumed; it is counted up, and must outlive this.
  RadiusBatches(BatchSource source, int64_t& drawn) : source_(std::move(source)), drawn_(drawn) {}

  /// The next with an image that could be read. Throws if there is none.
  TrainingStep::RadiusBatch next();

 private:
  BatchSource source_;
  int64_t& drawn_;
  int64_t epoch_ = -1;
};

}  // namespace tpgm
