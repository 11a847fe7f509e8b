#include "tpgm/train/finish.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tpgm/base/untrusted.h"
#include "tpgm/train/batches.h"

namespace tpgm {
namespace {

using Json = RunLog::Json;

constexpr size_t kMostPoints = 100;  // of a curve

at::Tensor labels_of(const SampleSubset& subset) {
  const auto labels = at::empty({subset.size()}, at::kInt);
  for (int64_t i = 0; i < subset.size(); ++i)
    labels.mutable_data_ptr<int32_t>()[i] =
        static_cast<int32_t>(subset.samples->label(subset.indices[static_cast<size_t>(i)]));
  return labels;
}

double mean_of(const std::vector<TestResult>& tests, bool id) {
  double sum = 0, count = 0;
  for (const auto& test : tests) {
    if (test.id != id) continue;
    sum += test.accuracy.top1();
    ++count;
  }
  return count > 0 ? sum / count : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

Json json_number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json to_json(const TrainResult& result, const TrainOptions& options) {
  auto tests = Json::array();
  for (const auto& test : result.tests) {
    tests.push_back({{"name", test.name},
                     {"id", test.id},
                     {"top1", json_number(test.accuracy.top1())},
                     {"top5", json_number(test.accuracy.top5())},
                     {"loss", json_number(test.accuracy.loss)},
                     {"pictures", test.accuracy.images},
                     {"skipped_pictures", test.accuracy.skipped},
                     {"scored_classes", test.accuracy.scored_classes}});
  }
  return {{"method", options.method},
          {"seed", options.seed},
          {"steps", result.steps},
          {"skipped_steps", result.skipped_steps},
          {"best_epoch", result.best_epoch},
          {"selection", json_number(result.selection)},
          {"selection_pictures", result.selection_images},
          {"relative_distance", json_number(result.relative_distance)},
          {"id_average", json_number(mean_of(result.tests, true))},
          {"ood_average", json_number(mean_of(result.tests, false))},
          {"tests", tests},
          {"diagnosis", result.diagnosis.empty() ? Json(nullptr) : Json(result.diagnosis)},
          {"seconds", result.seconds}};
}

std::vector<TestResult> score_tests(Setup& setup, RunLog* log, int64_t step,
                                    const std::function<void()>& on_batch) {
  std::vector<TestResult> results;
  NamedTensors all_predictions;
  for (const auto& test : setup.data.tests) {
    const auto loader = evaluation_loader(setup, test.subset);
    at::Tensor predictions;
    EvaluateOptions options;
    options.amp = setup.options.amp;
    options.subset = setup.options.classes == ScoredClasses::kSubset;
    options.progress = [&](size_t) { on_batch(); };
    if (log) options.predictions = &predictions;
    const auto& accuracy =
        results.emplace_back(TestResult{test.name, test.id, evaluate(*setup.model, *loader, options)})
            .accuracy;
    if (!log) continue;
    all_predictions.insert(test.name, predictions);
    if (const auto key = test.name + kLabelsOfTest; !all_predictions.contains(key))
      all_predictions.insert(key, labels_of(test.subset));
    log->log({{"event", "test"},
              {"name", test.name},
              {"id", test.id},
              {"top1", json_number(accuracy.top1())},
              {"pictures", accuracy.images}});
    log->scalar("test/" + test.name, accuracy.top1(), step);
  }
  if (log) log->save_predictions(all_predictions);
  return results;
}

void FinishRadii::note(const Method& method) {
  const int64_t step = steps_++;
  if (step % stride_ != 0) return;
  radii_.emplace_back(step, radii_of(method));
  if (radii_.size() < kMostPoints) return;
  stride_ *= 2;
  std::erase_if(radii_, [this](const auto& each) { return each.first % stride_ != 0; });
}

void FinishRadii::write(RunLog& log, int64_t step, const Method& method) const {
  for (const auto& [radius_step, radii] : radii_) log.radii(step, radii, NamedNumbers(), radius_step);
  log.radii(step, radii_of(method), ratios_of(method), steps_ > 0 ? std::optional(steps_) : std::nullopt);
}

std::string returned_tensors(const Method& method) {
  const auto ratios = ratios_of(method);
  if (!method.needs_radius_data() || ratios.is_empty()) return "";
  const auto values = ratios.values();
  const auto back = std::count_if(values.begin(), values.end(), [](double ratio) { return ratio < 1e-3; });
  return fmt::format("{} of {} tensors went back to the pre-trained weights", back, values.size());
}

std::vector<std::string> unreadable_images(const std::vector<std::pair<const Loader*, const char*>>& loaders,
                                           const std::vector<TestResult>& tests) {
  std::vector<std::string> texts;
  for (const auto& [loader, what] : loaders) {
    if (loader == nullptr || loader->skipped().empty()) continue;
    const auto& first = loader->skipped().front();
    texts.push_back(fmt::format("{} data: {} unreadable and left out, the first is '{}': {}", what,
                                loader->skipped().size(), printable(first.place, kMaxPath),
                                printable(first.reason, kMaxPath)));
  }
  for (const auto& test : tests) {
    if (test.accuracy.skipped > 0)
      texts.push_back(fmt::format("test {}: {} unreadable and left out", test.name, test.accuracy.skipped));
  }
  return texts;
}

}  // namespace tpgm
