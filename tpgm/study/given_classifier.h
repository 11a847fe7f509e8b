// A classifier by the names of its parts: a model, a checkpoint, a head, the classes it knows.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tpgm/data/dataset.h"
#include "tpgm/models/classifier.h"
#include "tpgm/weights/load_classifier.h"

namespace tpgm {

/// Is told sentences for the user.
using Say = std::function<void(const std::string&)>;

/// Whether a checkpoint brings a head of its own.
bool has_head(const std::string& model, const std::string& checkpoint);

struct GivenClassifier {
  LoadedClassifier loaded;
  /// The file whose head it has, made from text; empty: its own.
  std::string head;
  /// In the head's order, as the checkpoint says; empty if it does not.
  std::vector<std::string> classes;
};

/// When a given head is used: where the checkpoint has none, in any case, or never, as only features are
/// wanted.
enum class HeadUse { kWhereNone, kAlways, kNever };

/// With the checkpoint's own head, or with `head`. A script without a checkpoint is a classifier by itself.
/// `note` may be empty.
GivenClassifier open_classifier(const std::string& model, const std::string& checkpoint,
                                const std::string& head, const Say& note, HeadUse use = HeadUse::kWhereNone);

/// The classes of the head in its order, by the names that `data` has. They come from the first of these that
/// is there: `class_list` (a file or folder; may be empty), the checkpoint, the names that the head was made
/// from, and the data. Throws if their number is not that of the head's outputs.
std::vector<std::string> classes_for(const GivenClassifier& given, const std::string& class_list,
                                     const Dataset& data, const Say& note);

}  // namespace tpgm
