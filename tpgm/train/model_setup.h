// The model of a run: a checkpoint and a head, which together are the anchor, and where training starts.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tpgm/data/dataset.h"
#include "tpgm/io/metadata.h"
#include "tpgm/models/classifier.h"
#include "tpgm/train/options.h"

namespace tpgm {

struct ModelSetup {
  std::shared_ptr<Classifier> model;  ///< on the CPU, unless a head was made from text
  Metadata metadata;                  ///< for what is saved from it
  std::vector<std::string> classes;   ///< in the head's order, by the names that the data have
  std::vector<std::string> notes;     ///< for the user to read
};

/// What the options say, with a head for the classes of `data`. Opens the checkpoint once. A head that is
/// made from text is made on `device`.
ModelSetup load_model(const TrainOptions& options, const Dataset& data, c10::Device device);

/// Weights to start from beside the anchor (`weights`), which must be of the same classes.
void load_start(Classifier& model, const TrainOptions& options, const std::vector<std::string>& classes);

/// The classes of a head made from text by the names of the data's folders, which have underscores for
/// spaces: those of `data` that are among them are renamed to their folders. Nothing if none is; throws if
/// only some are.
std::optional<std::vector<std::string>> classes_by_folder(const Dataset& data,
                                                          std::vector<std::string> names);

}  // namespace tpgm
