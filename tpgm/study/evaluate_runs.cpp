// Rows, their options and tests, their scores, and those as text.
#include "tpgm/study/evaluate_runs.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>

#include "tpgm/base/call.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/data/loader.h"
#include "tpgm/io/metadata.h"
#include "tpgm/io/safetensors.h"
#include "tpgm/models/named_models.h"
#include "tpgm/nn/precision.h"
#include "tpgm/report/table.h"
#include "tpgm/study/run_record.h"
#include "tpgm/train/image_setup.h"
#include "tpgm/train/model_setup.h"
#include "tpgm/train/recipe.h"
#include "tpgm/weights/read.h"

namespace tpgm {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Row = EvaluatedRow;
using Tests = std::shared_ptr<const std::vector<TestSet>>;

void note(const Say& say, const std::string& text) {
  if (say) say(text);
}

// The tests of all rows; those with the same options and classes are opened once.
class Data {
 public:
  std::set<std::string> warnings;  // on the tests that were opened

  Tests tests(const Row& row, const std::vector<std::string>& classes) {
    const auto& o = row.options;
    auto& found = opened_[{row.of_a_run, only(to_settings(o), Trait::kData), classes}];
    if (!found) {
      std::vector<TestSet> tests;
      if (row.of_a_run || !o.train.empty()) {
        auto data = open_data(o, classes, DataUse::kOlderRun);
        tests = std::move(data.tests);
        warnings.insert(data.warnings.begin(), data.warnings.end());
      } else {
        tests = open_tests(o, classes);
      }
      std::stable_partition(tests.begin(), tests.end(), [](const TestSet& test) { return test.id; });
      found = std::make_shared<const std::vector<TestSet>>(std::move(tests));
    }
    return found;
  }

  // Where class names are looked up: the data set, or else the first that has a path of its own.
  const Dataset& names(const TrainOptions& options) {
    std::string where = options.data_dir;
    if (where.empty()) where = options.test.front().substr(options.test.front().find('=') + 1);
    auto& found = named_[where];
    if (!found) found = std::make_unique<Dataset>(where);
    return *found;
  }

 private:
  std::map<std::tuple<bool, Settings, std::vector<std::string>>, Tests> opened_;
  std::map<std::string, std::unique_ptr<Dataset>> named_;
};

// "NAME=PATH" or "PATH", which may have a '=' in it.
Row parse_row(const std::string& text) {
  Row row;
  row.path = text;
  const size_t at = text.find('=');
  if (at != std::string::npos && at > 0 && !is_script(text) && !fs::exists(text)) {
    row.name = text.substr(0, at);
    row.path = text.substr(at + 1);
  } else {
    const fs::path path = fs::path(text).lexically_normal();
    row.name = (path.has_filename() ? path : path.parent_path()).filename().string();
  }
  row.run = is_run(row.path);
  return row;
}

std::vector<Row> parse_rows(const std::vector<std::string>& checkpoints) {
  std::vector<Row> rows;
  std::map<std::string, int> names;
  for (const auto& text : checkpoints) {
    const Row& row = rows.emplace_back(parse_row(text));
    TORCH_CHECK(is_script(row.path) || fs::exists(row.path), "there is no '", printable(row.path, kMaxPath),
                "'");
    ++names[row.name];
  }
  for (size_t i = 0; i < rows.size(); ++i) {  // two runs may have a "best.safetensors"
    if (names[rows[i].name] > 1) rows[i].name = checkpoints[i];
  }
  return rows;
}

// Flags before the recipe of the run, or, of a checkpoint by itself, what the first run says of the data. A
// data set on the command line is none of the run's: its domains and splits do not count there.
void set_options(std::vector<Row>& rows, const Settings& given, const Say& say) {
  const bool elsewhere = given.contains("data-dir");  // then what recipes say of their data is of no use
  std::vector<Settings> recipes(rows.size());
  const Settings* first = nullptr;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].run) continue;
    const fs::path run = rows[i].path;
    TORCH_CHECK(fs::exists(weights_of(run)) || fs::exists(last_weights_of(run)), "the run '", run.string(),
                "' has not finished an epoch yet; resume it first");
    if (!is_finished(run))
      note(say, fmt::format("the run '{}' is not finished: this is its best epoch so far, without the final "
                            "projection of its method",
                            run.string()));
    recipes[i] = without(load_recipe(recipe_of(run)).settings, Trait::kMachine);
    if (elsewhere) {
      recipes[i] = without(recipes[i], Trait::kData);
    } else if (!first) {
      first = &recipes[i];
    }
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    Row& row = rows[i];
    Settings settings = given;
    if (!row.run && first) settings.merge(only(*first, Trait::kData));
    settings.insert(recipes[i].begin(), recipes[i].end());
    row.options = make_options(settings);
    if (row.run && !given.contains("model")) {
      // Metadata say what the script is, and a note says that it runs. Weights of a run may have lost them.
      const bool said = is_script(row.options.model) && names_script(Checkpoint(row.weights()));
      row.options.model = said ? "" : model_of_run(row.options.model, row.path);
    }
    row.of_a_run = first != nullptr;
    row.list_given = given.contains("class-list");
    row.batch_size = given.contains("batch-size")
                         ? row.options.batch_size
                         : row.options.validation_batch_size.value_or(row.options.batch_size);
  }
}

std::vector<std::string> names_of(const std::vector<TestSet>& tests, bool id_only) {
  std::vector<std::string> names;
  for (const auto& test : tests) {
    if (test.id || !id_only) names.push_back(test.name);
  }
  return names;
}

// A table has the same columns for all rows.
void check_comparable(const std::vector<Row>& rows) {
  const Row& first = rows.front();
  for (const Row& row : rows) {
    for (const bool id_only : {true, false}) {
      const auto ours = names_of(*first.tests, id_only), theirs = names_of(*row.tests, id_only);
      TORCH_CHECK(std::set(ours.begin(), ours.end()) == std::set(theirs.begin(), theirs.end()), "'",
                  first.name, id_only ? "' counts as in-distribution " : "' is tested on ",
                  fmt::format("{}", fmt::join(ours, ", ")), ", '", row.name, "' ",
                  fmt::format("{}", fmt::join(theirs, ", ")), "; give all of them the same with ",
                  id_only ? "`id`" : "`test`");
    }
  }
}

// Rows may name the tests in another order than the first.
void order_tests(Row& row, const std::vector<TestSet>& order) {
  if (names_of(*row.tests, false) == names_of(order, false)) return;
  std::vector<TestSet> tests;
  for (const auto& wanted : order) {
    tests.push_back(*std::find_if(row.tests->begin(), row.tests->end(),
                                  [&](const TestSet& test) { return test.name == wanted.name; }));
  }
  row.tests = std::make_shared<const std::vector<TestSet>>(std::move(tests));
}

// Returns the size of the images that the model got.
int64_t evaluate_row(Row& row, const std::string& head, c10::Device device,
                     const std::function<void(size_t)>& progress, const Say& say,
                     std::set<std::string>& reported) {
  const auto given = row.open(head, {});
  Classifier& model = *given.loaded.model;
  model.to(device);
  to_channels_last(model);
  const auto images = make_images(row.options, model, given.loaded.metadata, device);
  EvaluateOptions options;
  options.amp = row.options.amp;
  options.subset = row.options.classes == ScoredClasses::kSubset;
  options.progress = progress;
  for (const auto& test : *row.tests) {
    Loader loader(test.subset, images.eval, LoaderOptions(images.loader).batch_size(row.batch_size));
    row.results.push_back(evaluate(model, loader, options));
    for (const auto& bad : loader.skipped()) {
      if (reported.insert(bad.place).second)
        note(say, fmt::format("skipped '{}': {}", printable(bad.place, kMaxPath),
                              printable(bad.reason, kMaxPath)));
    }
    TORCH_CHECK(row.results.back().images > 0, "[evaluate] no image of '", test.name, "' could be read");
  }
  return images.eval.image_size();
}

// Whether both were tested on as many images of the same tests. Images of one that were added or removed
// since the other are seen by their number.
bool tested_alike(const Row& one, const Row& other) {
  if (one.results.size() != other.results.size()) return false;
  for (size_t t = 0; t < one.results.size(); ++t) {
    const auto &a = one.results[t], &b = other.results[t];
    if ((*one.tests)[t].name != (*other.tests)[t].name || a.images != b.images || a.skipped != b.skipped ||
        a.scored_classes != b.scored_classes)
      return false;
  }
  return true;
}

// The row with the results of its run; nothing if they cannot be taken.
std::optional<Row> with_result(Row row) {
  if (!row.run) return std::nullopt;
  std::optional<RunResult> result;
  try {
    result = read_result(row.path);
  } catch (const c10::Error&) {  // damaged
  }
  if (!result || result->weights.empty() || result->weights != weights_fingerprint(row.path))
    return std::nullopt;
  row.classes = keys::kClasses.of(SafetensorsFile(weights_of(row.path)).metadata());
  if (row.classes.empty()) return std::nullopt;
  std::stable_partition(result->tests.begin(), result->tests.end(), [](const auto& test) { return test.id; });
  std::vector<TestSet> tests;
  for (const auto& test : result->tests) {
    if (!std::isfinite(test.top1) || test.images <= 0) return std::nullopt;
    TestSet& set = tests.emplace_back();
    set.name = test.name;
    set.id = test.id;
    Accuracy& accuracy = row.results.emplace_back();
    accuracy.images = test.images;
    accuracy.skipped = test.skipped;
    accuracy.scored_classes = test.scored_classes;
    accuracy.correct = std::llround(test.top1 / 100 * static_cast<double>(test.images));
  }
  row.tests = std::make_shared<const std::vector<TestSet>>(std::move(tests));
  return row;
}

}  // namespace

GivenClassifier EvaluatedRow::open(const std::string& head, const Say& note) const {
  if (is_script(path)) return open_classifier(path, "", run ? "" : head, note);
  return open_classifier(options.model, weights(), run ? "" : head, note);
}

std::string EvaluatedRow::weights() const {
  const fs::path best = weights_of(path);
  return run && fs::exists(best) ? best.string() : path;
}

std::vector<EvaluatedRow> rows_to_evaluate(const std::vector<std::string>& checkpoints, const Settings& given,
                                           const Say& say) try {
  auto rows = parse_rows(checkpoints);
  set_options(rows, given, say);
  return rows;
} catch (...) {
  rethrow_from("rows_to_evaluate");
}

std::string missing_option(const EvaluatedRow& row) {
  if (row.of_a_run) return "";
  const auto& o = row.options;
  if (o.test.empty() && o.train.empty()) return "test";
  const auto inside = [](const std::string& test) { return test.find('=') == std::string::npos; };
  const bool needed = !o.train.empty() || std::any_of(o.test.begin(), o.test.end(), inside);
  return o.data_dir.empty() && needed ? "data-dir" : "";
}

bool take_results(std::vector<Row>& rows) {
  const auto data_of = [](const Row& row) { return only(to_settings(row.options), Trait::kData); };
  std::vector<Row> taken;
  for (const Row& row : rows) {
    if (data_of(row) != data_of(rows.front())) return false;
    auto with = with_result(row);
    if (!with || (!taken.empty() && !tested_alike(*with, taken.front()))) return false;
    taken.push_back(*std::move(with));
  }
  rows = std::move(taken);
  return true;
}

void open_tests(std::vector<Row>& rows, const std::string& head, const Say& say) try {
  Data data;
  for (Row& row : rows) {
    const auto given = row.open(head, say);
    // The list of a recipe is for checkpoints that do not say their classes.
    const bool listed = row.list_given || given.classes.empty();
    row.classes = classes_for(given, listed ? row.options.class_list : "", data.names(row.options), say);
    row.tests = data.tests(row, row.classes);
  }
  check_comparable(rows);
  const auto& first = *rows.front().tests;
  TORCH_CHECK(!first.empty(),
              "there are no images to test on: ", fmt::format("{}", fmt::join(data.warnings, "; ")),
              "; `test` adds others");
  std::set<std::string> notes = std::move(data.warnings);
  notes.insert(few_images_note(first));
  for (const Row& row : rows) {
    for (const auto& test : *row.tests) notes.insert(test.unread);
  }
  for (const auto& text : notes) {
    if (!text.empty()) note(say, text);
  }
  for (Row& row : rows) {
    order_tests(row, first);
    for (size_t t = 0; t < first.size(); ++t) {
      if ((*row.tests)[t].subset.indices == first[t].subset.indices) continue;
      note(say, fmt::format("'{}' is tested on other images of {} than '{}' is", row.name, first[t].name,
                            rows.front().name));
    }
  }
} catch (...) {
  rethrow_from("open_tests");
}

void evaluate(std::vector<EvaluatedRow>& rows, const std::string& head, c10::Device device,
              const std::function<void(size_t)>& progress, const Say& say) {
  std::set<std::string> reported;
  std::optional<int64_t> first;
  for (auto& row : rows) {
    const int64_t size = evaluate_row(row, head, device, progress, say, reported);
    if (size != first.value_or(size))
      note(say,
           fmt::format("'{}' is evaluated at {} pixels and '{}' at {}: `model` FAMILY:image_size=N sets the "
                       "size of a checkpoint that does not say it",
                       printable(row.name, kMaxPath), size, printable(rows.front().name, kMaxPath), *first));
    if (!first) first = size;
  }
}

std::vector<ResultRow> results_of(const std::vector<Row>& rows, double (Accuracy::*score)() const) {
  std::vector<ResultRow> results;
  for (const Row& row : rows) {
    auto& result = results.emplace_back(ResultRow{printable(row.name, kMaxPath), {}});
    for (size_t t = 0; t < row.results.size(); ++t) {
      const auto& test = (*row.tests)[t];
      result.scores.push_back({printable(test.name), test.id, {(row.results[t].*score)()}});
    }
  }
  return results;
}

std::string scored_text(const std::vector<Row>& rows) {
  std::vector<std::string> parts;
  for (const Row& row : rows) {
    const size_t all = row.classes.size();
    std::vector<std::string> tests;
    for (size_t t = 0; t < row.results.size(); ++t)
      tests.push_back(fmt::format("{} {}", (*row.tests)[t].name, row.results[t].scored_classes));
    parts.push_back(row.options.classes == ScoredClasses::kSubset
                        ? fmt::format("the classes that occur, of {}: {}", all, fmt::join(tests, ", "))
                        : fmt::format("all {} classes", all));
  }
  if (std::all_of(parts.begin(), parts.end(), [&](const auto& part) { return part == parts.front(); }))
    return fmt::format("Scored over {}.\n", printable(parts.front(), kMaxPath));
  std::string text;
  for (size_t r = 0; r < rows.size(); ++r)
    text += fmt::format("{}: scored over {}.\n", printable(rows[r].name, kMaxPath),
                        printable(parts[r], kMaxPath));
  return text;
}

int64_t skipped_of(const std::vector<Row>& rows) {
  int64_t most = 0;  // every row meets the same images
  for (const Row& row : rows) {
    int64_t skipped = 0;
    for (const auto& result : row.results) skipped += result.skipped;
    most = std::max(most, skipped);
  }
  return most;
}

Json to_json(const std::vector<EvaluatedRow>& rows) {
  const auto results = results_of(rows, &Accuracy::top1);
  Json json{{"skipped", skipped_of(rows)}, {"checkpoints", Json::array()}};
  for (size_t r = 0; r < rows.size(); ++r) {
    const Row& row = rows[r];
    Json each{{"name", printable(row.name, kMaxPath)},
              {"path", printable(row.path, kMaxPath)},
              {"classes", row.classes.size()},
              {"scored", to_text(row.options.classes)},
              {"tests", Json::array()}};
    for (size_t t = 0; t < row.results.size(); ++t) {
      const Accuracy& result = row.results[t];
      each["tests"].push_back({{"name", printable((*row.tests)[t].name)},
                               {"id", (*row.tests)[t].id},
                               {"pictures", result.images},
                               {"skipped", result.skipped},
                               {"classes_scored", result.scored_classes},
                               {"top1", result.top1()},
                               {"top5", result.top5()},
                               {"loss", result.loss}});
    }
    for (const bool id : {true, false}) {
      const double average = results[r].average(id), first = results.front().average(id);
      if (std::isnan(average)) continue;
      const std::string kind = id ? "id_" : "ood_";
      each[kind + "average"] = average;
      each[kind + "change"] = 100 * (average - first) / first;
    }
    json["checkpoints"].push_back(std::move(each));
  }
  return json;
}

std::string to_csv(const std::vector<Row>& rows) {
  std::string text = "checkpoint,test,id,pictures,skipped,classes_scored,classes,top1,top5,loss\n";
  for (const Row& row : rows) {
    for (size_t t = 0; t < row.results.size(); ++t) {
      const auto& test = (*row.tests)[t];
      const Accuracy& result = row.results[t];
      text += fmt::format("{},{},{:d},{},{},{},{},{},{},{}\n", csv_field(row.name), csv_field(test.name),
                          test.id, result.images, result.skipped, result.scored_classes, row.classes.size(),
                          result.top1(), result.top5(), result.loss);
    }
  }
  return text;
}

std::string per_class_csv(const std::vector<Row>& rows) {
  std::string text = "checkpoint,test,class,pictures,right,accuracy\n";
  for (const Row& row : rows) {
    for (size_t t = 0; t < row.results.size(); ++t) {
      const Accuracy& result = row.results[t];
      for (size_t k = 0; k < row.classes.size(); ++k) {
        if (result.class_images[k] == 0) continue;
        text += fmt::format(
            "{},{},{},{},{},{}\n", csv_field(row.name), csv_field((*row.tests)[t].name),
            csv_field(row.classes[k]), result.class_images[k], result.class_correct[k],
            100 * static_cast<double>(result.class_correct[k]) / static_cast<double>(result.class_images[k]));
      }
    }
  }
  return text;
}

}  // namespace tpgm
