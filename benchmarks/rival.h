// The same model in Python: rivals/step.py in another process.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/scratch.h"
#include "benchmarks/step.h"
#include "tpgm/base/child_process.h"
#include "tpgm/models/classifier.h"

namespace tpgm::benchmarks {

/// Python with the rival's script. On the CPU it waits for its turn before each step, so that both see the
/// same speed of the machine; on CUDA call finish() at once. Every call throws with the rival's message if it
/// failed.
class Rival {
 public:
  /// `model` has the initial weights and is on the CPU, like `batch`. check_python() has accepted Python and
  /// script.
  Rival(const StepOptions& options, const StepSetting& setting, const Classifier& model,
        const StepBatch& batch, bool inference);
  ~Rival();
  Rival(const Rival&) = delete;
  Rival& operator=(const Rival&) = delete;

  /// Waits until its warm-up is done.
  void wait_ready();
  /// Lets each of its rows do one step.
  void take_turn();
  /// Its report: eager, and compile if that was requested. A row that failed has an error instead of times.
  std::vector<StepTimes> finish();

 private:
  Scratch folder_;  // what it reads, and by what it and we take turns
  std::string python_, script_;
  int go_ = -1, done_ = -1;
  std::optional<ChildProcess> process_;
};

}  // namespace tpgm::benchmarks
