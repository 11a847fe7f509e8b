// Classifiers as commands are given them: a checkpoint, a head, the classes it knows.
#pragma once

#include <string>
#include <vector>

#include "tpgm/data/dataset.h"
#include "tpgm/models/classifier.h"
#include "tpgm/weights/load_classifier.h"

namespace tpgm::tools {

/// Whether a checkpoint brings a head of its own.
bool has_head(const std::string& model, const std::string& checkpoint);

/// A classifier that was asked for on the command line.
struct GivenClassifier {
  LoadedClassifier loaded;
  /// The file of `tpgm zeroshot` whose head it has; empty: its own.
  std::string head;
  /// In the head's order, as the checkpoint says; empty if it does not.
  std::vector<std::string> classes;
};

/// With the checkpoint's own head, or with `head` if it has none. A script without a checkpoint is a
/// classifier by itself. Says notes on stderr, unless `quiet`.
GivenClassifier open_classifier(const char* command, const std::string& model, const std::string& checkpoint,
                                const std::string& head, bool quiet = false);

/// The head's classes in its order, by the names that `data` has: what the checkpoint says; or else the list;
/// or else the names that the head was made from; or else those of the data, if they are as many.
std::vector<std::string> classes_for(const char* command, const GivenClassifier& given,
                                     const std::string& class_list, const Dataset& data);

}  // namespace tpgm::tools
