// One run: started or resumed, with its result.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "tools/command.h"
#include "tools/command_line.h"
#include "tools/interrupt.h"
#include "tools/progress.h"
#include "tools/train.h"
#include "tpgm/base/numbers.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/study/jobs.h"
#include "tpgm/study/results.h"
#include "tpgm/study/run_folder.h"
#include "tpgm/train/recipe.h"
#include "tpgm/train/trainer.h"

namespace tpgm::tools {
namespace {

namespace fs = std::filesystem;

void print_result(const TrainOptions& options, const TrainResult& result, const fs::path& folder, bool json) {
  if (json) {
    auto all = to_json(result, options);
    all["run"] = folder.string();
    fmt::print("{}\n", all.dump(2, ' ', false, RunLog::Json::error_handler_t::replace));
    return;
  }
  ResultRow row{options.method, {}};
  for (const auto& test : result.tests) row.scores.push_back({test.name, test.id, {test.accuracy.top1()}});
  fmt::print("{}\n", to_text(results_table({row})));
  if (!std::isnan(result.selection))
    fmt::print("selection {:.2f} %, epoch {} of {}", result.selection, result.best_epoch, options.epochs);
  fmt::print(
      "{}{} in {}{}\n", std::isnan(result.selection) ? "" : "; ", counted(result.steps, "step"),
      duration_text(result.seconds),
      result.skipped_steps > 0 ? fmt::format("; {} skipped", counted(result.skipped_steps, "step")) : "");
  if (options.classes == ScoredClasses::kSubset)
    fmt::print("scored over the classes that occur in each test\n");
  fmt::print("{}\n", weights_of(folder).string());
}

}  // namespace

int train_one(const TrainOptions& options, bool resume, bool json) {
  if (options.output.empty()) throw UsageError("--output is required: the run folder to write");
  interrupted();
  const fs::path path = options.output;
  // Errors in the output folder are reported before the data are opened.
  std::optional<RunFolder> folder;
  if (resume) {
    folder.emplace(RunFolder::open(path));
  } else {
    RunFolder::check_new(path);
  }
  Setup setup = prepare_run(options);
  for (const auto& note : setup.notes) say(fmt::format("tpgm train: {}\n", note));
  for (const auto& note : setup.data.notes) say(fmt::format("tpgm train: {}\n", note));
  if (!folder)
    folder.emplace(
        RunFolder::create(path, setup.options, RunEnvironment::here(setup.device, command_line())));

  TrainResult result;
  {
    Progress status;
    TrainCallbacks callbacks;
    callbacks.stop = interrupted;
    callbacks.say = [&](const std::string& text) { status.say("tpgm train: " + text); };
    callbacks.progress = [&](const TrainProgress& at) {
      if (status.due()) status.show(fmt::format("{}, {} left", to_text(at), duration_text(at.seconds_left)));
    };
    callbacks.radii = [&](const RadiusProgress& at) {
      if (status.due()) status.show(fmt::format("{}, {} left", to_text(at), duration_text(at.seconds_left)));
    };
    Trainer trainer(setup, &*folder, callbacks);
    result = trainer.run();
  }
  if (!result.finished) {
    say(fmt::format("tpgm train: stopped at step {}; resume with: tpgm train --resume {}\n", result.steps,
                    path.string()));
    return 1;
  }
  print_result(setup.options, result, path, json);
  return 0;
}

int resume_run(const std::string& run, Settings settings, bool json) {
  for (const auto& [key, text] : settings) {
    if (!has_trait(key, Trait::kResumable))
      throw UsageError(
          fmt::format("--resume continues the run with its own options; --{} cannot change", key));
  }
  TORCH_CHECK(is_run(run), "--resume '", run, "' is not a run folder: it has no recipe.toml");
  settings.merge(load_recipe(recipe_of(run)).settings);
  settings["output"] = run;
  return train_one(make_options(settings), /*resume=*/true, json);
}

}  // namespace tpgm::tools
