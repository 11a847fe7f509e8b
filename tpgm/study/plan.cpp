// From a table's recipes to its runs, those first that others take from.
#include "tpgm/study/plan.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "tpgm/base/call.h"
#include "tpgm/base/names.h"
#include "tpgm/base/numbers.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/methods/registry.h"
#include "tpgm/study/sweep.h"

namespace tpgm {
namespace {

namespace fs = std::filesystem;

std::string file_name_of(std::string name) {
  for (char& c : name) {
    if (c == '/' || c == ':') c = ',';
  }
  return name;
}

bool is_stem(const std::string& wanted, const PaperRow& row) {
  return wanted == row.variant || wanted == row.label ||
         wanted == row.variant.substr(0, row.variant.find(':'));
}

std::vector<std::string> cells(const std::string& name, const Cost& cost) {
  return {name,
          grouped(cost.runs),
          grouped(cost.steps),
          grouped(cost.training),
          grouped(cost.radius),
          grouped(cost.evaluation)};
}

}  // namespace

Table to_table(const PlanCost& cost) {
  Table table;
  table.columns = {cost.name, "runs", "steps", "training images", "radius images", "evaluation images"};
  for (const auto& [variant, of_row] : cost.rows) table.rows.push_back(cells(variant, of_row));
  table.rules.push_back(table.rows.size());
  table.rows.push_back(cells("all", cost.all));
  return table;
}

TablePlan::TablePlan(PaperTable table, const ReproduceOptions& options) try
    : table_(std::move(table)), options_(options), folder_(options.output / table_.name) {
  for (const auto& row : table_.rows) {
    if (find(row.variant) < rows_.size()) continue;
    PlannedRow planned{row.variant, row.recipe, {}, false};
    auto given = options.given;
    // A row that does not train is not a row that trains shortly.
    if (const auto epochs = row.recipe.settings.find("epochs");
        epochs != row.recipe.settings.end() && epochs->second == "0")
      given.erase("epochs");
    override_with(planned.recipe, given);
    scale_down(planned.recipe.settings, options.scale, given);
    if (options.choose) planned.recipe.choose = options.choose;
    planned.recipe.settings["output"] = (folder_ / file_name_of(row.variant)).string();
    rows_.push_back(std::move(planned));
  }
  outcomes_.resize(rows_.size());
  link();
  for (auto& row : rows_) {
    // What is not trained is the same for every seed.
    const bool weights = std::any_of(row.dependencies.begin(), row.dependencies.end(),
                                     [](const Dependency& each) { return each.key == "weights"; });
    const bool trains = weights || make_options(row.recipe.settings).epochs > 0;
    if (!options.seeds.empty() && trains) row.recipe.seeds = options.seeds;
  }
  for (const auto& wanted : options.rows) {
    bool any = false;
    std::vector<std::string> variants;
    for (const auto& row : table_.rows) {
      variants.push_back(row.variant);
      if (is_stem(wanted, row)) rows_[find(row.variant)].wanted = any = true;
    }
    TORCH_CHECK(any, "`rows`: '", table_.name, "' has no row '", printable(wanted), "'",
                did_you_mean(wanted, variants));
  }
  if (options.rows.empty()) {
    for (auto& row : rows_) row.wanted = true;
  }
  sort();
} catch (...) {
  rethrow_from("TablePlan");
}

size_t TablePlan::find(const std::string& variant) const {
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].variant == variant) return i;
  }
  return rows_.size();
}

void TablePlan::link() {
  const auto keys = option_keys();
  for (auto& row : rows_) {
    for (const auto& text : row.recipe.take) {
      const auto where = fmt::format("'{}' of '{}' takes '{}'", row.variant, table_.name, printable(text));
      const size_t at = text.find('=');
      TORCH_CHECK(at != std::string::npos && at > 0, where, ": expected KEY=ROW.KEY or weights=ROW");
      Dependency dependency{text.substr(0, at), "", 0};
      auto& key = dependency.key;
      std::replace(key.begin(), key.end(), '_', '-');
      TORCH_CHECK(std::find(keys.begin(), keys.end(), key) != keys.end(), where, ": no option '", key, "'",
                  option_hint(key, keys));
      std::string variant = text.substr(at + 1);
      if (key != "weights") {
        const size_t dot = variant.rfind('.');
        TORCH_CHECK(dot != std::string::npos, where, ": expected ", key, "=ROW.KEY");
        dependency.option = variant.substr(dot + 1);
        variant.erase(dot);
      }
      dependency.row = find(variant);
      std::vector<std::string> variants;
      for (const auto& other : rows_) variants.push_back(other.variant);
      TORCH_CHECK(dependency.row < rows_.size(), where, ": the table has no such row",
                  did_you_mean(variant, variants));
      const auto& source = rows_[dependency.row].recipe;
      const auto& option = dependency.option;
      const auto has_key = [&](const std::string& entry) { return entry.starts_with(option + "="); };
      const bool swept = std::any_of(source.sweep.begin(), source.sweep.end(), has_key) ||
                         std::any_of(source.take.begin(), source.take.end(), has_key);
      TORCH_CHECK(option.empty() || swept || source.settings.contains(option), where, ": '", variant,
                  "' neither sweeps, takes nor sets '", option, "'");
      row.dependencies.push_back(std::move(dependency));
    }
  }
  for (auto& row : rows_) row.recipe.take.clear();
}

void TablePlan::sort() {
  enum Mark { kNew, kOpen, kDone };
  std::vector<Mark> marks(rows_.size(), kNew);
  const std::function<void(size_t)> visit = [&](size_t i) {
    TORCH_CHECK(marks[i] != kOpen, "'", rows_[i].variant, "' of '", table_.name,
                "' takes from a row that takes from it");
    if (marks[i] == kDone) return;
    marks[i] = kOpen;
    for (const auto& dependency : rows_[i].dependencies) visit(dependency.row);
    marks[i] = kDone;
    order_.push_back(i);
  };
  for (size_t i = 0; i < rows_.size(); ++i) visit(i);
  for (auto at = order_.rbegin(); at != order_.rend(); ++at) {
    if (!rows_[*at].wanted) continue;
    for (const auto& dependency : rows_[*at].dependencies) rows_[dependency.row].wanted = true;
  }
  std::erase_if(order_, [&](size_t i) { return !rows_[i].wanted; });
}

bool TablePlan::ready(size_t row, const Outcomes& outcomes) const {
  const auto& all = rows_[row].dependencies;
  return std::all_of(all.begin(), all.end(), [&](const Dependency& each) { return outcomes[each.row].done; });
}

// The runs of a row that is ready(); nothing, and an error, if a row that it depends on failed.
std::optional<std::vector<Job>> TablePlan::resolve(size_t index, Outcomes& outcomes) const {
  const auto& row = rows_[index];
  Recipe recipe = row.recipe;
  fs::path folder = recipe.settings.at("output");
  for (const auto& dependency : row.dependencies) {
    const auto& source = rows_[dependency.row];
    const auto& best_runs = outcomes[dependency.row].best;
    if (best_runs.empty()) {
      outcomes[index].error = fmt::format("it takes from '{}', which failed", source.variant);
      return std::nullopt;
    }
    const auto& best = best_runs.front().job;
    if (dependency.option.empty()) {
      // Another best is another row: what was made from the one before stays beside it.
      if (!best.swept.empty()) folder /= file_name_of(source.variant + "," + chosen_text(best.swept));
      continue;
    }
    recipe.settings.erase(dependency.key);
    recipe.sweep.insert(recipe.sweep.begin(), dependency.key + "=" + best.settings.at(dependency.option));
  }
  recipe.settings["output"] = folder.string();
  auto jobs = expand(recipe);
  for (auto& job : jobs) {
    job.name = row.variant + "/" + job.name;
    for (const auto& dependency : row.dependencies) {
      if (!dependency.option.empty()) continue;
      const auto& best = outcomes[dependency.row].best;
      const auto same =
          std::find_if(best.begin(), best.end(), [&](const auto& run) { return run.job.seed == job.seed; });
      TORCH_CHECK(same != best.end(), "[TablePlan] '", row.variant, "' of '", table_.name, "' has seed ",
                  job.seed, " and takes weights from '", rows_[dependency.row].variant,
                  "', which has not; give both the same with `seeds`");
      job.settings["weights"] = same->job.settings.at("output");
    }
  }
  return jobs;
}

TablePlan::Outcome TablePlan::outcome_of(size_t row, std::vector<JobResult> results) const {
  Outcome outcome{std::move(results), {}, "", true};
  outcome.best = best_of(outcome.results, rows_[row].recipe.choose.value_or(Choose::kBest));
  if (!outcome.best.empty()) return outcome;
  outcome.error = outcome.results.empty() ? "there was nothing to run" : outcome.results.front().error;
  for (const auto& result : outcome.results) {
    if (!result.result) outcome.error = fmt::format("{}: {}", result.job.name, result.error);
  }
  return outcome;
}

// The jobs of a row before the values that it takes are known: as many, and as long, as they will be.
std::vector<Job> TablePlan::expected_jobs(size_t row) const { return expand(rows_[row].recipe); }

PlanCost TablePlan::cost(DataSizes& sizes) const try {
  PlanCost total{table_.name, {}, {}, {}, 0};
  Outcomes outcomes(rows_.size());  // as far as runs are finished
  for (const size_t i : order_) {
    const bool known = ready(i, outcomes);
    auto resolved = known ? resolve(i, outcomes) : std::nullopt;
    const auto jobs = resolved ? *std::move(resolved) : expected_jobs(i);
    check_choosable(jobs, sizes);
    Cost cost;
    std::vector<JobResult> results;
    for (const auto& job : jobs) {
      const auto options = make_options(job.settings);
      const auto one = cost_of(options, sizes.of(options));
      cost += one;
      if (auto result = known ? read_result(job.settings.at("output")) : std::nullopt) {
        results.push_back({job, std::move(result), ""});
        ++total.finished;
      } else {
        total.left += one;
      }
    }
    if (results.size() == jobs.size()) outcomes[i] = outcome_of(i, std::move(results));
    total.all += cost;
    total.rows.emplace_back(rows_[i].variant, cost);
  }
  return total;
} catch (...) {
  rethrow_from("TablePlan::cost");
}

TrainOptions TablePlan::example() const {
  std::optional<TrainOptions> found;
  for (const size_t i : order_) {
    const auto options = make_options(expected_jobs(i).front().settings);
    const auto* method = find_method(options.method);
    if (options.epochs > 0 && method && method->trains_all) return options;
    if (!found || (found->epochs == 0 && options.epochs > 0)) found = options;
  }
  return *found;
}

bool TablePlan::run(DataSizes& sizes) {
  // A run of no steps has to start, too.
  constexpr double kStart = 300;
  const auto work_of = [&](const Job& job) {
    const auto options = make_options(job.settings);
    return cost_of(options, sizes.of(options)).work() + kStart;
  };
  PlanContext so_far;
  for (;;) {
    std::vector<Job> jobs;
    std::vector<std::pair<size_t, size_t>> parts;  // the index of a row, and how many of the jobs are its
    bool progress = false;
    for (const size_t i : order_) {
      if (outcomes_[i].done || !ready(i, outcomes_)) continue;
      progress = true;
      auto own = resolve(i, outcomes_);
      if (!own) {
        outcomes_[i].done = true;
        if (options_.jobs.callbacks.say)
          options_.jobs.callbacks.say(
              fmt::format("{} cannot be made: {}", rows_[i].variant, outcomes_[i].error));
        continue;
      }
      parts.emplace_back(i, own->size());
      std::move(own->begin(), own->end(), std::back_inserter(jobs));
    }
    if (!progress) break;
    if (jobs.empty()) continue;
    PlanContext context = so_far;
    for (auto& job : jobs) job.work = work_of(job);
    for (const size_t i : order_) {
      const bool now =
          std::any_of(parts.begin(), parts.end(), [&](const auto& part) { return part.first == i; });
      if (outcomes_[i].done || now) continue;
      for (const auto& job : expected_jobs(i)) {
        ++context.after;
        context.work_after += work_of(job);
      }
    }
    const auto results = run_jobs(jobs, options_.jobs, context);
    so_far.before += jobs.size();
    for (const auto& result : results) {
      if (!result.result) continue;
      so_far.work_before += result.job.work;
      so_far.seconds_before += result.result->seconds;
    }
    auto at = results.begin();
    for (const auto& [i, count] : parts) {
      const auto end = at + static_cast<std::ptrdiff_t>(count);
      outcomes_[i] = outcome_of(i, {at, end});
      at = end;
    }
  }
  return std::all_of(order_.begin(), order_.end(), [&](size_t i) {
    const auto& results = outcomes_[i].results;
    return !outcomes_[i].best.empty() &&
           std::all_of(results.begin(), results.end(), [](const auto& result) { return result.result; });
  });
}

std::vector<fs::path> TablePlan::best_runs() const {
  std::vector<fs::path> runs;
  for (const size_t i : order_) {
    for (const auto& run : outcomes_[i].best) runs.emplace_back(run.job.settings.at("output"));
  }
  return runs;
}

PaperComparison TablePlan::comparison() const {
  PaperComparison all{table_.name, table_.tests, {}, facts(), 0};
  for (const auto& row : table_.rows) {
    const size_t i = find(row.variant);
    if (!rows_[i].wanted) continue;
    const auto& best = outcomes_[i].best;
    std::vector<RunResult> results;
    std::vector<std::pair<std::string, fs::path>> runs;
    for (const auto& run : best) {
      results.push_back(*run.result);
      runs.emplace_back(run.job.seed, run.job.settings.at("output"));
    }
    if (row.variant == "ft") all.plain = all.rows.size();
    all.rows.push_back({row.label, row.variant, scores_of(results), Hits(runs), row.numbers,
                        best.empty() ? "" : chosen_text(best.front().job.swept), best.size(),
                        outcomes_[i].error});
  }
  return all;
}

std::vector<std::string> TablePlan::facts() const {
  std::vector<std::string> lines;
  std::set<std::string> seeds, devices;
  std::map<std::string, std::set<int64_t>> classes;
  double seconds = 0;
  for (const size_t i : order_) {
    for (const auto& result : outcomes_[i].results) {
      if (!result.result) continue;
      seconds += result.result->seconds;
      seeds.insert(result.job.seed);
      for (const auto& test : result.result->tests) classes[test.name].insert(test.scored_classes);
      if (const auto environment = read_environment(result.job.settings.at("output")))
        devices.insert(environment->device.empty() ? "?" : environment->device);
    }
  }
  lines.push_back(seeds.size() > 1
                      ? fmt::format("Mean (standard deviation) over the seeds {}", fmt::join(seeds, ", "))
                      : fmt::format("One seed: {}", fmt::join(seeds, ", ")));
  if (options_.scale < 1)
    lines.push_back(fmt::format(
        "Scale {}: this share of the data, the tests and the epochs; no reproduction of the paper's numbers",
        options_.scale));
  std::map<std::string, std::vector<std::string>> by_number;
  for (const auto& [test, numbers] : classes)
    by_number[fmt::format("{}", fmt::join(numbers, " or "))].push_back(test);
  std::vector<std::string> scored;
  for (const auto& [number, tests] : by_number)
    scored.push_back(by_number.size() == 1 ? number : fmt::format("{} ({})", number, fmt::join(tests, ", ")));
  lines.push_back(fmt::format("Scored over {} classes", fmt::join(scored, ", ")));
  if (std::any_of(order_.begin(), order_.end(), [&](size_t i) {
        const auto& best = outcomes_[i].best;
        return rows_[i].recipe.choose == Choose::kOneSe && !best.empty() && !best.front().job.swept.empty() &&
               std::isfinite(best.front().result->relative_distance);
      }))
    lines.emplace_back(
        "Strengths of methods with an anchor are chosen by the one-standard-error rule: among the candidates "
        "within one standard error of the best on selection data, the one nearest to the pre-trained "
        "weights");
  lines.push_back(fmt::format("Device {}; {:.0f} seconds of runs, one after the other ({})",
                              fmt::join(devices, ", "), seconds, duration_text(seconds)));
  return lines;
}

}  // namespace tpgm
