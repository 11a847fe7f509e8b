// The numbers from which a run resumes: what is written is what is read, and other numbers are refused.
#include "tpgm/train/run_state.h"

#include <limits>

#include "tests/support.h"

namespace tpgm::test_run_state {
namespace {

using testing::error_of;

constexpr int64_t kEpochs = 3, kSteps = 10;

std::string refused(const RunLog::Json& numbers) {
  return error_of([&] { run_state_of(numbers, kEpochs, kSteps, "run/resume.safetensors"); });
}

TEST(RunState, IsReadAsItWasWritten) {
  RunState state;
  state.step = 17;
  state.epochs_done = 1;
  state.best = 81.25;
  state.epoch.loss = 0.125;
  state.data = "0123";
  const auto read = run_state_of(to_json(state), kEpochs, kSteps, "");
  EXPECT_EQ(read.step, 17);
  EXPECT_EQ(read.best, 81.25);
  EXPECT_EQ(read.epoch.loss, 0.125);
  EXPECT_EQ(read.data, "0123");
}

TEST(RunState, NumbersOfAnotherRunAreRefused) {
  const auto with = [](const char* key, const RunLog::Json& value) {
    auto numbers = to_json(RunState());
    numbers[key] = value;
    return numbers;
  };
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (const auto& epochs : {RunLog::Json(-1), RunLog::Json(4), RunLog::Json(kMost)})
    EXPECT_NE(refused(with("epochs_done", epochs)).find("is damaged: it is at step 0 after "),
              std::string::npos);
  for (const auto& step : {RunLog::Json(-1), RunLog::Json(11), RunLog::Json(kMost)})
    EXPECT_NE(refused(with("step", step)).find("is damaged: it is at step "), std::string::npos);
  for (const char* key : {"radius_batches", "skipped", "best_epoch"})
    EXPECT_NE(refused(with(key, -1)).find("is damaged: it has counts that no run has"), std::string::npos)
        << key;
  for (const auto& step : {RunLog::Json(1.5), RunLog::Json(1e300), RunLog::Json("1"), RunLog::Json(nullptr),
                           RunLog::Json(std::numeric_limits<uint64_t>::max())})
    EXPECT_NE(refused(with("step", step)).find("is damaged: it has no 'step' of a run's state; begin"),
              std::string::npos)
        << step;
  EXPECT_NE(refused(RunLog::Json()).find("it has no 'step'"), std::string::npos);
}

}  // namespace
}  // namespace tpgm::test_run_state
