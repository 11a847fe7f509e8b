// Opens a classifier by the names of its parts: model, checkpoint and head; and finds its classes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tpgm/data/dataset.h"
#include "tpgm/models/classifier.h"
#include "tpgm/weights/load_classifier.h"

namespace tpgm {

/// Receives messages for the user.
using Say = std::function<void(const std::string&)>;

/// Whether a checkpoint brings a head of its own; a script's outputs do not count as a head.
bool has_head(const std::string& model, const std::string& checkpoint);

struct GivenClassifier {
  LoadedClassifier loaded;
  /// The file of its head, made from text; empty: the head of the checkpoint.
  std::string head;
  /// The classes in the metadata of the checkpoint, in the order of the head; empty if it has none.
  std::vector<std::string> classes;
};

/// When a given head is used: only if the checkpoint has none, always, or never, because only features are
/// needed.
enum class HeadUse { kWhereNone, kAlways, kNever };

/// Opens a classifier with the head of the checkpoint or with `head`. A TorchScript model without either is a
/// classifier by itself. A script that a checkpoint names is found as load_classifier() says, or by the recipe
/// of its run. `note` may be empty.
GivenClassifier open_classifier(const std::string& model, const std::string& checkpoint,
                                const std::string& head, const Say& note, HeadUse use = HeadUse::kWhereNone);

/// The classes of the head in its order, by the names that `data` has. They come from the first of these that
/// is there: `class_list` (a file or folder; may be empty), the checkpoint, the names that the head was made
/// from, and the data. Throws if their number is not that of the head's outputs.
std::vector<std::string> classes_for(const GivenClassifier& given, const std::string& class_list,
                                     const Dataset& data, const Say& note);

}  // namespace tpgm
