// The transforms and loader options of images, the same for every command.
#pragma once

#include <c10/core/Device.h>

#include "tpgm/data/loader.h"
#include "tpgm/io/metadata.h"
#include "tpgm/models/classifier.h"
#include "tpgm/train/options.h"

namespace tpgm {

struct Images {
  EvalViewOptions eval;
  TrainViewOptions train;
  bool augment = true;   ///< train on `train`, not on `eval`
  LoaderOptions loader;  ///< device, channels, mean, std, workers and so on, without a batch size
};

/// Each value is the first of: the option, the one in the metadata of the checkpoint (from
/// load_classifier()), the default of the model family.
Images make_images(const TrainOptions& options, const Classifier& model, const Metadata& metadata,
                   c10::Device device);

/// The transforms of evaluation, to be saved in a checkpoint under keys::kView.
ImageView view_of(const Images& images);

}  // namespace tpgm
