// From folders to rows.
#include "tpgm/study/run_set.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "tpgm/base/call.h"
#include "tpgm/base/names.h"
#include "tpgm/base/numbers.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/methods/registry.h"
#include "tpgm/train/recipe.h"
#include "tpgm/train/test_paths.h"

namespace tpgm {
namespace {

namespace fs = std::filesystem;

constexpr int kDeepest = 8;  // of runs that started from runs

std::string shown(const fs::path& path) { return printable(path.string(), kMaxPath); }

// Runs below a folder, in the order of their names; a run holds none.
void find_runs(const fs::path& folder, std::vector<fs::path>& found) {
  if (is_run(folder)) {
    found.push_back(folder);
    return;
  }
  std::vector<fs::path> below;
  std::error_code error;
  for (auto entry = fs::directory_iterator(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    std::error_code ignored;
    if (entry->is_directory(ignored) && !entry->is_symlink(ignored)) below.push_back(entry->path());
  }
  TORCH_CHECK(!error, "cannot read '", shown(folder), "': ", error.message());
  std::sort(below.begin(), below.end(),
            [](const auto& a, const auto& b) { return natural_less(a.string(), b.string()); });
  for (const auto& each : below) find_runs(each, found);
}

std::vector<fs::path> all_runs(const std::vector<fs::path>& paths) {
  std::vector<fs::path> all;
  std::set<fs::path> seen;
  for (const auto& path : paths) {
    std::error_code error;
    TORCH_CHECK(fs::exists(path, error), "there is no '", shown(path), "'");
    TORCH_CHECK(fs::is_directory(path, error), "'", shown(path),
                "' is a file; give the folder of a run, or one with runs in it");
    std::vector<fs::path> found;
    find_runs(path, found);
    TORCH_CHECK(!found.empty(), "'", shown(path),
                "' is not a run and has none below it: no folder there has a recipe.toml");
    for (const auto& run : found) {
      if (seen.insert(fs::weakly_canonical(run)).second) all.push_back(run);
    }
  }
  return all;
}

// The options of a run, with those options of its method that its version of the recipe did not have yet.
TrainOptions options_of(const fs::path& run) {
  auto options = make_options(load_recipe(recipe_of(run)).settings);
  options.test = absolute_tests(options.test, test_folders(options.data_dir));  // older ones may be relative
  add_method_defaults(options);
  return options;
}

Settings identity_of(const TrainOptions& options, int depth) {
  Settings result = without(to_settings(options), Trait::kCircumstance);
  if (!options.model_ema) result.erase("model-ema-warmup");
  if (options.weights.empty() || depth == kDeepest) return result;
  const fs::path weights = options.weights;
  const fs::path start = is_run(weights) ? weights : weights.parent_path();
  if (!is_run(start)) return result;
  result.erase("weights");
  for (const auto& [key, value] : identity_of(options_of(start), depth + 1)) result["weights." + key] = value;
  return result;
}

RowKind kind_of(const TrainOptions& options) {
  const auto* method = find_method(options.method);
  const auto role = method ? method->role : MethodRole::kOther;
  if (role == MethodRole::kBaseline && options.epochs == 0 && options.weights.empty()) {
    if (options.head.is(HeadSource::Kind::kFresh)) return RowKind::kRandomHead;
    return options.head.is(HeadSource::Kind::kCheckpoint) ? RowKind::kPretrained : RowKind::kZeroShot;
  }
  switch (role) {
    case MethodRole::kBaseline:
      return RowKind::kFt;
    case MethodRole::kInterpolation:
      return RowKind::kWise;
    case MethodRole::kTpgm:
      return method_number(options, "mu") > 0 ? RowKind::kTpgmC : RowKind::kTpgm;
    case MethodRole::kOther:
      break;
  }
  return RowKind::kOther;
}

// The place of a run's method among methods().
size_t method_place(const TrainOptions& options) {
  const auto found = std::find_if(methods().begin(), methods().end(),
                                  [&](const auto& method) { return method.name == options.method; });
  return static_cast<size_t>(found - methods().begin());
}

std::string name_of(const ReportRow& row) {
  if (row.kind == RowKind::kZeroShot) return "Zero-shot";
  if (row.kind == RowKind::kPretrained) return "Pre-trained";
  if (row.kind == RowKind::kRandomHead) return "Random head";
  const auto& options = row.run().options;
  const auto title = methods().at(method_place(options)).title;
  if (row.kind == RowKind::kWise) return fmt::format("{} {:g}", title, method_number(options, "ratio"));
  if (row.kind == RowKind::kTpgmC) return fmt::format("{}-C μ={:g}", title, method_number(options, "mu"));
  return title;
}

// Where a row stands, and rows of one method among each other.
std::tuple<size_t, double> rank(const ReportRow& row) {
  if (row.kind == RowKind::kZeroShot) return {0, 0};
  if (row.kind == RowKind::kPretrained || row.kind == RowKind::kRandomHead) return {1, 0};
  const auto& options = row.run().options;
  const double number = row.kind == RowKind::kWise    ? method_number(options, "ratio")
                        : row.kind == RowKind::kTpgmC ? method_number(options, "mu")
                                                      : 0;
  return {2 + method_place(options), number};
}

std::string setting_text(const std::string& key, const std::string& value) {
  const size_t part = key.rfind('.');
  const bool path = is_path(part == std::string::npos ? key : key.substr(part + 1), value);
  return printable(fmt::format("{}={}", key, path ? fs::path(value).filename().string() : value));
}

// Rows that would be called alike get the settings that tell them apart: the fewest, those of methods first.
void tell_apart(const std::vector<ReportRow*>& rows) {
  std::vector<Settings> all;
  for (const auto* row : rows) all.push_back(identity_settings(row->run().options));
  std::map<std::string, size_t> values;  // how many different ones a key has
  for (const auto& settings : all) {
    for (const auto& [key, value] : settings) values[key] = 0;
  }
  const auto text = [&](size_t row, const std::string& key) {
    const auto found = all[row].find(key);
    return found == all[row].end() ? std::string() : setting_text(key, found->second);
  };
  for (auto& [key, count] : values) {
    std::set<std::string> different;
    for (size_t i = 0; i < all.size(); ++i) different.insert(text(i, key));
    count = different.size();
  }
  std::vector<std::string> keys;
  for (const auto& [key, count] : values) {
    if (count > 1) keys.push_back(key);
  }
  const auto& own = rows.front()->run().options.method_options;
  const auto is_own = [&](const std::string& key) {
    return std::any_of(own.begin(), own.end(),
                       [&](const auto& item) { return option_key(item.first) == key; });
  };
  std::stable_sort(keys.begin(), keys.end(), [&](const auto& a, const auto& b) {
    return std::tuple(!is_own(a), a.starts_with("weights."), a != "lr", values[b]) <
           std::tuple(!is_own(b), b.starts_with("weights."), b != "lr", values[a]);
  });
  std::vector<std::string> names(rows.size());
  size_t different = 1;
  for (const auto& key : keys) {
    auto longer = names;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (const auto more = text(i, key); !more.empty()) longer[i] += fmt::format(" {}", more);
    }
    const size_t now = std::set<std::string>(longer.begin(), longer.end()).size();
    if (now == different) continue;
    names = longer;
    different = now;
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i]->name += names[i];
    // Values may be alike as they are shown.
    if (std::count(names.begin(), names.end(), names[i]) > 1)
      rows[i]->name += fmt::format(" ({})", shown(rows[i]->run().path.filename()));
  }
}

FinishedRun load_run(const fs::path& path, const RunResult& result) {
  FinishedRun run{path, options_of(path), result};
  for (const auto& test : result.tests)
    TORCH_CHECK(std::isfinite(test.top1), "'", shown(path), "': no image of a test could be read");
  return run;
}

std::string test_text(const RunTest& test) {
  return fmt::format("{} ({}, {} images)", printable(test.name), test.id ? "ID" : "OOD", test.images);
}

// The tests in the order of `wanted`; nothing if they are others.
std::optional<std::vector<RunTest>> in_order(const std::vector<RunTest>& tests,
                                             const std::vector<RunTest>& wanted) {
  std::vector<RunTest> ordered;
  for (const auto& test : wanted) {
    for (const auto& each : tests) {
      if (test.same_data(each)) ordered.push_back(each);
    }
  }
  if (ordered.size() != wanted.size() || tests.size() != wanted.size()) return std::nullopt;
  return ordered;
}

// The tests in the first run's order; they must be the same.
void order_tests(FinishedRun& run, const FinishedRun& first) {
  const auto& wanted = first.result.tests;
  auto& tests = run.result.tests;
  if (auto ordered = in_order(tests, wanted)) {
    tests = *std::move(ordered);
    return;
  }
  std::vector<std::string> theirs, ours;
  for (const auto& test : wanted) theirs.push_back(test_text(test));
  for (const auto& test : tests) ours.push_back(test_text(test));
  TORCH_CHECK(false, "'", shown(first.path), "' and '", shown(run.path),
              "' were tested on different data, or over different classes: ",
              fmt::format("{}", fmt::join(theirs, ", ")), "; and ", fmt::format("{}", fmt::join(ours, ", ")),
              ". Report on them apart");
}

// A run that other runs started from, such as a pre-training, is left out, unless it is one of `given` and
// was tested as the others were.
void leave_out_anchors(std::vector<FinishedRun>& runs, const std::set<fs::path>& given,
                       std::vector<std::string>& notes) {
  std::set<fs::path> anchors;
  for (const auto& run : runs) {
    const fs::path anchor = run.options.checkpoint;
    if (!anchor.empty()) anchors.insert(fs::weakly_canonical(is_run(anchor) ? anchor : anchor.parent_path()));
  }
  const auto is_anchor = [&](const FinishedRun& run) {
    return anchors.contains(fs::weakly_canonical(run.path));
  };
  const auto tip = std::find_if_not(runs.begin(), runs.end(), is_anchor);
  if (tip == runs.end()) return;
  std::vector<FinishedRun> kept;
  for (auto& run : runs) {
    const bool asked = given.contains(fs::weakly_canonical(run.path));
    const bool alike = in_order(run.result.tests, tip->result.tests).has_value();
    if (is_anchor(run) && !(asked && alike)) {
      notes.push_back(fmt::format("'{}' is left out: other runs started from it{}", shown(run.path),
                                  asked   ? ", and it was tested on other data"
                                  : alike ? "; name its folder to have it in the report"
                                          : ""));
    } else {
      kept.push_back(run);
    }
  }
  runs = std::move(kept);
}

double selection_of(const ReportRow& row) {
  double sum = 0;
  for (const auto& run : row.runs) sum += run.result.selection;
  return sum / static_cast<double>(row.runs.size());
}

}  // namespace

double to_number(const std::string& text) {
  return parse_number<double>(text).value_or(std::numeric_limits<double>::quiet_NaN());
}

double method_number(const TrainOptions& options, const std::string& key) {
  const auto found = options.method_options.find(key);
  return found == options.method_options.end() ? 0 : to_number(found->second);
}

Settings identity_settings(const TrainOptions& options) { return identity_of(options, 0); }

RunSet load_runs(const std::vector<fs::path>& paths) try {
  RunSet set;
  std::vector<FinishedRun> runs;
  for (const auto& path : all_runs(paths)) {
    if (const auto result = read_result(path)) {
      runs.push_back(load_run(path, *result));
    } else {
      set.unfinished.push_back(path);
    }
  }
  TORCH_CHECK(
      !runs.empty(), "none of the runs is finished",
      set.unfinished.empty() ? "" : fmt::format("; resume '{}' first", shown(set.unfinished.front())));

  std::set<fs::path> given;
  for (const auto& path : paths) {
    if (is_run(path)) given.insert(fs::weakly_canonical(path));
  }
  leave_out_anchors(runs, given, set.notes);
  std::map<Settings, size_t> places;
  for (auto& run : runs) {
    order_tests(run, runs.front());
    const auto [at, fresh] = places.emplace(identity_settings(run.options), set.rows.size());
    if (fresh) set.rows.emplace_back();
    auto& row = set.rows[at->second];
    const auto same = std::find_if(row.runs.begin(), row.runs.end(),
                                   [&](const auto& other) { return other.options.seed == run.options.seed; });
    if (same != row.runs.end()) {
      set.notes.push_back(fmt::format("'{}' is left out: '{}' is the same run, with the same seed",
                                      shown(run.path), shown(same->path)));
      continue;
    }
    row.runs.push_back(run);
  }
  std::map<std::string, std::vector<ReportRow*>> named;
  for (auto& row : set.rows) {
    row.kind = kind_of(row.run().options);
    row.name = name_of(row);
    std::vector<RunResult> results;
    std::vector<std::pair<std::string, fs::path>> runs_of_row;
    for (const auto& run : row.runs) {
      results.push_back(run.result);
      runs_of_row.emplace_back(to_text(run.options.seed), run.path);
    }
    row.scores = scores_of(results);
    row.hits = Hits(runs_of_row);
  }
  std::stable_sort(set.rows.begin(), set.rows.end(),
                   [](const auto& a, const auto& b) { return rank(a) < rank(b); });
  for (auto& row : set.rows) named[row.name].push_back(&row);
  for (const auto& [name, rows] : named) {
    if (rows.size() > 1) tell_apart(rows);
  }
  const auto rows = summary_rows(set);
  if (const auto* ft = chosen(rows, RowKind::kFt)) set.reference = static_cast<size_t>(ft - rows.data());
  return set;
} catch (...) {
  rethrow_from("load_runs");
}

std::vector<SummaryRow> summary_rows(const RunSet& runs) {
  std::vector<SummaryRow> rows;
  for (const auto& row : runs.rows) {
    rows.push_back({row.name, row.kind, row.scores, {}, selection_of(row), row.hits});
    for (const auto& test : row.run().result.tests) rows.back().images.push_back(test.images);
  }
  return rows;
}

std::string summary(const RunSet& runs) { return summary(summary_rows(runs)); }

}  // namespace tpgm
