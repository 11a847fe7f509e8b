// Builds what a run needs from its options: model, anchor, method and data.
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
  TrainOptions options;  ///< without auto values, and with absolute paths
  c10::Device device = c10::kCPU;
  std::shared_ptr<Classifier> model;  ///< on the device, with the weights to start from
  Metadata metadata;                  ///< for checkpoints of the run
  std::unique_ptr<Method> method;
  RunData data;
  Images images;
  std::vector<std::string> notes;  ///< for the user to read
};

/// Throws for all mistakes in options, files and data, before anything is written. Reads the data set and the
/// checkpoint once.
Setup prepare_run(TrainOptions options, DataUse use = DataUse::kNewRun);

}  // namespace tpgm
