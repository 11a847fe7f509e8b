// From a table's recipes to its runs, those first that others take from.
#include "tools/reproduce_plan.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <set>

#include "tools/command.h"
#include "tpgm/base/names.h"
#include "tpgm/base/numbers.h"
#include "tpgm/base/untrusted.h"

namespace tpgm::tools {
namespace {

namespace fs = std::filesystem;
using Json = RunFolder::Json;

std::string file_name(std::string name) {
  for (char& c : name) {
    if (c == '/' || c == ':') c = ',';
  }
  return name;
}

bool is_stem(const std::string& wanted, const PaperRow& row) {
  return wanted == row.spec || wanted == row.label || wanted == row.spec.substr(0, row.spec.find(':'));
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

TablePlan::TablePlan(PaperTable table, const ReproduceOptions& options)
    : table_(std::move(table)), options_(options), folder_(options.output / table_.name) {
  for (const auto& row : table_.rows) {
    const auto known =
        std::find_if(works_.begin(), works_.end(), [&](const Work& work) { return work.spec == row.spec; });
    if (known != works_.end()) continue;
    Work work;
    work.spec = row.spec;
    work.recipe = row.recipe;
    auto given = options.given;
    // A row that does not train is no row that trains shortly.
    if (const auto epochs = row.recipe.settings.find("epochs");
        epochs != row.recipe.settings.end() && epochs->second == "0")
      given.erase("epochs");
    override_with(work.recipe, given);
    scale_down(work.recipe.settings, options.scale, given);
    work.recipe.settings["output"] = (folder_ / file_name(row.spec)).string();
    works_.push_back(std::move(work));
  }
  link();
  for (auto& work : works_) {
    // What is not trained is the same for every seed.
    const bool weights = std::any_of(work.takes.begin(), work.takes.end(),
                                     [](const Take& take) { return take.key == "weights"; });
    const bool trains = weights || make_options(work.recipe.settings).epochs > 0;
    if (!options.seeds.empty() && trains) work.recipe.seeds = options.seeds;
  }
  for (const auto& wanted : options.rows) {
    bool any = false;
    std::vector<std::string> specs;
    for (const auto& row : table_.rows) {
      specs.push_back(row.spec);
      if (is_stem(wanted, row)) works_[find(row.spec)].wanted = any = true;
    }
    TORCH_CHECK(any, "[reproduce] --rows: '", table_.name, "' has no row '", printable(wanted),
                "'; did you mean '", nearest(wanted, specs), "'?");
  }
  if (options.rows.empty()) {
    for (auto& work : works_) work.wanted = true;
  }
  sort();
}

size_t TablePlan::find(const std::string& spec) const {
  for (size_t i = 0; i < works_.size(); ++i) {
    if (works_[i].spec == spec) return i;
  }
  return works_.size();
}

void TablePlan::link() {
  const auto keys = option_keys();
  for (auto& work : works_) {
    for (const auto& text : work.recipe.take) {
      const auto where =
          fmt::format("[reproduce] '{}' of '{}' takes '{}'", work.spec, table_.name, printable(text));
      const size_t at = text.find('=');
      TORCH_CHECK(at != std::string::npos && at > 0, where, ": expected KEY=ROW.KEY or weights=ROW");
      Take take{text.substr(0, at), "", 0};
      std::replace(take.key.begin(), take.key.end(), '_', '-');
      TORCH_CHECK(std::find(keys.begin(), keys.end(), take.key) != keys.end(), where, ": no option '",
                  take.key, "'; did you mean '", nearest(take.key, keys), "'?");
      std::string spec = text.substr(at + 1);
      if (take.key != "weights") {
        const size_t dot = spec.rfind('.');
        TORCH_CHECK(dot != std::string::npos, where, ": expected ", take.key, "=ROW.KEY");
        take.of = spec.substr(dot + 1);
        spec.erase(dot);
      }
      take.from = find(spec);
      std::vector<std::string> specs;
      for (const auto& other : works_) specs.push_back(other.spec);
      TORCH_CHECK(take.from < works_.size(), where, ": the table has no such row; did you mean '",
                  nearest(spec, specs), "'?");
      const auto& source = works_[take.from].recipe;
      const auto has_key = [&](const std::string& entry) { return entry.starts_with(take.of + "="); };
      const bool swept = std::any_of(source.sweep.begin(), source.sweep.end(), has_key) ||
                         std::any_of(source.take.begin(), source.take.end(), has_key);
      TORCH_CHECK(take.of.empty() || swept || source.settings.contains(take.of), where, ": '", spec,
                  "' neither sweeps, takes nor says '", take.of, "'");
      work.takes.push_back(std::move(take));
    }
  }
  for (auto& work : works_) work.recipe.take.clear();
}

void TablePlan::sort() {
  enum Mark { kNew, kOpen, kDone };
  std::vector<Mark> marks(works_.size(), kNew);
  const std::function<void(size_t)> visit = [&](size_t i) {
    TORCH_CHECK(marks[i] != kOpen, "[reproduce] '", works_[i].spec, "' of '", table_.name,
                "' takes from a row that takes from it");
    if (marks[i] == kDone) return;
    marks[i] = kOpen;
    for (const auto& take : works_[i].takes) visit(take.from);
    marks[i] = kDone;
    order_.push_back(i);
  };
  for (size_t i = 0; i < works_.size(); ++i) visit(i);
  for (auto at = order_.rbegin(); at != order_.rend(); ++at) {
    if (!works_[*at].wanted) continue;
    for (const auto& take : works_[*at].takes) works_[take.from].wanted = true;
  }
  std::erase_if(order_, [&](size_t i) { return !works_[i].wanted; });
}

// The runs, now that it is known what they take; nothing if a row they take from failed.
std::optional<std::vector<Job>> TablePlan::resolve(Work& work) const {
  Recipe recipe = work.recipe;
  fs::path folder = recipe.settings.at("output");
  for (const auto& take : work.takes) {
    const auto& source = works_[take.from];
    if (source.best.empty()) {
      work.error = fmt::format("it takes from '{}', which failed", source.spec);
      return std::nullopt;
    }
    const auto& best = *source.best.front()->job;
    if (take.of.empty()) {
      // Another best is another row: what was made from the one before stays beside it.
      if (!best.swept.empty()) folder /= file_name(source.spec + "," + chosen_text(best.swept));
      continue;
    }
    recipe.settings.erase(take.key);
    recipe.sweep.insert(recipe.sweep.begin(), take.key + "=" + best.settings.at(take.of));
  }
  recipe.settings["output"] = folder.string();
  auto jobs = expand(recipe);
  for (auto& job : jobs) {
    job.name = work.spec + "/" + job.name;
    for (const auto& take : work.takes) {
      if (!take.of.empty()) continue;
      const auto& best = works_[take.from].best;
      const auto same =
          std::find_if(best.begin(), best.end(), [&](const auto* run) { return run->job->seed == job.seed; });
      TORCH_CHECK(same != best.end(), "[reproduce] '", work.spec, "' of '", table_.name, "' has seed ",
                  job.seed, " and takes weights from '", works_[take.from].spec,
                  "', which has not; give both the same with --seeds");
      job.settings["weights"] = (*same)->job->settings.at("output");
    }
  }
  return jobs;
}

// As many, and as long, as they will be, whatever they take.
std::vector<Job> TablePlan::guess(const Work& work) const { return expand(work.recipe); }

void TablePlan::take_results(Work& work, std::vector<JobResult> results) {
  work.results = std::move(results);
  work.best = best_of(work.results);
  work.done = true;
  if (!work.best.empty()) return;
  work.error = work.results.empty() ? "there was nothing to run" : work.results.front().error;
  for (const auto& result : work.results) {
    if (!result.result) work.error = fmt::format("{}: {}", result.job->name, result.error);
  }
}

Table TablePlan::cost_table(DataSizes& sizes) {
  Table table;
  table.columns = {table_.name, "runs", "steps", "training images", "radius images", "evaluation images"};
  Cost all;
  left_ = {};
  finished_ = 0;
  for (const size_t i : order_) {
    auto& work = works_[i];
    const bool known =
        std::all_of(work.takes.begin(), work.takes.end(), [&](const Take& t) { return works_[t.from].done; });
    const auto& jobs = jobs_.emplace_back(known ? resolve(work).value_or(guess(work)) : guess(work));
    check_choosable(jobs, sizes);
    Cost cost;
    std::vector<JobResult> results;
    for (const auto& job : jobs) {
      const auto options = make_options(job.settings);
      const auto one = cost_of(options, sizes.of(options));
      cost += one;
      if (auto result = known ? load_result(job.settings.at("output")) : std::nullopt) {
        results.push_back({&job, std::move(result), ""});
        ++finished_;
      } else {
        left_ += one;
      }
    }
    if (results.size() == jobs.size()) take_results(work, std::move(results));
    all += cost;
    table.rows.push_back(cells(work.spec, cost));
  }
  table.rules.push_back(table.rows.size());
  table.rows.push_back(cells("all", all));
  for (auto& work : works_) {  // run() begins anew, and finds the same
    work.done = false;
    work.best.clear();
    work.results.clear();
    work.error.clear();
  }
  return table;
}

TrainOptions TablePlan::example() const {
  std::optional<TrainOptions> found;
  for (const size_t i : order_) {
    const auto options = make_options(guess(works_[i]).front().settings);
    const bool whole = options.method != "lp" && options.method != "lp-ft" && options.method != "pf";
    if (options.epochs > 0 && whole) return options;
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
  Whole so_far;
  const auto ready = [&](const Work& work) {
    return !work.done && std::all_of(work.takes.begin(), work.takes.end(),
                                     [&](const Take& take) { return works_[take.from].done; });
  };
  for (;;) {
    auto& jobs = jobs_.emplace_back();
    std::vector<std::pair<size_t, size_t>> parts;  // whose, and how many of the jobs
    bool progress = false;
    for (const size_t i : order_) {
      auto& work = works_[i];
      if (!ready(work)) continue;
      progress = true;
      auto own = resolve(work);
      if (!own) {
        work.done = true;
        say(fmt::format("{}: {} cannot be made: {}\n", options_.what, work.spec, work.error));
        continue;
      }
      parts.emplace_back(i, own->size());
      std::move(own->begin(), own->end(), std::back_inserter(jobs));
    }
    if (!progress) break;
    if (jobs.empty()) continue;
    Whole whole = so_far;
    for (auto& job : jobs) job.work = work_of(job);
    for (const size_t i : order_) {
      const bool now =
          std::any_of(parts.begin(), parts.end(), [&](const auto& part) { return part.first == i; });
      if (works_[i].done || now) continue;
      for (const auto& job : guess(works_[i])) {
        ++whole.after;
        whole.work_after += work_of(job);
      }
    }
    const auto results = run_jobs(jobs, options_.side_by_side, options_.what, whole);
    so_far.before += jobs.size();
    for (const auto& result : results) {
      if (!result.result) continue;
      so_far.work_before += result.job->work;
      so_far.seconds_before += result.result->value("seconds", 0.0);
    }
    auto at = results.begin();
    for (const auto& [i, count] : parts) {
      const auto end = at + static_cast<std::ptrdiff_t>(count);
      take_results(works_[i], {at, end});
      at = end;
    }
  }
  return std::all_of(order_.begin(), order_.end(), [&](size_t i) {
    const auto& results = works_[i].results;
    return !works_[i].best.empty() &&
           std::all_of(results.begin(), results.end(), [](const auto& result) { return result.result; });
  });
}

std::vector<fs::path> TablePlan::best_runs() const {
  std::vector<fs::path> runs;
  for (const size_t i : order_) {
    for (const auto* run : works_[i].best) runs.emplace_back(run->job->settings.at("output"));
  }
  return runs;
}

Comparison TablePlan::comparison() const {
  Comparison all{table_.name, table_.tests, {}, facts()};
  for (const auto& row : table_.rows) {
    const auto& work = works_[find(row.spec)];
    if (!work.wanted) continue;
    std::vector<Json> results;
    for (const auto* run : work.best) results.push_back(*run->result);
    all.rows.push_back({row.label, row.spec, scores_of(results), row.numbers,
                        work.best.empty() ? "" : chosen_text(work.best.front()->job->swept), work.best.size(),
                        work.error});
  }
  return all;
}

std::vector<std::string> TablePlan::facts() const {
  std::vector<std::string> lines;
  std::set<std::string> seeds, devices;
  std::map<std::string, std::set<int64_t>> classes;
  double seconds = 0;
  for (const size_t i : order_) {
    for (const auto& result : works_[i].results) {
      if (!result.result) continue;
      seconds += result.result->value("seconds", 0.0);
      seeds.insert(result.job->seed);
      for (const auto& test : result.result->at("tests"))
        classes[test.at("name")].insert(test.value("scored_classes", int64_t{0}));
      std::ifstream stream(fs::path(result.job->settings.at("output")) / "environment.json");
      const auto environment = Json::parse(stream, nullptr, /*allow_exceptions=*/false);
      if (environment.is_object()) devices.insert(environment.value("device", "?"));
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
  lines.push_back(fmt::format("Device {}; {:.0f} seconds of runs, one after the other ({})",
                              fmt::join(devices, ", "), seconds, duration_text(seconds)));
  return lines;
}

}  // namespace tpgm::tools
