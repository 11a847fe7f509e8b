// Counts images for cost estimates, and measures speed in a short training run.
#include "tpgm/study/cost.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <type_traits>

#include "tpgm/base/call.h"
#include "tpgm/train/from_options.h"
#include "tpgm/train/radius_loss.h"
#include "tpgm/train/setup.h"
#include "tpgm/train/trainer.h"

namespace tpgm {
namespace {

// How many radius steps a run of `steps` training steps takes.
int64_t radius_steps_of(TrainOptions options, int64_t steps) {
  expect_every(options);
  const auto updates = radius_updates_of(options);
  if (!updates) return 0;
  const int64_t count =
      updates->every.at_end() ? 1 : (steps + updates->every.steps - 1) / updates->every.steps;
  return count * updates->radius_steps;
}

}  // namespace

Cost& Cost::operator+=(const Cost& other) {
  runs += other.runs;
  steps += other.steps;
  training += other.training;
  radius += other.radius;
  evaluation += other.evaluation;
  return *this;
}

double Cost::work() const {
  return static_cast<double>(training + radius) + static_cast<double>(evaluation) / 3;
}

DataSize DataSizes::of(const TrainOptions& options) try {
  TORCH_CHECK(!options.data_dir.empty(), "`data-dir` is needed: the images to train on");
  const auto key = only(to_settings(options), Trait::kData);
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  const auto data = open_data(options, open_dataset(options));
  DataSize size{data.train.size(), data.radius.size(), data.selection.size(), 0};
  for (const auto& test : data.tests) size.tests += test.subset.size();
  return known_[key] = size;
} catch (...) {
  rethrow_from("DataSizes::of");
}

Cost cost_of(const TrainOptions& options, const DataSize& size) {
  TORCH_CHECK(size.train > 0, "[cost_of] there is nothing to train on");
  const int64_t batch = std::min(options.batch_size, size.train);
  const int64_t batches = std::min(options.grad_accum_steps, size.train / batch);
  const int64_t radius_batch =
      std::min(options.radius_batch_size.value_or(std::max<int64_t>(1, batch / 4)), size.radius);
  Cost cost;
  cost.runs = 1;
  cost.steps = options.epochs * (size.train / batch / batches);
  cost.training = cost.steps * batch * batches;
  cost.radius = radius_steps_of(options, cost.steps) * radius_batch;
  cost.evaluation = (options.epochs + 1) * size.selection + size.tests;
  return cost;
}

void scale_down(Settings& settings, double scale, const Settings& given) {
  if (scale == 1) return;
  const TrainOptions options = make_options(settings);
  const auto set = [&](const std::string& key, const auto& value) {
    if (!given.contains(key)) settings[key] = to_text(value);
  };
  const auto part = [scale](int64_t whole, int64_t least) {
    return std::max(least, static_cast<int64_t>(std::llround(static_cast<double>(whole) * scale)));
  };
  const bool keeps_epochs = options.epochs == 0 || given.contains("epochs");
  const int64_t epochs = keeps_epochs ? options.epochs : part(options.epochs, 1);
  TrainOptions::fields(
      [&](const char*, const std::string& key, Trait traits, const char*, const auto& value) {
        using T = std::decay_t<decltype(value)>;
        if (!has_any(traits, Trait::kScaled | Trait::kScaledAway)) return;
        if constexpr (std::is_same_v<T, double>) {
          set(key, value * scale);
        } else if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, std::optional<int64_t>>) {
          const int64_t least = has_any(traits, Trait::kScaled) ? 1 : 0;
          const std::optional<int64_t> whole = value;
          if (!whole || *whole < least) return;
          // Some epochs must be left for fine-tuning.
          const int64_t most = key == "lp-epochs" ? std::max<int64_t>(0, epochs - 1) : *whole;
          set(key, std::min(part(*whole, least), most));
        }
      },
      options);
  if (const auto updates = radius_updates_of(options); updates && updates->every.at_end())
    set("radius-steps", part(updates->radius_steps, 1));
}

double measure_speed(TrainOptions options, const std::function<bool()>& stop) {
  constexpr int64_t kSteps = 20, kFirst = 3;
  constexpr double kSeconds = 5;
  options.epochs = std::max<int64_t>(1, options.epochs);
  options.on_nan = OnNan::kSkip;  // a speed is wanted, whatever is learned
  Setup setup = prepare_run(options);
  const auto begin = RunClock::now();
  int64_t epoch = 1, seen = 0, counted = 0;
  double last = 0, steady = 0;  // seconds: at the last step, and in the steps that count
  bool enough = false;
  TrainCallbacks callbacks;
  callbacks.progress = [&](const TrainProgress& at) {
    const double now = RunClock::since(begin);
    // Between epochs there is an evaluation, and before the first step much is built.
    const bool slow = now > kSeconds / 2;
    if (at.epoch == epoch && seen >= (slow ? 1 : kFirst)) {
      steady += now - last;
      ++counted;
    }
    ++seen;
    epoch = at.epoch;
    last = now;
    enough = seen >= kSteps || at.step == at.steps || (now > kSeconds && counted > 0);
  };
  callbacks.stop = [&] { return enough || (stop && stop()); };
  Trainer(setup, nullptr, callbacks).run();
  if (!enough) return 0;
  const auto each = static_cast<double>(setup.options.batch_size * setup.options.grad_accum_steps);
  return counted > 0 ? each * static_cast<double>(counted) / std::max(steady, 1e-9)
                     : each * static_cast<double>(seen) / std::max(last, 1e-9);
}

}  // namespace tpgm
