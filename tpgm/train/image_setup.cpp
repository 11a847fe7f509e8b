// What the options, the checkpoint and the model's family say of images.
#include "tpgm/train/image_setup.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <thread>

#include "tpgm/base/call.h"
#include "tpgm/models/families.h"
#include "tpgm/models/named_models.h"

namespace tpgm {
namespace {

// The first of: the option, what the checkpoint says, the default of the model's family.
LoaderOptions::Triple triple(const std::vector<double>& option, const std::vector<double>& of_checkpoint,
                             const std::array<double, 3>& usual) {
  const auto& given = option.empty() ? of_checkpoint : option;
  if (given.empty()) return usual;
  TORCH_CHECK(given.size() == 1 || given.size() == 3, "the checkpoint has ", given.size(),
              " numbers as the mean or std of images, instead of 1 or 3; give `mean` and `std`");
  return given.size() == 1 ? LoaderOptions::Triple{given[0], given[0], given[0]}
                           : LoaderOptions::Triple{given[0], given[1], given[2]};
}

}  // namespace

ImageView view_of(const Images& images) {
  const auto &mean = images.loader.mean(), &std = images.loader.std();
  return {{mean.begin(), mean.end()},
          {std.begin(), std.end()},
          images.eval.crop_pct(),
          to_text(images.eval.interpolation())};
}

Images make_images(const TrainOptions& options, const Classifier& model, const Metadata& metadata,
                   c10::Device device) try {
  const ImageView own = keys::kView.of(metadata);
  const Family& family = *parse_model(keys::kModel.at(metadata)).family;
  const Normalization& usual = family.normalization;
  auto interpolation = Interpolation::kBicubic;
  if (own.interpolation) from_text("the checkpoint's interpolation", *own.interpolation, interpolation);
  interpolation = options.interpolation.value_or(interpolation);
  Images images;
  images.augment = !options.no_aug;
  images.eval.image_size(model.backbone->image_size())
      .crop_pct(options.crop_pct.value_or(own.crop_pct.value_or(family.crop_pct)))
      .decode(options.decode)
      .interpolation(interpolation);
  const auto& jitter = options.color_jitter;
  const auto strength = [&](size_t i) {
    return jitter.size() == 1 ? (i < 3 ? jitter[0] : 0) : i < jitter.size() ? jitter[i] : 0;
  };
  RandAugmentOptions augment;
  if (!options.rand_augment.empty()) augment.num_ops(static_cast<int64_t>(options.rand_augment[0]));
  if (options.rand_augment.size() > 1) augment.magnitude(static_cast<int64_t>(options.rand_augment[1]));
  images.train.image_size(model.backbone->image_size())
      .scale({options.crop_scale[0], options.crop_scale[1]})
      .ratio({options.crop_ratio[0], options.crop_ratio[1]})
      .hflip(options.hflip)
      .color_jitter(ColorJitterOptions()
                        .brightness(strength(0))
                        .contrast(strength(1))
                        .saturation(strength(2))
                        .hue(strength(3)))
      .rand_augment(augment)
      .decode(options.train_decode)
      .interpolation(interpolation);
  const auto threads = static_cast<int64_t>(std::max(1U, std::thread::hardware_concurrency()));
  images.loader.device(device)
      .channels(model.backbone->channels())
      .mean(triple(options.mean, own.mean, usual.mean))
      .std(triple(options.std, own.std, usual.std))
      .workers(options.workers > 0 ? options.workers : threads)
      .max_pixels(options.max_pixels)
      .on_bad_image(options.on_bad_image)
      .cache(options.cache.bytes)
      .seed(static_cast<uint64_t>(options.seed));
  return images;
} catch (...) {
  rethrow_from("make_images");
}

}  // namespace tpgm
