// How images become what a model sees, the same for every command.
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
  LoaderOptions loader;  ///< device, channels, mean, std, workers and so on; of batches nothing
};

/// What the options say; or else the checkpoint, by the metadata of load_classifier(); or else the usual of
/// the model.
Images make_images(const TrainOptions& options, const Classifier& model, const Metadata& metadata,
                   c10::Device device);

/// The same of these, to be saved as keys::kView.
ImageView view_of(const Images& images);

}  // namespace tpgm
