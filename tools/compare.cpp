// `tpgm compare`: the methods side by side, on the user's own images and checkpoint.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "tools/command.h"
#include "tools/interrupt.h"
#include "tools/run_many.h"
#include "tools/setting_flags.h"
#include "tools/shared_files.h"
#include "tools/table_runs.h"
#include "tpgm/base/names.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/models/named_models.h"
#include "tpgm/train/data_setup.h"
#include "tpgm/train/model_setup.h"

namespace tpgm::tools {
namespace {

namespace fs = std::filesystem;

struct CompareArguments {
  SettingFlags flags;
  std::string methods, output = "compare", title, measure;
  int64_t seeds = 1, jobs = 1;
  bool dry_run = false;
};

bool contains(const std::vector<std::string>& all, const std::string& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

// True if the runs begin with random weights in the head.
bool has_fresh_head(const TrainOptions& options) { return options.head.is(HeadSource::Kind::kFresh); }

// What is made without being asked for. A model with a random head says nothing before it is trained; linear
// probing says little where the head is made from text.
bool is_usual(const std::string& row, const TrainOptions& options) {
  if (row == "pretrained") return !has_fresh_head(options);
  if (row == "lp") return has_fresh_head(options) || options.head.is(HeadSource::Kind::kCheckpoint);
  // Of one epoch, none is left for probing. A head that is text in every step cannot be probed.
  if (row == "lp-ft") return options.epochs > 1 && !options.head.is(HeadSource::Kind::kText);
  return true;
}

// The rows to make, by the recipes in the table.
std::vector<std::string> rows_of(const PaperTable& table, const std::string& wanted,
                                 const TrainOptions& options) {
  std::vector<std::string> all, asked, rows;
  for (const auto& row : table.rows) {
    const auto recipe = row.variant.substr(0, row.variant.find(':'));
    if (!contains(all, recipe)) all.push_back(recipe);
  }
  from_text("--methods", wanted, asked);
  for (const auto& each : asked) {
    if (options.head.is(HeadSource::Kind::kText) && (each == "lp" || each == "lp-ft"))
      throw UsageError(fmt::format("--methods {}: --head text has no head of its own to probe", each));
    if (!contains(all, each))
      throw UsageError(fmt::format("--methods: no '{}'{}; there are {}", printable(each),
                                   did_you_mean(each, all), fmt::join(all, ", ")));
  }
  for (const auto& recipe : all) {
    const bool always = recipe == "ft" || (recipe == "pretrained" && is_usual(recipe, options));
    if (always || (asked.empty() ? is_usual(recipe, options) : contains(asked, recipe)))
      rows.push_back(recipe);
  }
  return rows;
}

std::string last_name(const std::string& path) {
  const auto whole = fs::absolute(path).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

int compare(const CompareArguments& args) {
  if (!args.measure.empty()) return measure("compare", args.measure);
  auto given = args.flags.given();
  auto shared = make_options(given);
  // A script has its weights in its own file.
  const bool has_weights = !shared.checkpoint.empty() || is_script(shared.model);
  for (const auto& [key, is_given] :
       {std::pair{"data-dir", !shared.data_dir.empty()}, {"checkpoint", has_weights}}) {
    if (!is_given)
      throw UsageError(
          fmt::format("--{} is needed: tpgm compare --data-dir photos --checkpoint my-clip", key));
  }
  if (shared.epochs == 0)
    throw UsageError("--epochs 0 leaves nothing to compare; 'tpgm eval' scores a model");

  std::vector<std::string> notes;
  shared.head = decided_head(shared, open_dataset(shared).classes(), notes);
  for (const auto& note : notes) say(fmt::format("tpgm compare: {}\n", note));
  given["head"] = to_text(shared.head);

  Progress progress(Progress::Elsewhere::kNothing);
  ReproduceOptions options;
  options.given = given;
  options.seeds = first_seeds(args.seeds);
  options.jobs = job_options("compare", args.jobs, progress);
  options.output = fs::absolute(args.output).lexically_normal();
  const auto table = load_table(find_table("compare"), "runs");
  options.rows = rows_of(table, args.methods, shared);
  if (!contains(options.rows, "pretrained"))
    say("tpgm compare: the head is fresh, so there is no row of the model before fine-tuning\n");
  interrupted();

  TablePlan plan(table, options);
  DataSizes sizes;
  const auto text = plan_text("compare", "row", plan, sizes);
  if (args.dry_run) {
    fmt::print("{}", text);
    return 0;
  }
  say(text);
  const auto weights = shared.checkpoint.empty() ? parse_model(shared.model).file : shared.checkpoint;
  const auto title = args.title.empty()
                         ? fmt::format("{} on {}", last_name(weights), last_name(shared.data_dir))
                         : args.title;
  const bool fine = run_and_report("compare", plan, sizes, options.output, title);
  if (!fine)
    say("tpgm compare: some runs failed, and are missing above; the same command tries them again\n");
  return fine ? 0 : 1;
}

}  // namespace

Run configure_compare(CLI::App& app) {
  auto args = std::make_shared<CompareArguments>();
  app.add_option("-o,--output", args->output,
                 "Output folder for the runs and report.html. Finished runs in it are not repeated, and "
                 "interrupted ones are resumed");
  app.add_option(
      "--methods", args->methods,
      "Rows to make: lp, l2-sp, lp-ft, wise, ftp, spd, tpgm; ft and the model before fine-tuning "
      "(pretrained) are always among them. Default: all, lp only with a fresh head or the checkpoint's own");
  app.add_option("--seeds", args->seeds, "Number of seeds per method; with several the table has mean (std)")
      ->check(CLI::Range(1, 100));
  app.add_option("-j,--jobs", args->jobs, "Number of parallel runs")->check(CLI::Range(1, 1024));
  app.add_flag("--dry-run", args->dry_run,
               "Print the plan: runs, steps and images of each row, and how long they would take here, "
               "estimated from a few real steps");
  app.add_option("--title", args->title,
                 "Title of the page; default: names of the checkpoint or script and the data");
  add_measure(app, args->measure);
  // What differs between the rows is left to their recipes.
  args->flags.add_all(app, keys_with(Trait::kPerRun));
  return [args] { return compare(*args); };
}

}  // namespace tpgm::tools
