#include "tpgm/train/batches.h"

#include <c10/util/Exception.h>

#include "tpgm/data/mix.h"
#include "tpgm/data/random.h"
#include "tpgm/train/from_options.h"

namespace tpgm {
namespace {

constexpr uint64_t kMixPurpose = 0x3141, kRadiusMixPurpose = 0x3142;  // of the random streams

MixedBatch mixed(const Batch& batch, const MixOptions& options, int64_t classes, Random& random) {
  const Mix mix = draw_mix(options, batch.images.size(2), batch.images.size(3), random);
  const bool mixes = options.mixup() > 0 || options.cutmix() > 0;
  return {mix_images(batch.images, mix),
          mixes ? mix_targets(batch.labels, classes, mix, options.smoothing()) : batch.labels};
}

std::unique_ptr<Loader> loader_of(const Setup& setup, const SampleSubset& subset, const View& view,
                                  int64_t batch_size, bool shuffle) {
  LoaderOptions options = setup.images.loader;
  options.batch_size(batch_size).shuffle(shuffle).drop_last(shuffle);
  return std::make_unique<Loader>(subset, view, options);
}

}  // namespace

BatchSource batches_of(Loader& loader) {
  return {loader.batches(), [&](int64_t epoch, int64_t first) { loader.start(epoch, first); },
          [&] { return loader.next(); },
          [&](int64_t index) { return loader.subset().samples->place(index); }};
}

std::unique_ptr<Loader> training_loader(const Setup& setup) {
  const auto& images = setup.images;
  const View view = images.augment ? View(images.train) : View(images.eval);
  return loader_of(setup, setup.data.train, view, setup.options.batch_size, true);
}

std::unique_ptr<Loader> radius_loader(const Setup& setup) {
  if (setup.data.radius.size() == 0) return nullptr;
  const int64_t batch_size = setup.options.radius_batch_size.value_or(1);
  return loader_of(setup, setup.data.radius, setup.images.eval, batch_size, true);
}

std::unique_ptr<Loader> evaluation_loader(const Setup& setup, const SampleSubset& subset) {
  const int64_t batch_size = setup.options.validation_batch_size.value_or(1);
  return loader_of(setup, subset, setup.images.eval, batch_size, false);
}

MixedBatch mix_batch(const Batch& batch, const TrainOptions& options, int64_t epoch, int64_t number,
                     int64_t classes) {
  Random random(static_cast<uint64_t>(options.seed), static_cast<uint64_t>(epoch),
                static_cast<uint64_t>(number), kMixPurpose);
  return mixed(batch, mix_of(options), classes, random);
}

MixedBatch mix_radius_batch(const Batch& batch, const TrainOptions& options, int64_t number,
                            int64_t classes) {
  if (!options.radius_mix.value_or(false)) return {batch.images, batch.labels};
  Random random(static_cast<uint64_t>(options.seed), 0, static_cast<uint64_t>(number), kRadiusMixPurpose);
  return mixed(batch, mix_of(options).smoothing(options.radius_smoothing.value_or(0)), classes, random);
}

Batch RadiusBatches::next() {
  std::optional<Batch> batch;
  for (int64_t tries = 0; !batch || batch->indices.empty(); ++tries) {  // empty: none of it could be read
    TORCH_CHECK(tries < 2 * source_.batches, "[RadiusBatches::next] none of the radius data can be read");
    const int64_t epoch = drawn_ / source_.batches;
    if (epoch != epoch_) source_.start(epoch, drawn_ % source_.batches);
    epoch_ = epoch;
    batch = source_.next();
    ++drawn_;
  }
  return std::move(*batch);
}

}  // namespace tpgm
