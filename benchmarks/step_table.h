// What `tpgm bench step` measured, as a table and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "benchmarks/step.h"
#include "benchmarks/train_loop.h"

namespace tpgm::benchmarks {

/// What was measured: the model as it was asked for, the options, and the device by its kind.
struct StepRun {
  std::string model;
  StepOptions options;
  std::string device;
};

/// One model beside the library's, and the training loop around it.
std::string to_text(const StepRun& run, const StepReport& report, const LoopTimes& loop);
nlohmann::ordered_json to_json(const StepRun& run, const StepReport& report, const LoopTimes& loop);

/// Every method beside plain fine-tuning and the library's model.
std::string to_text(const StepRun& run, const MethodsReport& report);
nlohmann::ordered_json to_json(const StepRun& run, const MethodsReport& report);

}  // namespace tpgm::benchmarks
