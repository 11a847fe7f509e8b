// The results of `tpgm bench step` as a table and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "benchmarks/step.h"
#include "benchmarks/train_loop.h"

namespace tpgm::benchmarks {

/// The setting of a table: the name of the model, the options, and the type of the device.
struct StepRun {
  std::string model;
  StepOptions options;
  std::string device;
};

/// One model compared with the library's, and the training loop around it.
std::string to_text(const StepRun& run, const StepReport& report, const LoopTimes& loop);
nlohmann::ordered_json to_json(const StepRun& run, const StepReport& report, const LoopTimes& loop);

/// Every method compared with plain fine-tuning and the library's model.
std::string to_text(const StepRun& run, const MethodsReport& report);
nlohmann::ordered_json to_json(const StepRun& run, const MethodsReport& report);

}  // namespace tpgm::benchmarks
