// `tpgm reproduce`: a table of the paper, run from its recipes and compared with its numbers.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "tools/command.h"
#include "tools/command_line.h"
#include "tools/interrupt.h"
#include "tools/run_many.h"
#include "tools/setting_flags.h"
#include "tools/shared_files.h"
#include "tools/table_runs.h"

namespace tpgm::tools {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct ReproduceArguments {
  SettingFlags flags;
  std::vector<std::string> tables;
  std::string recipes, seeds, rows, choose, output, measure;
  double scale = 1;
  int64_t jobs = 1;
  bool dry_run = false, json = false;
};

// Makes one table; false if a run failed.
bool reproduce(TablePlan& plan, DataSizes& sizes, const fs::path& folder, Json* json) {
  const bool fine = plan.run(sizes);
  const auto comparison = plan.comparison();
  for (const auto& row : comparison.rows) {
    if (!row.error.empty())
      say_line("reproduce", fmt::format("{}: {} failed: {}", comparison.name, row.label, row.error));
  }
  const auto table = to_table(comparison);
  write_tables(comparison, folder, command_line());
  if (json != nullptr) {
    json->push_back(to_json(comparison));
  } else {
    fmt::print("{}\n{}\n", comparison.name, to_text(table));
    for (const auto& fact : comparison.facts) fmt::print("{}\n", fact);
    for (const auto& row : comparison.rows) {
      if (!row.chosen.empty()) fmt::print("{}: {}\n", row.label, row.chosen);
    }
    fmt::print("{}\n\n", (folder / "table.md").string());
  }
  return fine;
}

int run_all(const ReproduceArguments& args) {
  if (!args.measure.empty()) return measure("reproduce", args.measure);
  if (args.tables.empty()) throw UsageError("a table is needed: a name of 'tpgm list recipes', or a folder");
  if (args.output.empty() && !args.dry_run)
    throw UsageError("--output is required: the folder of all runs and tables");
  ReproduceOptions options;
  options.given = args.flags.given();
  options.scale = args.scale;
  Progress progress(Progress::Elsewhere::kNothing);
  options.jobs = job_options("reproduce", std::max<int64_t>(1, args.jobs), progress);
  options.output =
      fs::absolute(args.output.empty() ? "." : args.output).lexically_normal();  // "." for a plan
  from_text("--seeds", args.seeds, options.seeds);
  from_text("--rows", args.rows, options.rows);
  options.choose = chosen_rule(args.choose);
  interrupted();

  // All tables are planned before the first one runs.
  const auto folders = find_tables(args.tables, recipe_roots(args.recipes));
  std::vector<std::unique_ptr<TablePlan>> plans;
  for (const auto& folder : folders)
    plans.push_back(std::make_unique<TablePlan>(load_table(folder.path, folder.name), options));
  DataSizes sizes;
  for (size_t i = 0; i < plans.size(); ++i) {
    const auto text = plan_text("reproduce", folders[i].name, *plans[i], sizes);
    if (args.dry_run) {
      fmt::print("{}\n", text);
    } else {
      say(text);
    }
  }
  if (args.dry_run) return 0;
  bool fine = true;
  Json all = {{"tables", Json::array()}};
  for (size_t i = 0; i < plans.size(); ++i)
    fine =
        reproduce(*plans[i], sizes, options.output / folders[i].name, args.json ? &all["tables"] : nullptr) &&
        fine;
  if (args.json) fmt::print("{}\n", all.dump(2, ' ', false, Json::error_handler_t::replace));
  if (!fine) say("tpgm reproduce: some runs failed; the same command tries them again\n");
  return fine ? 0 : 1;
}

}  // namespace

Run configure_reproduce(CLI::App& app) {
  auto args = std::make_shared<ReproduceArguments>();
  app.add_option("TABLE", args->tables,
                 "Tables: names in 'tpgm list recipes', or folders with a paper.csv; a folder of such "
                 "folders stands for all of them");
  app.add_option("-o,--output", args->output,
                 "Output folder, with a folder for each table that has its runs, table.md, table.tex and "
                 "table.csv. The same command resumes where it was stopped");
  app.add_option("--rows", args->rows,
                 "Rows to run, by recipe or label: ft,tpgm; rows that they depend on run, too");
  app.add_option("--seeds", args->seeds,
                 "Random seeds for all rows that train, instead of the recipes': 0,1,2");
  add_choose(app, args->choose);
  app.add_option(
         "--scale", args->scale,
         "Scale down the plan to this fraction of the images, of the epochs (at least 1; also of warm-up, "
         "probing, patience and --decay-epochs) and of the radius steps at the end")
      ->check(CLI::Range(1e-9, 1.0));
  app.add_option("--recipes", args->recipes,
                 "Folder of tables; default: ./recipes, then the recipes installed with this program");
  app.add_option("-j,--jobs", args->jobs, "Number of parallel runs")->check(CLI::Range(1, 1024));
  app.add_flag("--dry-run", args->dry_run,
               "Print the plan: runs, steps and images of each row, and how long they would take here, "
               "estimated from a few real steps");
  add_measure(app, args->measure);
  app.add_flag("--json", args->json, "Print the tables as JSON");
  // Options per run are left to the recipes: other rows would refuse the options of one method.
  args->flags.add_all(app, keys_with(Trait::kPerRun));
  app.footer(
      "These options override the recipes'. --epochs does not apply to rows that do not train (epochs = 0). "
      "--scale does not change batch sizes, learning rates or options given on the command line.");
  return [args] { return run_all(*args); };
}

}  // namespace tpgm::tools
