// The same model in Python: rivals/step.py in a process of its own.
#pragma once

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "benchmarks/scratch.h"
#include "benchmarks/step.h"
#include "tpgm/models/classifier.h"

namespace tpgm::benchmarks {

/// Python with the rival's script. On the CPU it waits for its turn before each step, so that a machine whose
/// speed drifts is fair to both; elsewhere call finish() at once. Every call throws, with the rival's own
/// words, if it has failed.
class Rival {
 public:
  /// `model` has the weights it starts with, on the CPU as `batch` is. Python and script
  /// are what check_python() has seen.
  Rival(const StepOptions& options, const StepSetting& setting, const Classifier& model,
        const StepBatch& batch, bool inference);
  ~Rival();
  Rival(const Rival&) = delete;
  Rival& operator=(const Rival&) = delete;

  /// Until it has done its warm-up.
  void wait_ready();
  /// Lets each of its runs do one step.
  void take_turn();
  /// Its report: eager, and compile if asked for. One that failed has an error in place of times.
  std::vector<StepTimes> finish();

 private:
  Scratch folder_;  // what it reads, and by what it and we take turns
  std::string python_, script_;
  int go_ = -1, done_ = -1;
  FILE* pipe_ = nullptr;
};

}  // namespace tpgm::benchmarks
