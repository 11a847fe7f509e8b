// Logits or features of images, and the classes they come out as.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tpgm/data/dataset.h"
#include "tpgm/data/loader.h"
#include "tpgm/models/classifier.h"
#include "tpgm/study/given_classifier.h"

namespace tpgm {

struct PredictOptions {
  bool features = false;  ///< what the head sees, in place of logits
  bool amp = false;
  bool subset = false;  ///< score over the classes that occur in the part only
  /// Told the number of images after each batch.
  std::function<void(size_t)> progress;
};

/// What was computed of a part, in its order.
struct Predictions {
  Dataset::Part part;
  std::vector<int64_t> indices;  ///< of the images that could be read
  at::Tensor rows;    ///< logits or features, float32 on the CPU; undefined: no image could be read
  at::Tensor labels;  ///< −1: none
  std::vector<int64_t> predicted;  ///< the class of each; of features none
  std::vector<int64_t> scored;     ///< the classes to choose from; empty: all
  int64_t labelled = 0, correct = 0;

  /// In per cent of those that have a label.
  double accuracy() const;
  /// How many classes there were to choose from.
  int64_t scored_classes() const;
};

/// In eval() mode, without gradients. The loader is of the whole part, and is read to its end.
Predictions predict(Classifier& model, const Dataset::Part& part, Loader& loader,
                    const PredictOptions& options);

/// The data set with its classes in the order of the head's. Images without labels, or of which only features
/// are wanted, need none.
Dataset open_for(const GivenClassifier& given, const std::string& data_dir, const std::string& class_list,
                 bool features, const Say& note);

/// Part, file, label and prediction of each image, by the names of the classes.
std::string to_csv(const std::vector<Predictions>& all, const std::vector<std::string>& classes);

}  // namespace tpgm
