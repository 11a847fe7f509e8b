// The transforms and loader options of images, the same for every command.
#pragma once

#include <c10/core/Device.h>

#include "tpgm/data/loader.h"
#include "tpgm/io/metadata.h"
#include "tpgm/models/classifier.h"
#include "tpgm/train/options.h"
#include "tpgm/weights/load_classifier.h"

namespace tpgm {

/// From image files to a model's input: what a Loader takes.
struct ImageTransforms {
  EvalViewOptions eval;
  TrainViewOptions train;
  LoaderOptions loader;  ///< channels, mean and std; defaults for the rest
};

/// The transforms for a model. Each value is the first of: the one in `given`, the one in the metadata (of
/// load_classifier(), which looks into the checkpoint and into config files beside it), the usual one of the
/// model's family. The metadata must name the model (keys::kModel).
ImageTransforms image_transforms(const Classifier& model, const Metadata& metadata, ImageView given = {});
ImageTransforms image_transforms(const LoadedClassifier& loaded);

/// The transforms and loader options of a command; `loader` has everything but a batch size.
struct Images : ImageTransforms {
  bool augment = true;  ///< train on `train`, not on `eval`
};

/// image_transforms() with what the options give, augmentation, decoding and the options of the loader.
Images make_images(const TrainOptions& options, const Classifier& model, const Metadata& metadata,
                   c10::Device device);

/// The transforms of evaluation, to be saved in a checkpoint under keys::kView.
ImageView view_of(const Images& images);

}  // namespace tpgm
