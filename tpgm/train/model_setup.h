// Loads the model of a run: backbone and head, which together are the anchor, and the weights that training
// starts from.
#pragma once

#include <c10/core/Device.h>

#include <filesystem>
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
  std::shared_ptr<Classifier> model;  ///< on the CPU, or on the device if a head was made from text
  Metadata metadata;                  ///< for checkpoints of the run
  std::vector<std::string> classes;   ///< in the order of the head, with the names of the data
  std::vector<std::string> notes;     ///< for the user to read
  HeadSource head;                    ///< of the options; never auto
  bool fresh_head = false;            ///< a fresh head on pre-trained weights
  bool outputs_are_logits = false;    ///< as in LoadedClassifier
};

/// Loads the model that the options describe, with a head for the classes of `data`. Opens the checkpoint
/// once. A head that is made from text is computed on `device`. `head` auto is zeroshot for a whole CLIP (with
/// its text tower and a vocabulary) if `classnames` or the data name the classes in words, else fresh.
ModelSetup load_model(const TrainOptions& given, const Dataset& data, c10::Device device);

/// What `head` of the options stands for with these classes: auto is decided as load_model() does. Opens the
/// checkpoint; adds why to `notes`.
HeadSource decided_head(const TrainOptions& options, const std::vector<std::string>& classes,
                        std::vector<std::string>& notes);

/// The `model` that the recipe of the run in the folder `run` has. A TorchScript file that is no longer where the
/// recipe says is the one of the same name in the folder; other models stay as they are. A path that is not
/// absolute is that of the folder.
std::string model_of_run(const std::string& model, const std::filesystem::path& run);

/// The TorchScript file that the recipe of a run names as its model, for LoadOptions::script(). `checkpoint` is
/// the folder of the run or a file in it. Empty if the metadata of the checkpoint name no script, whatever lies
/// beside it.
std::filesystem::path script_of_run(const std::filesystem::path& checkpoint);

/// Loads the weights to start from where they are not the anchor (`weights`). They must have the same
/// classes.
void load_start(Classifier& model, const TrainOptions& options, const std::vector<std::string>& classes);

/// The class names of a head made from text, replaced by the class folders of `data` that they match (folders
/// have underscores instead of spaces). Empty if no folder matches; throws if only some do.
std::optional<std::vector<std::string>> classes_by_folder(const Dataset& data,
                                                          std::vector<std::string> names);
/// The note for the user in that case.
inline constexpr const char* kNoClassByFolder =
    "no class folder has the name of a class of the head; classes are matched by their order";

}  // namespace tpgm
