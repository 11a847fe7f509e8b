// `tpgm eval`: how often checkpoints are right, in-distribution and out of it, side by side.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "tools/classifier.h"
#include "tools/data.h"
#include "tools/progress.h"
#include "tools/setting_flags.h"
#include "tools/text.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/data/loader.h"
#include "tpgm/io/file.h"
#include "tpgm/models/registry.h"
#include "tpgm/nn/precision.h"
#include "tpgm/study/results.h"
#include "tpgm/train/evaluate.h"
#include "tpgm/train/recipe.h"
#include "tpgm/train/setup.h"

namespace tpgm::tools {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  std::vector<std::string> checkpoints;
  SettingFlags flags;
  std::string head, csv, per_class;
  bool top5 = false, json = false;
};

using Tests = std::shared_ptr<const std::vector<TestSet>>;

/// A checkpoint to be scored, and its row of the table.
struct Row {
  std::string name, path;
  bool run = false;       // a run folder
  bool of_a_run = false;  // its data are a run's: with what that held out
  TrainOptions options;
  int64_t batch_size = 64;
  Tests tests;
  std::vector<std::string> classes;
  std::vector<Accuracy> results;  // of each test

  std::string model() const { return is_script(path) ? path : options.model; }
  std::string checkpoint() const {
    const fs::path best = fs::path(path) / "best.safetensors";
    return is_script(path) ? "" : run && fs::exists(best) ? best.string() : path;
  }
  GivenClassifier open(const std::string& head, bool quiet) const {
    return open_classifier("eval", model(), checkpoint(), run ? "" : head, quiet);
  }
};

/// The tests of all rows; those with the same options and classes are opened once.
class Data {
 public:
  Tests tests(const Row& row, const std::vector<std::string>& classes) {
    const auto& o = row.options;
    auto& found = opened_[{row.of_a_run, only(to_settings(o), Trait::kData), classes}];
    if (!found) {
      auto tests = row.of_a_run ? open_data(o, classes).tests : open_tests(o, classes);
      std::stable_partition(tests.begin(), tests.end(), [](const TestSet& test) { return test.id; });
      found = std::make_shared<const std::vector<TestSet>>(std::move(tests));
    }
    return found;
  }

  /// Where class names are looked up: the data set, or else the first that has a path of its own.
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
  row.run = fs::is_regular_file(fs::path(row.path) / "recipe.toml");
  return row;
}

std::vector<Row> parse_rows(const Arguments& args) {
  std::vector<Row> rows;
  std::map<std::string, int> names;
  for (const auto& text : args.checkpoints) {
    const Row& row = rows.emplace_back(parse_row(text));
    TORCH_CHECK(is_script(row.path) || fs::exists(row.path), "[eval] there is no '",
                printable(row.path, kMaxPath), "'");
    ++names[row.name];
  }
  for (size_t i = 0; i < rows.size(); ++i) {  // two runs may have a "best.safetensors"
    if (names[rows[i].name] > 1) rows[i].name = args.checkpoints[i];
  }
  return rows;
}

// Flags before the recipe of the run, or, of a checkpoint by itself, what the first run says of the data. A
// data set on the command line is none of the run's: its domains and splits do not count there.
void set_options(std::vector<Row>& rows, const Arguments& args) {
  const Settings given = args.flags.given();
  const bool elsewhere = given.contains("data-dir");  // then what recipes say of their data is of no use
  std::vector<Settings> recipes(rows.size());
  const Settings* first = nullptr;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].run) continue;
    const fs::path run = rows[i].path;
    TORCH_CHECK(fs::exists(run / "best.safetensors") || fs::exists(run / "last.safetensors"),
                "[eval] the run '", run.string(),
                "' has not finished an epoch yet; go on with tpgm train --resume");
    if (!fs::exists(run / "result.json"))
      say(
          fmt::format("tpgm eval: the run '{}' is not finished: this is its best epoch so far, without what "
                      "its method does at the end\n",
                      run.string()));
    recipes[i] = without(load_recipe(run / "recipe.toml").settings, Trait::kMachine);
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
    row.of_a_run = first != nullptr;
    row.batch_size = given.contains("batch-size")
                         ? row.options.batch_size
                         : row.options.validation_batch_size.value_or(row.options.batch_size);
    if (row.of_a_run) continue;
    if (row.options.test.empty() && row.options.train.empty()) {
      throw UsageError(elsewhere
                           ? "--test is required: with --data-dir, recipes do not say what to test on"
                           : fmt::format("--test is required: '{}' is no run folder, whose recipe would "
                                         "say what to test on",
                                         row.path));
    }
    const auto inside = [](const std::string& test) { return test.find('=') == std::string::npos; };
    if (row.options.data_dir.empty() &&
        (!row.options.train.empty() || std::any_of(row.options.test.begin(), row.options.test.end(), inside)))
      throw UsageError("--data-dir is required, unless every --test is NAME=PATH");
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
      TORCH_CHECK(std::set(ours.begin(), ours.end()) == std::set(theirs.begin(), theirs.end()), "[eval] '",
                  first.name, id_only ? "' counts as in-distribution " : "' is tested on ",
                  fmt::format("{}", fmt::join(ours, ", ")), ", '", row.name, "' ",
                  fmt::format("{}", fmt::join(theirs, ", ")), "; give all of them the same with ",
                  id_only ? "--id" : "--test");
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

// Everything that can be wrong is, before the first picture is read.
void prepare(std::vector<Row>& rows, const Arguments& args) {
  Data data;
  for (Row& row : rows) {
    const auto given = row.open(args.head, /*quiet=*/false);
    row.classes = classes_for("eval", given, row.options.class_list, data.names(row.options));
    row.tests = data.tests(row, row.classes);
  }
  check_comparable(rows);
  const auto& first = *rows.front().tests;
  for (Row& row : rows) {
    order_tests(row, first);
    for (size_t t = 0; t < first.size(); ++t) {
      if ((*row.tests)[t].subset.indices == first[t].subset.indices) continue;
      say(fmt::format("tpgm eval: '{}' is tested on other pictures of {} than '{}' is\n", row.name,
                      first[t].name, rows.front().name));
    }
  }
}

void evaluate_row(Row& row, const Arguments& args, c10::Device device, Progress& progress,
                  std::set<std::string>& reported) {
  const auto given = row.open(args.head, /*quiet=*/true);
  Classifier& model = *given.loaded.model;
  model.to(device);
  to_channels_last(model);
  const auto pictures = make_pictures(row.options, model, given.loaded.metadata, device);
  EvaluateOptions options;
  options.amp = row.options.amp;
  options.subset = row.options.classes == ScoredClasses::kSubset;
  options.progress = progress.callback();
  for (const auto& test : *row.tests) {
    Loader loader(test.subset, pictures.eval, LoaderOptions(pictures.loader).batch_size(row.batch_size));
    row.results.push_back(evaluate(model, loader, options));
    for (const auto& bad : loader.skipped()) {
      if (reported.insert(bad.place).second)
        say(fmt::format("tpgm eval: skipped '{}': {}\n", printable(bad.place, kMaxPath),
                        printable(bad.reason, kMaxPath)));
    }
    TORCH_CHECK(row.results.back().pictures > 0, "[eval] no picture of '", test.name, "' could be read");
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

// Over which classes, in words: no accuracy means anything without.
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
  int64_t most = 0;  // every row meets the same pictures
  for (const Row& row : rows) {
    int64_t skipped = 0;
    for (const auto& result : row.results) skipped += result.skipped;
    most = std::max(most, skipped);
  }
  return most;
}

void print_text(const Arguments& args, const std::vector<Row>& rows) {
  fmt::print("{}", to_text(results_table(results_of(rows, &Accuracy::top1), "Top-1 accuracy (%)")));
  if (args.top5)
    fmt::print("\n{}", to_text(results_table(results_of(rows, &Accuracy::top5), "Top-5 accuracy (%)")));
  std::vector<std::string> pictures;
  for (size_t t = 0; t < rows.front().results.size(); ++t)
    pictures.push_back(fmt::format("{} {}", printable((*rows.front().tests)[t].name),
                                   grouped(rows.front().results[t].pictures)));
  fmt::print("\n{}Pictures: {}.", scored_text(rows), fmt::join(pictures, ", "));
  if (const int64_t skipped = skipped_of(rows); skipped > 0)
    fmt::print(" {} skipped.", pictures_text(static_cast<size_t>(skipped)));
  fmt::print("\n");
}

void print_json(const std::vector<Row>& rows) {
  const auto results = results_of(rows, &Accuracy::top1);
  nlohmann::ordered_json json{{"skipped", skipped_of(rows)},
                              {"checkpoints", nlohmann::ordered_json::array()}};
  for (size_t r = 0; r < rows.size(); ++r) {
    const Row& row = rows[r];
    nlohmann::ordered_json each{{"name", printable(row.name, kMaxPath)},
                                {"path", printable(row.path, kMaxPath)},
                                {"classes", row.classes.size()},
                                {"scored", to_text(row.options.classes)},
                                {"tests", nlohmann::ordered_json::array()}};
    for (size_t t = 0; t < row.results.size(); ++t) {
      const Accuracy& result = row.results[t];
      each["tests"].push_back({{"name", printable((*row.tests)[t].name)},
                               {"id", (*row.tests)[t].id},
                               {"pictures", result.pictures},
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
  fmt::print("{}\n", json.dump(2));
}

void write(AtomicFile& file, const std::string& text) {
  file.write(text.data(), text.size());
  file.commit();
}

std::string csv_text(const std::vector<Row>& rows) {
  std::string text = "checkpoint,test,id,pictures,skipped,classes_scored,classes,top1,top5,loss\n";
  for (const Row& row : rows) {
    for (size_t t = 0; t < row.results.size(); ++t) {
      const auto& test = (*row.tests)[t];
      const Accuracy& result = row.results[t];
      text += fmt::format("{},{},{:d},{},{},{},{},{},{},{}\n", csv_field(row.name), csv_field(test.name),
                          test.id, result.pictures, result.skipped, result.scored_classes, row.classes.size(),
                          result.top1(), result.top5(), result.loss);
    }
  }
  return text;
}

std::string per_class_text(const std::vector<Row>& rows) {
  std::string text = "checkpoint,test,class,pictures,right,accuracy\n";
  for (const Row& row : rows) {
    for (size_t t = 0; t < row.results.size(); ++t) {
      const Accuracy& result = row.results[t];
      for (size_t k = 0; k < row.classes.size(); ++k) {
        if (result.class_pictures[k] == 0) continue;
        text += fmt::format(
            "{},{},{},{},{},{}\n", csv_field(row.name), csv_field((*row.tests)[t].name),
            csv_field(row.classes[k]), result.class_pictures[k], result.class_right[k],
            100 * static_cast<double>(result.class_right[k]) / static_cast<double>(result.class_pictures[k]));
      }
    }
  }
  return text;
}

int eval(const Arguments& args) {
  const Settings given = args.flags.given();
  const auto device = find_device(given.contains("device") ? given.at("device") : "auto");
  if (!args.csv.empty() && args.csv == args.per_class)
    throw UsageError("--csv and --per-class are the same file");
  auto rows = parse_rows(args);
  set_options(rows, args);
  std::unique_ptr<AtomicFile> csv, per_class;  // which fail now, not after the work
  if (!args.csv.empty()) csv = std::make_unique<AtomicFile>(args.csv);
  if (!args.per_class.empty()) per_class = std::make_unique<AtomicFile>(args.per_class);
  prepare(rows, args);

  size_t pictures = 0;
  for (const Row& row : rows) {
    for (const auto& test : *row.tests) pictures += static_cast<size_t>(test.subset.size());
  }
  {
    Progress progress("tpgm eval", pictures, pictures_text);
    std::set<std::string> reported;
    for (Row& row : rows) evaluate_row(row, args, device, progress, reported);
  }
  if (csv) write(*csv, csv_text(rows));
  if (per_class) write(*per_class, per_class_text(rows));
  args.json ? print_json(rows) : print_text(args, rows);
  return 0;
}

}  // namespace

Run configure_eval(CLI::App& app) {
  auto args = std::make_shared<Arguments>();
  app.add_option("CHECKPOINT", args->checkpoints,
                 "Run folders, whose recipes say what to test on, or checkpoints: files or folders of any "
                 "layout, or script:FILE; NAME=PATH names the row. Changes are relative to the first row")
      ->required();
  auto& flags = args->flags;
  flags.add(app, "--data-dir",
            "Data set, as for 'tpgm data check'; default: from the recipe of each run, for other checkpoints "
            "from the first run's");
  flags.add(app, "--test",
            "Domains to test on, or DOMAIN/SPLIT; NAME=PATH adds another data set, relative to --data-dir; "
            "default: the run's");
  flags.add(app, "--train", "Also test on the test split of this domain, or on what a run with it holds out");
  flags.add(app, "--id");
  flags.add(app, "--test-fraction");
  flags.add(app, "--classes");
  flags.add(app, "--class-list",
            "Classes of the head in order: a file with one folder name per line, or a folder of class "
            "folders; default: as the checkpoint says, else the data's");
  flags.add(app, "--model");
  app.add_option("--head", args->head, "Head made by 'tpgm zeroshot', for checkpoints without one");
  flags.add_pictures(app);
  flags.add(app, "-b,--batch-size", "Batch size");
  flags.add(app, "--device");
  flags.add(app, "--amp", "Use AMP: compute in bf16 where that is safe");
  app.add_flag("--top5", args->top5, "Also print top-5 accuracy, as a second table");
  app.add_option("--csv", args->csv, "CSV file to write: one line per checkpoint and test, with all digits");
  app.add_option("--per-class", args->per_class, "CSV file to write: one line per class");
  app.add_flag("--json", args->json, "Print JSON, with top-5 accuracy and loss");
  return [args] { return eval(*args); };
}

}  // namespace tpgm::tools
