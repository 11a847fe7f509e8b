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
  int64_t images = 0;  ///< with a label, and readable
  int64_t correct = 0, top5_correct = 0;
  int64_t skipped = 0;  ///< that could not be read
  double loss = 0;      ///< mean cross-entropy over the scored classes; NaN of no images
  /// Over which classes a prediction was made.
  int64_t scored_classes = 0;
  std::vector<int64_t> class_images, class_correct;  ///< of each class of the head

  /// In per cent; NaN of no images.
  double top1() const;
  double top5() const;
};

struct EvaluateOptions {
  bool amp = false;
  /// Score over the classes that occur in the loader's subset only; the others' logits do not count.
  bool subset = false;
  /// Gets the predicted class of each image, int32 in the order of the loader's subset; −1: unreadable. May
  /// be null.
  at::Tensor* predictions = nullptr;
  /// Told the number of images after each batch; may throw to stop.
  std::function<void(size_t)> progress;
};

/// In eval() mode, without gradients; the mode of each submodule is put back. The loader begins at epoch 0
/// and is read to its end. One host synchronisation, after the last batch. Throws if no image has a label,
/// or one has a label that the head does not have.
Accuracy evaluate(Classifier& model, Loader& loader, const EvaluateOptions& options = {});

}  // namespace tpgm
