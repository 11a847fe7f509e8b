// What the options, the checkpoint and the model's family say of images.
#include "tpgm/train/image_setup.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "tpgm/base/call.h"
#include "tpgm/models/families.h"
#include "tpgm/models/named_models.h"
#include "tpgm/weights/read.h"

namespace tpgm {
namespace {

LoaderOptions::Triple triple(const std::vector<double>& given) {
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

ImageTransforms image_transforms(const Classifier& model, const Metadata& metadata, ImageView given) try {
  fill(given, keys::kView.of(metadata));
  const ImageView view = complete(std::move(given), *parse_model(keys::kModel.at(metadata)).family);
  const auto why = complaint(view);
  TORCH_CHECK(why.empty(), why);
  auto interpolation = Interpolation::kBicubic;
  from_text("the checkpoint's interpolation", *view.interpolation, interpolation);
  const int64_t size = model.backbone->image_size();
  ImageTransforms transforms;
  transforms.eval.image_size(size).crop_pct(*view.crop_pct).interpolation(interpolation);
  transforms.train.image_size(size).interpolation(interpolation);
  transforms.loader.channels(model.backbone->channels()).mean(triple(view.mean)).std(triple(view.std));
  return transforms;
} catch (...) {
  rethrow_from("image_transforms");
}

ImageTransforms image_transforms(const LoadedClassifier& loaded) {
  return image_transforms(*loaded.model, loaded.metadata);
}

Images make_images(const TrainOptions& options, const Classifier& model, const Metadata& metadata,
                   c10::Device device) try {
  ImageView given{options.mean, options.std, options.crop_pct, {}};
  if (options.interpolation) given.interpolation = to_text(*options.interpolation);
  Images images{image_transforms(model, metadata, std::move(given)), !options.no_aug};
  images.eval.decode(options.decode);
  const auto& jitter = options.color_jitter;
  const auto strength = [&](size_t i) {
    return jitter.size() == 1 ? (i < 3 ? jitter[0] : 0) : i < jitter.size() ? jitter[i] : 0;
  };
  const auto& moves = options.affine;
  const auto move = [&](size_t i) { return i < moves.size() ? moves[i] : 0; };
  RandAugmentOptions augment;
  if (!options.rand_augment.empty()) augment.num_ops(static_cast<int64_t>(options.rand_augment[0]));
  if (options.rand_augment.size() > 1) augment.magnitude(static_cast<int64_t>(options.rand_augment[1]));
  images.train.scale({options.crop_scale[0], options.crop_scale[1]})
      .ratio({options.crop_ratio[0], options.crop_ratio[1]})
      .hflip(options.hflip)
      .affine(AffineOptions().degrees(move(0)).translate(move(1)).scale(move(2)))
      .color_jitter(ColorJitterOptions()
                        .brightness(strength(0))
                        .contrast(strength(1))
                        .saturation(strength(2))
                        .hue(strength(3)))
      .rand_augment(augment)
      .decode(options.train_decode);
  const auto threads = static_cast<int64_t>(std::max(1U, std::thread::hardware_concurrency()));
  images.loader.device(device)
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
