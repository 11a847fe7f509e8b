// The end of a run: the radii during the method's finish(), the tests, the result.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tpgm/methods/method.h"
#include "tpgm/train/evaluate.h"
#include "tpgm/train/run_log.h"
#include "tpgm/train/setup.h"

namespace tpgm {

struct TestResult {
  std::string name;
  bool id = false;
  Accuracy accuracy;
};

struct TrainResult {
  bool finished = false;  ///< false: stopped; the run log has its state
  int64_t steps = 0, skipped_steps = 0;
  int64_t best_epoch = 0;  ///< 0: before the first
  double selection = 0;    ///< accuracy of the result on selection data, %; NaN without any
  int64_t selection_images = 0;
  /// AnchoredMethod::relative_distance() of the result; NaN for methods without an anchor.
  double relative_distance = std::numeric_limits<double>::quiet_NaN();
  std::vector<TestResult> tests;
  std::string diagnosis;  ///< diagnosis_text() of the run; empty: nothing to say
  double seconds = 0;
};
/// The content of result.json, which sweeps and reports read.
RunLog::Json to_json(const TrainResult& result, const TrainOptions& options);
/// `value`, or null if it is not finite, because JSON has no NaN or infinity.
RunLog::Json json_number(double value);

/// Evaluates the model on the tests of the setup. Writes results and predictions to `log`, which may be null.
/// Calls `on_batch` after each batch; it may throw to stop.
std::vector<TestResult> score_tests(Setup& setup, RunLog* log, int64_t step,
                                    const std::function<void()>& on_batch);

/// Records the radii of a method while its finish() learns them. Because the number of steps is not known
/// beforehand, it doubles its stride when there are many.
class FinishRadii {
 public:
  /// Records every `stride`-th step to begin with.
  explicit FinishRadii(int64_t stride) : stride_(stride) {}

  /// Called before each radius step.
  void note(const Method& method);
  /// Logs the recorded radii, and those after finish().
  void write(RunLog& log, int64_t step, const Method& method) const;

 private:
  std::vector<std::pair<int64_t, NamedNumbers>> radii_;  // by steps of finish()
  int64_t steps_ = 0, stride_;
};

/// "3 of 20 tensors went back to the pre-trained weights"; empty for a method without ratios.
std::string returned_tensors(const Method& method);

/// A sentence for each loader (with its name; may be null) and each test that has skipped unreadable images.
std::vector<std::string> unreadable_images(const std::vector<std::pair<const Loader*, const char*>>& loaders,
                                           const std::vector<TestResult>& tests);

}  // namespace tpgm
