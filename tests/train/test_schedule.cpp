// Learning rates against timm's and PyTorch's schedulers, step by step.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "tests/support.h"
#include "tpgm/train/schedule.h"

namespace tpgm::testing::test_schedule {
namespace {

using Json = nlohmann::json;

constexpr double kTolerance = 1e-12;  // relative: torch's cosine is a product over all steps before

TEST(Schedule, IsThatOfTimmAndTorch) {
  std::ifstream file(TPGM_TEST_DATA "/train/goldens/schedules.json");
  const auto cases = Json::parse(file)["cases"];
  ASSERT_GT(cases.size(), 10u);
  for (const auto& golden : cases) {
    SCOPED_TRACE(golden["source"].get<std::string>() + " " + golden["options"].dump());
    const auto& given = golden["options"];
    ScheduleOptions options;
    options.sched(parsed<Sched>(given["sched"]))
        .on_updates(given["on_updates"])
        .min_lr(given.value("min_lr", 0.0))
        .warmup_lr(given.value("warmup_lr", 0.0))
        .decay_epochs(given.value("decay_epochs", 1))
        .decay_rate(given.value("decay_rate", 1.0));
    std::vector<Phase> phases;
    for (const auto& phase : golden["phases"]) {
      phases.push_back({"", phase["epochs"], phase["lr"], phase["warmup_epochs"]});
    }
    const Schedule schedule(phases, golden["steps_per_epoch"], options);
    const auto rates = golden["lr"].get<std::vector<double>>();
    ASSERT_EQ(schedule.steps(), static_cast<int64_t>(rates.size()));
    for (size_t step = 0; step < rates.size(); ++step) {
      EXPECT_NEAR(schedule.lr(static_cast<int64_t>(step)), rates[step], kTolerance * rates[step]) << step;
    }
  }
}

TEST(Schedule, KnowsThePhaseOfAStep) {
  const Schedule schedule({{"probe", 2, 0.1, 0}, {"nothing", 0, 0.5, 0}, {"tune", 3, 0.01, 1}}, 4, {});
  EXPECT_EQ(schedule.steps(), 20);
  for (int64_t step = 0; step <= 20; ++step) {
    EXPECT_EQ(schedule.phase(step), step < 8 ? 0u : 2u) << step;
  }
  EXPECT_EQ(schedule.lr(0), 0.1);
  EXPECT_EQ(schedule.lr(8), 0);  // the second warm-up
  EXPECT_EQ(schedule.lr(10), 0.005);
  EXPECT_EQ(schedule.lr(20), 0);  // where the curve ends
  EXPECT_EQ(schedule.phases()[2].name, "tune");
}

TEST(Schedule, EndsWhereItsCurveDoes) {
  ScheduleOptions options;
  options.min_lr(1e-3);
  EXPECT_EQ(Schedule({{"", 3, 0.1, 0}}, 7, options).lr(21), 1e-3);
  EXPECT_EQ(Schedule({{"", 3, 0.1, 0}}, 7, options.on_updates(false)).lr(21), 1e-3);
  EXPECT_EQ(Schedule({{"", 3, 0.1, 0}}, 7, options.sched(Sched::kConstant)).lr(21), 0.1);
  EXPECT_EQ(Schedule({{"", 0, 0.1, 5}}, 7, ScheduleOptions()).steps(), 0);
}

std::string refusal(std::vector<Phase> phases, int64_t steps_per_epoch = 4,
                    const ScheduleOptions& options = {}) {
  return error_of([&] { const Schedule schedule(std::move(phases), steps_per_epoch, options); });
}

TEST(Schedule, RefusesWhatMakesNone) {
  const auto says = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  says(refusal({}), "[Schedule] there are no phases");
  says(refusal({{"ft", 3, 0.1, 0}}, 0), "an epoch has 0 steps");
  says(refusal({{"ft", -1, 0.1, 0}}), "phase 'ft': epochs must be at least 0, not -1");
  says(refusal({{"ft", 3, -0.1, 0}}), "phase 'ft': the learning rate must be at least 0, not -0.1");
  says(refusal({{"ft", 3, std::nan(""), 0}}), "phase 'ft': the learning rate");
  says(refusal({{"ft", 3, 0.1, -1}}), "phase 'ft': warmup_epochs");
  says(refusal({{"ft", 3, 0.1, 4}}), "phase 'ft': 4 epochs of warm-up do not fit into its 3");
  const std::vector<Phase> good = {{"ft", 3, 0.1, 0}};
  says(refusal(good, 4, ScheduleOptions().min_lr(-1)), "min_lr");
  says(refusal(good, 4, ScheduleOptions().warmup_lr(INFINITY)), "warmup_lr");
  says(refusal(good, 4, ScheduleOptions().decay_epochs(0)), "decay_epochs");
  says(refusal(good, 4, ScheduleOptions().decay_rate(-0.1)), "decay_rate");
  const Schedule schedule(good, 4, {});
  says(error_of([&] { schedule.lr(13); }), "[Schedule::lr] step 13 is outside of the schedule, which has 12");
  says(error_of([&] { schedule.phase(-1); }), "[Schedule::phase] step -1");
}

}  // namespace
}  // namespace tpgm::testing::test_schedule
