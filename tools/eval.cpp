// `tpgm eval`: the accuracy of checkpoints in-distribution and out-of-distribution, side by side.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "tools/data.h"
#include "tools/progress.h"
#include "tools/setting_flags.h"
#include "tpgm/base/numbers.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/core/device.h"
#include "tpgm/io/file.h"
#include "tpgm/study/evaluate_runs.h"

namespace tpgm::tools {
namespace {

struct EvalArguments {
  std::vector<std::string> checkpoints;
  SettingFlags flags;
  std::string head, csv, per_class;
  bool top5 = false, json = false, fresh = false;
};

// Whether the results of runs answer it: nothing is asked for that they lack or that would change them.
bool asks_for_results(const EvalArguments& args, Settings given) {
  given.erase("batch-size");
  return !args.fresh && !args.top5 && !args.json && args.csv.empty() && args.per_class.empty() &&
         args.head.empty() && without(given, Trait::kMachine).empty();
}

void check_complete(const EvaluatedRow& row, const Settings& given) {
  const auto missing = missing_option(row);
  if (missing == "test" && given.contains("data-dir"))
    throw UsageError("--test is required: with --data-dir, recipes do not say what to test on");
  if (missing == "test")
    throw UsageError(fmt::format(
        "--test is required: '{}' is not a run folder, whose recipe would say what to test on", row.path));
  if (!missing.empty()) throw UsageError("--data-dir is required, unless every --test is NAME=PATH");
}

void print(const EvalArguments& args, const std::vector<EvaluatedRow>& rows) {
  fmt::print("{}", to_text(results_table(results_of(rows, &Accuracy::top1), "Top-1 accuracy (%)")));
  if (args.top5)
    fmt::print("\n{}", to_text(results_table(results_of(rows, &Accuracy::top5), "Top-5 accuracy (%)")));
  std::vector<std::string> images;
  for (size_t t = 0; t < rows.front().results.size(); ++t)
    images.push_back(fmt::format("{} {}", printable((*rows.front().tests)[t].name),
                                 grouped(rows.front().results[t].images)));
  fmt::print("\n{}Images: {}.", scored_text(rows), fmt::join(images, ", "));
  if (const int64_t skipped = skipped_of(rows); skipped > 0)
    fmt::print(" {} skipped.", images_text(static_cast<size_t>(skipped)));
  fmt::print("\n");
}

void write(AtomicFile& file, const std::string& text) {
  file.write(text.data(), text.size());
  file.commit();
}

int eval(const EvalArguments& args) {
  const Settings given = args.flags.given();
  const auto device = find_device(given.contains("device") ? given.at("device") : "auto");
  if (!args.csv.empty() && args.csv == args.per_class)
    throw UsageError("--csv and --per-class are the same file");
  const auto note = [](const std::string& text) { say_line("eval", text); };
  auto rows = rows_to_evaluate(args.checkpoints, given, note);
  if (asks_for_results(args, given) && take_results(rows)) {
    note(fmt::format("from {}, which {} about these weights; --fresh evaluates again",
                     rows.size() == 1 ? "the run's result.json" : "the runs' result.json",
                     rows.size() == 1 ? "is" : "are"));
    print(args, rows);
    return 0;
  }
  for (const auto& row : rows) check_complete(row, given);
  std::unique_ptr<AtomicFile> csv, per_class;  // opened first, to fail before the work
  if (!args.csv.empty()) csv = std::make_unique<AtomicFile>(args.csv);
  if (!args.per_class.empty()) per_class = std::make_unique<AtomicFile>(args.per_class);
  open_tests(rows, args.head, note);

  size_t images = 0;
  for (const auto& row : rows) {
    for (const auto& test : *row.tests) images += static_cast<size_t>(test.subset.size());
  }
  {
    Progress progress("tpgm eval", images, images_text);
    evaluate(rows, args.head, device, progress.callback(), note);
  }
  if (csv) write(*csv, to_csv(rows));
  if (per_class) write(*per_class, per_class_csv(rows));
  args.json ? (void)fmt::print("{}\n", to_json(rows).dump(2)) : print(args, rows);
  return 0;
}

}  // namespace

Run configure_eval(CLI::App& app) {
  auto args = std::make_shared<EvalArguments>();
  app.add_option(
         "CHECKPOINT", args->checkpoints,
         "Run folders, whose recipes name the data, or checkpoints: files or folders of any layout, or "
         "script:FILE; NAME=PATH names the row. Differences are relative to the first")
      ->required();
  auto& flags = args->flags;
  flags.add(app, "--data-dir",
            "Data set, as for 'tpgm data check'; default: each run's own, and for other checkpoints the "
            "first run's");
  flags.add(app, "--test",
            "Domains to test on, or DOMAIN/SPLIT; NAME=PATH adds another data set, relative to the working "
            "folder or else to --data-dir; default: the run's own");
  flags.add(app, "--train",
            "Training domains, to test also on their test splits, or on the images that a run on them holds "
            "out for testing");
  flags.add(app, "--id");
  flags.add(app, "--test-fraction");
  flags.add(app, "--classes");
  flags.add(
      app, "--class-list",
      "Classes in the order of the head: a file with one per line, or a folder of class folders; default: "
      "the checkpoint's own, or the data's");
  flags.add(app, "--model");
  app.add_option("--head", args->head, "Head for checkpoints that have none: a file of 'tpgm zeroshot'");
  flags.add_images(app);
  flags.add(app, "-b,--batch-size", "Batch size");
  flags.add(app, "--device");
  flags.add(app, "--amp", "Use AMP: compute in bf16 where that is safe; weights stay fp32");
  app.add_flag("--top5", args->top5, "Print a second table, with top-5 accuracy");
  app.add_option("--csv", args->csv, "CSV file to write: a row for each checkpoint and test, unrounded");
  app.add_option("--per-class", args->per_class, "CSV file to write: a row for each class");
  app.add_flag("--json", args->json, "Print JSON, with top-5 accuracy and loss");
  app.add_flag(
      "--fresh", args->fresh,
      "Evaluate also where the result.json of finished runs has the accuracies, for the weights that "
      "they have");
  return [args] { return eval(*args); };
}

}  // namespace tpgm::tools
