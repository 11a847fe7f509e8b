// The accuracy of a model on a data set.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "tpgm/data/loader.h"
#include "tpgm/models/classifier.h"

namespace tpgm {

struct Accuracy {
  int64_t images = 0;  ///< readable images with a label
  int64_t correct = 0, top5_correct = 0;
  int64_t skipped = 0;         ///< unreadable images
  double loss = 0;             ///< mean cross-entropy over the scored classes; NaN without images
  int64_t scored_classes = 0;  ///< how many classes predictions choose from
  std::vector<int64_t> class_images, class_correct;  ///< for each class of the head

  /// In percent; NaN without images.
  double top1() const;
  double top5() const;
};

struct EvaluateOptions {
  bool amp = false;
  /// Score only over the classes that occur in the loader's subset; other logits are ignored.
  bool subset = false;
  /// If not null, receives the predicted class of each image, int32 in the order of the loader's subset; −1
  /// for unreadable images.
  at::Tensor* predictions = nullptr;
  /// Called after each batch with its number of images; may throw to stop.
  std::function<void(size_t)> progress;
};

/// Evaluates in eval() mode without gradients, and restores the mode of each submodule. Reads the loader from
/// epoch 0 to its end. Synchronizes with the device once, after the last batch. Throws if no image has a
/// label, or if a label is not a class of the head.
Accuracy evaluate(Classifier& model, Loader& loader, const EvaluateOptions& options = {});

}  // namespace tpgm
