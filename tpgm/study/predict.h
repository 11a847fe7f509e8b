// Logits or features of images, and the predicted classes.
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
  bool features = false;  ///< the input of the head instead of logits
  bool amp = false;
  bool subset = false;  ///< score only over the classes that occur in the part
  /// Called after each batch with its number of images.
  std::function<void(size_t)> progress;
};

/// The results of a part, in its order.
struct Predictions {
  Dataset::Part part;
  std::vector<int64_t> indices;  ///< of the readable images
  at::Tensor rows;    ///< logits or features, float32 on the CPU; undefined: no image could be read
  at::Tensor labels;  ///< −1: no label
  std::vector<int64_t> predicted;  ///< the predicted class of each image; empty with features
  std::vector<int64_t> scored;     ///< the classes that were scored over; empty: all
  int64_t labelled = 0, correct = 0;

  /// In percent of the images with a label.
  double accuracy() const;
  /// How many classes were scored over.
  int64_t scored_classes() const;
};

/// Runs the model in eval() mode without gradients. The loader must read the whole part; it is read to its
/// end.
Predictions predict(Classifier& model, const Dataset::Part& part, Loader& loader,
                    const PredictOptions& options);

/// Opens the data set with its classes in the order of the head: see classes_for(). Images without labels
/// need no classes, nor do features.
Dataset open_for(const GivenClassifier& given, const std::string& data_dir, const std::string& class_list,
                 bool features, const Say& note);

/// A line for each image: part, file, label and prediction, with the names of classes.
std::string to_csv(const std::vector<Predictions>& all, const std::vector<std::string>& classes);

}  // namespace tpgm
