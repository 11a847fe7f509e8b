// From options to what a run needs: the model, its anchor, the method, the data.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tpgm/methods/method.h"
#include "tpgm/train/data_setup.h"
#include "tpgm/train/image_setup.h"
#include "tpgm/train/model_setup.h"

namespace tpgm {

struct Setup {
  TrainOptions options;  ///< with everything that was left open decided, and absolute paths
  c10::Device device = c10::kCPU;
  std::shared_ptr<Classifier> model;  ///< on the device, holding the weights to start from
  Metadata metadata;                  ///< for what is saved from it
  std::unique_ptr<Method> method;
  RunData data;
  Images images;
  std::vector<std::string> notes;  ///< for the user to read
};

/// Throws, before anything is written, for whatever is wrong with the options, files or data. Reads the data
/// set once, and the checkpoint once.
Setup prepare_run(TrainOptions options);

}  // namespace tpgm
