// From a recipe to runs, and from their results to a table.
#include "tpgm/study/sweep.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tpgm/base/call.h"
#include "tpgm/base/error_text.h"
#include "tpgm/base/names.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/io/file.h"
#include "tpgm/train/test_paths.h"

namespace tpgm {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct Axis {
  std::string key;
  std::vector<std::string> values;
};

Axis parse_axis(const std::string& entry) {
  Axis axis{option_key(entry.substr(0, entry.find('='))), {}};
  const size_t at = entry.find('=');
  TORCH_CHECK(at != std::string::npos && at > 0, "'", printable(entry),
              "': a sweep is KEY=VALUE,VALUE, such as lr=1e-3,1e-2");
  from_text(axis.key, entry.substr(at + 1), axis.values);
  const auto known = option_keys();
  TORCH_CHECK(std::find(known.begin(), known.end(), axis.key) != known.end(), "no option '",
              printable(axis.key), "'", option_hint(axis.key, known));
  TORCH_CHECK(axis.key != "seed", "seed: give seeds with `seeds` ", entry.substr(at + 1));
  TORCH_CHECK(axis.key != "output", "output: each run has a folder of its own below it");
  const std::set<std::string> different(axis.values.begin(), axis.values.end());
  TORCH_CHECK(!axis.values.empty() && different.size() == axis.values.size() && !different.contains(""), "'",
              printable(entry), "': a value is empty or there twice, or there is none");
  return axis;
}

// Relative ones would be taken as relative to the recipes that are written for the runs.
void make_absolute(Settings& settings) {
  for (auto& [key, value] : settings) {
    if (is_path(key, value)) value = fs::absolute(value).lexically_normal().string();
  }
  const auto tests = settings.find("test"), data_dir = settings.find("data-dir");
  if (tests == settings.end()) return;
  const auto folders = test_folders(data_dir == settings.end() ? "" : data_dir->second);
  tests->second = to_text(absolute_tests(parsed<std::vector<std::string>>(tests->second), folders));
}

std::string file_name(std::string name) {
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

TrainOptions check_options(const Job& job) {
  try {
    return make_options(job.settings);
  } catch (const c10::Error& error) {
    const bool methods = job.swept.contains("method");
    TORCH_CHECK(false, job.name, ": ", error_text(error),
                methods ? "; sweep methods that differ in options in commands of their own" : "");
  }
}

// Results by method, in the order of the sweep.
std::vector<std::pair<std::string, std::vector<JobResult>>> by_method(const std::vector<JobResult>& results) {
  std::vector<std::pair<std::string, std::vector<JobResult>>> groups;
  for (const auto& result : results) {
    const auto found = result.job.settings.find("method");
    const std::string method = found == result.job.settings.end() ? TrainOptions().method : found->second;
    auto at = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == method; });
    if (at == groups.end()) at = groups.insert(groups.end(), {method, {}});
    at->second.push_back(result);
  }
  return groups;
}

Json to_json(const Settings& settings) {
  Json json = Json::object();
  for (const auto& [key, value] : settings) json[key] = value;
  return json;
}

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

std::string text_of(double value) { return std::isnan(value) ? "" : fmt::format("{}", value); }

std::string every_run(const std::vector<JobResult>& results) {
  std::set<std::string> keys;
  std::vector<std::string> tests;
  for (const auto& result : results) {
    for (const auto& [key, value] : result.job.swept) keys.insert(key);
    if (!result.result || !tests.empty()) continue;
    for (const auto& test : result.result->tests) tests.push_back(test.name);
  }
  Table table;
  table.columns.assign(keys.begin(), keys.end());
  table.columns.insert(table.columns.end(), {"seed", "status", "selection"});
  table.columns.insert(table.columns.end(), tests.begin(), tests.end());
  table.columns.emplace_back("run");
  for (const auto& result : results) {
    auto& cells = table.rows.emplace_back();
    for (const auto& key : keys)
      cells.push_back(result.job.swept.contains(key) ? result.job.swept.at(key) : "");
    cells.push_back(result.job.seed);
    cells.emplace_back(result.result ? "finished" : "failed");
    cells.push_back(result.result ? text_of(result.result->selection) : "");
    for (size_t i = 0; i < tests.size(); ++i)
      cells.push_back(result.result ? text_of(result.result->tests.at(i).top1) : "");
    cells.push_back(result.job.settings.at("output"));
  }
  return to_csv(table);
}

Json as_json(const JobResult& result) {
  Json json = {{"name", result.job.name},
               {"swept", to_json(result.job.swept)},
               {"seed", result.job.seed},
               {"run", result.job.settings.at("output")},
               {"status", result.result ? "finished" : "failed"}};
  if (result.result) {
    json["result"] = Json::parse(result.result->json);
  } else {
    json["error"] = result.error;
  }
  return json;
}

Json as_json(const SweepRow& row) {
  Json tests = Json::array(), runs = Json::array();
  for (const auto& score : row.scores)
    tests.push_back({{"name", score.test},
                     {"id", score.id},
                     {"mean", number(score.mean())},
                     {"std", number(score.deviation())},
                     {"values", score.values}});
  for (const auto& run : row.best) runs.push_back(run.job.settings.at("output"));
  return {{"method", row.method},
          {"choose", to_text(row.choose)},
          {"chosen", row.best.empty() ? Json(nullptr) : to_json(row.best.front().job.swept)},
          {"selection", row.best.empty() ? Json(nullptr) : number(mean_selection(row.best))},
          {"tests", tests},
          {"runs", runs}};
}

void write_table(const SweepResult& result, const fs::path& folder) {
  auto table = result.table();
  if (!table) return;
  std::string notes;
  for (const auto& row : result.rows) notes += fmt::format("- {}\n", row.note());
  write_file(folder / "table.tex", to_latex(*table));
  write_file(folder / "table.md", to_markdown(*table) + "\n" + notes);
  table->groups.clear();
  table->columns.emplace_back("chosen");
  for (size_t i = 0; i < result.rows.size(); ++i) table->rows[i].push_back(result.rows[i].chosen);
  write_file(folder / "table.csv", to_csv(*table));
}

}  // namespace

std::vector<Job> expand(const Recipe& recipe) try {
  Settings common = recipe.settings;
  TORCH_CHECK(common.contains("output") && !common["output"].empty(),
              "`output` is required: the folder in which each run has one");
  make_absolute(common);
  const fs::path folder = common["output"];
  std::vector<Axis> axes;
  for (const auto& entry : recipe.sweep) {
    axes.push_back(parse_axis(entry));
    for (size_t i = 0; i + 1 < axes.size(); ++i)
      TORCH_CHECK(axes[i].key != axes.back().key, "'", axes[i].key, "' is swept twice");
  }
  auto seeds = recipe.seeds;
  if (seeds.empty()) seeds.push_back(common.contains("seed") ? common["seed"] : "0");
  TORCH_CHECK(std::set<std::string>(seeds.begin(), seeds.end()).size() == seeds.size(),
              "a seed is there twice");

  std::vector<Job> jobs = {{"", common, {}, ""}};
  for (const auto& axis : axes) {
    std::vector<Job> more;
    for (const auto& job : jobs) {
      for (const auto& value : axis.values) {
        more.push_back(job);
        more.back().name += fmt::format("{}={},", axis.key, value);
        more.back().settings[axis.key] = more.back().swept[axis.key] = value;
      }
    }
    jobs = std::move(more);
  }
  std::vector<Job> all;
  std::set<fs::path> folders;
  for (const auto& job : jobs) {
    for (const auto& seed : seeds) {
      all.push_back(job);
      auto& one = all.back();
      one.name += "seed=" + seed;
      one.seed = one.settings["seed"] = seed;
      one.settings["output"] = (folder / file_name(one.name)).string();
      make_absolute(one.settings);
      TORCH_CHECK(folders.insert(one.settings["output"]).second, "two runs would be called '", one.name, "'");
      check_options(one);
    }
  }
  return all;
} catch (...) {
  rethrow_from("expand");
}

void check_choosable(const std::vector<Job>& jobs, DataSizes& sizes) try {
  std::map<std::string, const Job*> first;  // of a method
  for (const auto& job : jobs) {
    const auto options = make_options(job.settings);
    const auto* other = first.try_emplace(options.method, &job).first->second;
    if (other->swept == job.swept) continue;
    TORCH_CHECK(sizes.of(options).selection > 0, "there are no selection data to choose between ",
                other->name, " and ", job.name, " by; a larger `selection-fraction` holds some out");
  }
} catch (...) {
  rethrow_from("check_choosable");
}

double mean_selection(const std::vector<JobResult>& group) {
  double sum = 0;
  for (const auto& each : group) {
    sum += each.result ? each.result->selection : std::numeric_limits<double>::quiet_NaN();
  }
  return sum / static_cast<double>(group.size());
}

double standard_error(const std::vector<JobResult>& group) {
  const double mean = mean_selection(group), seeds = static_cast<double>(group.size());
  double squares = 0;
  for (const auto& each : group) squares += std::pow(each.result->selection - mean, 2);
  const auto images = static_cast<double>(group.front().result->selection_images);
  const double of_images = images > 0 ? std::max(0.0, mean * (100 - mean)) / images : 0;
  return std::sqrt(of_images + (seeds > 1 ? squares / (seeds - 1) / seeds : 0));
}

std::vector<JobResult> best_of(const std::vector<JobResult>& results, Choose choose) try {
  std::vector<std::vector<JobResult>> groups;
  for (const auto& result : results) {
    const auto same = [&](const auto& group) { return group.front().job.swept == result.job.swept; };
    auto at = std::find_if(groups.begin(), groups.end(), same);
    if (at == groups.end()) at = groups.emplace(groups.end());
    at->push_back(result);
  }
  std::erase_if(groups, [](const auto& group) {
    return std::any_of(group.begin(), group.end(), [](const auto& each) { return !each.result; });
  });
  if (groups.empty()) return {};
  if (groups.size() == 1) return groups.front();
  const std::vector<JobResult>* best = nullptr;
  for (const auto& group : groups) {
    const double mean = mean_selection(group);
    TORCH_CHECK(std::isfinite(mean), "'", group.front().job.name,
                "' has no accuracy on selection data to choose by; `selection-fraction` 0.1 holds some out");
    if (best == nullptr || mean > mean_selection(*best)) best = &group;
  }
  if (choose == Choose::kBest) return *best;
  const double least = mean_selection(*best) - standard_error(*best);
  const auto distance = [](const auto& group) {
    double sum = 0;
    for (const auto& each : group) sum += each.result->relative_distance;
    return sum / static_cast<double>(group.size());
  };
  for (const auto& group : groups) {
    if (mean_selection(group) >= least && distance(group) < distance(*best)) best = &group;
  }
  return *best;
} catch (...) {
  rethrow_from("best_of");
}

std::string chosen_text(const Settings& swept) {
  std::vector<std::string> texts;
  for (const auto& [key, value] : swept) texts.push_back(key + "=" + value);
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string SweepRow::note() const {
  if (best.empty()) return method + ": no combination without a failed run";
  auto text = fmt::format("{}: {}{}{} seed{}", method, chosen, chosen.empty() ? "" : "; ", best.size(),
                          best.size() == 1 ? "" : "s");
  const double selection = mean_selection(best);
  if (!std::isfinite(selection)) return text;
  return fmt::format("{}; selection {:.2f} %{}", text, selection,
                     choose == Choose::kOneSe && !chosen.empty() ? " (one-se)" : "");
}

size_t SweepResult::failed() const {
  return static_cast<size_t>(
      std::count_if(runs.begin(), runs.end(), [](const auto& run) { return !run.result; }));
}

std::optional<Table> SweepResult::table() const {
  std::vector<ResultRow> named;
  for (const auto& row : rows) {
    std::vector<std::pair<std::string, fs::path>> runs_of_row;
    for (const auto& run : row.best) runs_of_row.emplace_back(run.job.seed, run.job.settings.at("output"));
    named.push_back({row.method, row.scores, Hits(runs_of_row)});
  }
  if (std::all_of(named.begin(), named.end(), [](const auto& row) { return row.scores.empty(); }))
    return std::nullopt;
  return results_table(named);
}

SweepResult run_sweep(const std::vector<Job>& jobs, const JobOptions& options, Choose choose) {
  SweepResult result{run_jobs(jobs, options), {}};
  const fs::path folder = fs::path(jobs.front().settings.at("output")).parent_path();
  write_file(folder / "sweep.csv", every_run(result.runs));
  for (const auto& [method, runs] : by_method(result.runs)) {
    const bool far = std::all_of(runs.begin(), runs.end(), [](const auto& run) {
      return !run.result || std::isfinite(run.result->relative_distance);
    });
    SweepRow row{method, best_of(runs, choose), {}, "", far ? choose : Choose::kBest};
    std::vector<RunResult> found;
    for (const auto& run : row.best) found.push_back(*run.result);
    row.scores = scores_of(found);
    Settings swept = row.best.empty() ? Settings() : row.best.front().job.swept;
    swept.erase("method");
    row.chosen = chosen_text(swept);
    result.rows.push_back(std::move(row));
  }
  write_table(result, folder);
  return result;
}

Json to_json(const SweepResult& result) {
  Json all = {{"runs", Json::array()}, {"rows", Json::array()}};
  for (const auto& row : result.rows) all["rows"].push_back(as_json(row));
  for (const auto& run : result.runs) all["runs"].push_back(as_json(run));
  return all;
}

}  // namespace tpgm
