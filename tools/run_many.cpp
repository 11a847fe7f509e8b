#include "tools/run_many.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "tools/command.h"
#include "tools/interrupt.h"
#include "tpgm/base/numbers.h"
#include "tpgm/study/sweep.h"

namespace tpgm::tools {
namespace {

// This program. Not its path, which may be another program by now if it was rebuilt.
Process train_process(const RunStart& start) {
  Process process{"/proc/self/exe", {"tpgm", "train"}};
  auto& arguments = process.arguments;
  arguments.insert(arguments.end(), {start.resume ? "--resume" : "--config",
                                     start.resume ? start.folder.string() : start.recipe.string()});
  for (const auto& [key, value] : start.settings) arguments.push_back(fmt::format("--{}={}", key, value));
  return process;
}

std::string text_of(const JobsProgress& at) {
  return fmt::format("{}/{} runs done, running {}{}", at.done, at.all, fmt::join(at.running, ", "),
                     at.seconds_left ? fmt::format(", {} left", duration_text(*at.seconds_left)) : "");
}

void print_plan(const std::vector<Job>& jobs) {
  DataSizes sizes;
  Cost all;
  for (const auto& job : jobs) {
    const auto options = make_options(job.settings);
    const Cost cost = cost_of(options, sizes.of(options));
    fmt::print("{:<40} {:>9} steps\n", job.name, grouped(cost.steps));
    all += cost;
  }
  fmt::print("{} runs, {} steps, {} images trained on\n", jobs.size(), grouped(all.steps),
             grouped(all.training));
}

void print(const SweepResult& result, const std::string& folder) {
  const auto table = result.table();
  if (!table) return;
  fmt::print("{}\n", to_text(*table));
  for (const auto& row : result.rows) fmt::print("{}\n", row.note());
  fmt::print("{}/table.md\n", folder);
}

}  // namespace

JobOptions job_options(const std::string& command, int64_t side_by_side, Progress& progress) {
  JobOptions options;
  options.side_by_side = side_by_side;
  options.process = train_process;
  options.log_prefix = "tpgm train: ";
  options.callbacks.say = [command, &progress](const std::string& text) {
    progress.say(fmt::format("tpgm {}: {}", command, text));
  };
  options.callbacks.progress = [&progress](const JobsProgress& at) {
    if (progress.due()) progress.show(text_of(at));
  };
  options.callbacks.stop = interrupted;
  return options;
}

void add_choose(CLI::App& app, std::string& choose) {
  app.add_option(
         "--choose", choose,
         "How the best of a sweep is chosen on selection data: best, the most accurate; or one-se, of "
         "those within one standard error of it the one nearest to the pre-trained weights (methods with "
         "an anchor)")
      ->type_name(type_name<Choose>());
}

std::optional<Choose> chosen_rule(const std::string& choose) {
  if (choose.empty()) return std::nullopt;
  Choose rule = Choose::kBest;
  from_text("--choose", choose, rule);
  return rule;
}

int run_sweep_command(const Recipe& recipe, int64_t side_by_side, bool dry_run, bool json) {
  const auto jobs = expand(recipe);
  if (dry_run) {
    print_plan(jobs);
    return 0;
  }
  interrupted();
  DataSizes sizes;
  check_choosable(jobs, sizes);
  SweepResult result;
  {
    Progress progress(Progress::Elsewhere::kNothing);
    result =
        run_sweep(jobs, job_options("train", side_by_side, progress), recipe.choose.value_or(Choose::kBest));
  }
  const auto folder = std::filesystem::path(jobs.front().settings.at("output")).parent_path().string();
  if (json) {
    fmt::print("{}\n", to_json(result).dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    print(result, folder);
  }
  if (result.failed() == 0) return 0;
  say_line("train", fmt::format("{} of {} runs failed; the same command tries them again", result.failed(),
                                result.runs.size()));
  for (const auto& run : result.runs) {
    if (!run.result) say(fmt::format("    {}: see {}.log\n", run.job.name, run.job.settings.at("output")));
  }
  return 1;
}

}  // namespace tpgm::tools
