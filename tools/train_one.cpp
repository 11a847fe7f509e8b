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
#include "tpgm/base/shell.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/io/file.h"
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

int train_one(const TrainOptions& options, Start start, bool json) {
  if (options.output.empty()) throw UsageError("--output is required: the run folder to write");
  interrupted();
  const fs::path path = options.output;
  // Errors in the output folder are reported before the data are opened.
  std::optional<RunFolder> folder;
  bool starts_over = false;
  const bool overwrite = start == Start::kOverwrite;
  if (start == Start::kResume) {
    folder.emplace(RunFolder::open(path));
  } else {
    starts_over = RunFolder::check_new(path, overwrite) && !overwrite;
    check_new_run(options);
  }
  Setup setup = prepare_run(options, start == Start::kResume ? DataUse::kOlderRun : DataUse::kNewRun);
  for (const auto& note : setup.notes) say_line("train", note);
  for (const auto& note : setup.data.notes) say_line("train", note);
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
    try {
      if (!folder)
        folder.emplace(RunFolder::create(path, setup.options,
                                         RunEnvironment::here(setup.device, command_line()), overwrite));
      if (starts_over)
        say_line("train", fmt::format("the run in '{}' ended before it saved anything; it starts over",
                                      path.string()));
      Trainer trainer(setup, &*folder, callbacks);
      result = trainer.run();
    } catch (const WriteError& error) {
      const bool saved = fs::exists(state_of(path));
      throw std::runtime_error(
          fmt::format("{}. {}: {}", error_text(error),
                      saved ? "What the run saved is intact; make room and resume it with"
                            : "The run had not saved anything yet; make room and begin it again with",
                      folder ? "tpgm train --resume " + shell_word(path.string()) : command_line()));
    }
  }
  if (!result.finished) {
    say_line("train", fmt::format("stopped at step {}; resume with: tpgm train --resume {}", result.steps,
                                  path.string()));
    return 1;
  }
  print_result(setup.options, result, path, json);
  return 0;
}

namespace {

// The result of a run that is finished; what it left behind if it was killed at the very end is removed.
int finished_run(const fs::path& run, bool json) {
  RunFolder::clean_up(run);
  const auto result = read_result(run);
  say_line("train", fmt::format("the run in '{}' is finished; there is nothing to resume", run.string()));
  if (json) {
    fmt::print("{}", result->json);
    return 0;
  }
  ResultRow row{make_options(load_recipe(recipe_of(run)).settings).method, {}};
  for (const auto& test : result->tests) row.scores.push_back({test.name, test.id, {test.top1}});
  fmt::print("{}\n{}\n", to_text(results_table({row})), weights_of(run).string());
  return 0;
}

}  // namespace

int resume_run(const std::string& run, Settings settings, bool json) {
  for (const auto& [key, text] : settings) {
    if (!has_trait(key, Trait::kResumable))
      throw UsageError(
          fmt::format("--resume continues the run with its own options; --{} cannot change", key));
  }
  const auto environment = is_run(run) ? std::nullopt : read_environment(run);
  TORCH_CHECK(
      is_run(run), "--resume '", run, "' is not a run folder: it has no recipe.toml",
      environment && !environment->command.empty()
          ? "; the run was killed while it was being made, begin it again with: " + environment->command
          : "");
  if (is_finished(run)) return finished_run(run, json);
  settings.merge(load_recipe(recipe_of(run)).settings);
  settings["output"] = run;
  settings["model"] = model_of_run(settings["model"], run);
  return train_one(make_options(settings), Start::kResume, json);
}

}  // namespace tpgm::tools
