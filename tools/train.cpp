// `tpgm train`: fine-tune with any model, method and data.
#include "tools/train.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "tools/command.h"
#include "tools/run_many.h"
#include "tools/setting_flags.h"
#include "tools/shared_files.h"
#include "tpgm/train/recipe.h"

namespace tpgm::tools {

Run configure_train(CLI::App& app) {
  struct Arguments {
    SettingFlags flags;
    std::string config, resume, choose;
    std::vector<std::string> sweep;
    std::string seeds;
    int64_t jobs = 0;
    bool overwrite = false, dry_run = false, json = false;
  };
  auto args = std::make_shared<Arguments>();
  app.add_option("-c,--config", args->config,
                 "Recipe: TOML file whose keys are these flags; flags override it");
  app.add_option("--resume", args->resume, "Resume the run in this folder, bit-exactly");
  app.add_flag("--overwrite", args->overwrite, "Replace the run in the output folder, finished or not");
  app.add_flag("--dry-run", args->dry_run,
               "Print the effective recipe, the sizes of splits, the constrained tensors, steps and memory, "
               "without training");
  app.add_option("--sweep", args->sweep,
                 "KEY=VALUE,VALUE...: one run per value; may be repeated: one run per combination. For each "
                 "method, the best on selection data is tested");
  app.add_option("--seeds", args->seeds,
                 "Random seeds: 0,1,2; every run is repeated with each, and results are mean (std)");
  add_choose(app, args->choose);
  app.add_option(
         "-j,--jobs", args->jobs,
         "Number of parallel runs of a sweep (0: one). Without a sweep: data loading threads, as --workers")
      ->check(CLI::Range(0, 1024));
  app.add_flag("--json", args->json, "Print the result as JSON");
  args->flags.add_all(app);
  return [args] {
    auto settings = args->flags.given();
    if (!args->resume.empty()) {
      if (!args->config.empty() || !args->sweep.empty() || !args->seeds.empty() || args->dry_run ||
          args->overwrite || !args->choose.empty())
        throw UsageError("--resume takes no --config, --sweep, --seeds, --choose, --dry-run or --overwrite");
      if (args->jobs > 0) settings["workers"] = std::to_string(args->jobs);
      return resume_run(args->resume, settings, args->json);
    }
    Recipe recipe;
    if (!args->config.empty()) recipe = load_recipe(find_recipe(args->config));
    override_with(recipe, settings);
    if (!args->sweep.empty()) recipe.sweep = args->sweep;
    if (!args->seeds.empty()) from_text("--seeds", args->seeds, recipe.seeds);
    if (auto choose = chosen_rule(args->choose)) recipe.choose = choose;
    if (!recipe.take.empty())
      throw UsageError("the recipe takes '" + recipe.take.front() +
                       "' from another row of its table: run it with tpgm reproduce");
    const bool many = !recipe.sweep.empty() || !recipe.seeds.empty();
    if (!args->choose.empty() && recipe.sweep.empty())
      throw UsageError("--choose chooses among the runs of a sweep; give one with --sweep");
    if (!many && args->jobs > 0) recipe.settings["workers"] = std::to_string(args->jobs);
    if (many && args->overwrite)
      throw UsageError("--overwrite replaces one run; a sweep makes what is missing in its folder");
    if (many) return run_sweep_command(recipe, std::max<int64_t>(1, args->jobs), args->dry_run, args->json);
    const auto options = make_options(recipe.settings);
    if (!args->dry_run)
      return train_one(options, args->overwrite ? Start::kOverwrite : Start::kNew, args->json);
    print_plan(options);
    return 0;
  };
}

}  // namespace tpgm::tools
