// `tpgm train`: fine-tune with any model, method and data.
#include "tools/train.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <memory>

#include "tools/command.h"
#include "tools/results.h"
#include "tools/setting_flags.h"
#include "tools/status_line.h"
#include "tools/sweep.h"
#include "tools/text.h"
#include "tpgm/base/names.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/base/version.h"
#include "tpgm/train/memory.h"
#include "tpgm/train/run_folder.h"
#include "tpgm/train/trainer.h"

namespace tpgm::tools {
namespace {

namespace fs = std::filesystem;

volatile sig_atomic_t signalled = 0;

// The first is for the loop to see, the second for the impatient.
void take_signal(int number) {
  if (signalled != 0) {
    ::signal(number, SIG_DFL);
    ::raise(number);
  }
  signalled = 1;
}

std::string command_line() {
  std::ifstream stream("/proc/self/cmdline", std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  std::replace(text.begin(), text.end(), '\0', ' ');
  return printable(text, 4096);
}

RunFolder::Json environment(const Setup& setup) {
  char host[256] = "", when[64] = "";
  ::gethostname(host, sizeof host - 1);
  const std::time_t now = std::time(nullptr);
  std::strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return {{"command", command_line()},
          {"version", version()},
          {"libtorch", TORCH_VERSION},
          {"device", setup.device.str()},
          {"threads", at::get_num_threads()},
          {"host", host},
          {"started", when}};
}

void print_result(const TrainOptions& options, const TrainResult& result, const fs::path& folder, bool json) {
  if (json) {
    auto all = to_json(result, options);
    all["run"] = folder.string();
    fmt::print("{}\n", all.dump(2, ' ', false, RunFolder::Json::error_handler_t::replace));
    return;
  }
  ResultRow row{options.method, {}};
  for (const auto& test : result.tests) row.scores.push_back({test.name, test.id, {test.accuracy.top1()}});
  fmt::print("{}\n", to_text(results_table({row})));
  if (!std::isnan(result.selection))
    fmt::print("selection {:.2f} %, epoch {} of {}", result.selection, result.best_epoch, options.epochs);
  fmt::print("{}{} steps in {}{}\n", std::isnan(result.selection) ? "" : "; ", result.steps,
             duration_text(result.seconds),
             result.skipped_steps > 0 ? fmt::format("; {} steps skipped", result.skipped_steps) : "");
  if (options.classes == "subset") fmt::print("scored over the classes that occur in each test\n");
  fmt::print("{}\n", (folder / "best.safetensors").string());
}

std::string names_text(const std::vector<std::string>& names) {
  std::string text = fmt::format("{}", names.size());
  for (size_t i = 0; i < names.size(); ++i)
    text += fmt::format("{}{}", i % 4 == 0 ? "\n#     " : "  ", names[i]);
  return text;
}

}  // namespace

bool interrupted() {
  static const bool installed = [] {
    struct sigaction action {};
    action.sa_handler = take_signal;
    ::sigaction(SIGINT, &action, nullptr);
    ::sigaction(SIGTERM, &action, nullptr);
    return true;
  }();
  return installed && signalled != 0;
}

void print_plan(const TrainOptions& options) {
  Setup setup = prepare(options);
  for (const auto& note : setup.notes) say(fmt::format("tpgm train: {}\n", note));
  const auto& o = setup.options;
  fmt::print("{}\n# Data\n", to_toml(o));
  for (const auto& note : setup.data.notes) fmt::print("# {}\n", with_flags(note));

  const auto constrained = setup.method->constrained();
  std::vector<std::string> excluded;
  for (const auto& item : setup.model->named_parameters()) {
    if (std::find(constrained.begin(), constrained.end(), item.key()) == constrained.end())
      excluded.push_back(item.key());
  }
  if (!constrained.empty()) fmt::print("#\n# constrained tensors: {}\n", names_text(constrained));
  fmt::print("# {}: {}\n",
             constrained.empty() ? "unconstrained tensors (the method has no anchor)" : "excluded tensors",
             names_text(excluded));

  const int64_t per_epoch = setup.data.train.size() / o.batch_size / o.grad_accum_steps;
  fmt::print("#\n# steps: {} ({} epochs of {}), {} pictures each\n", grouped(o.epochs * per_epoch), o.epochs,
             per_epoch, o.batch_size * o.grad_accum_steps);
  const auto memory = estimate_memory(setup);
  fmt::print(
      "# memory, estimated: {} (weights {}, gradients {}, optimizer {}, anchor {}, average {}, activations "
      "{})\n",
      bytes_text(static_cast<size_t>(memory.total())), bytes_text(static_cast<size_t>(memory.weights)),
      bytes_text(static_cast<size_t>(memory.gradients)), bytes_text(static_cast<size_t>(memory.optimizer)),
      bytes_text(static_cast<size_t>(memory.anchor)), bytes_text(static_cast<size_t>(memory.ema)),
      bytes_text(static_cast<size_t>(memory.activations)));
}

int train_one(const TrainOptions& options, bool resume, bool json) {
  if (options.output.empty()) throw UsageError("--output is required: the run folder to write");
  interrupted();
  const fs::path path = options.output;
  // What can be known to be wrong is said before the data are opened.
  std::optional<RunFolder> folder;
  if (resume) {
    folder.emplace(RunFolder::open(path));
  } else {
    RunFolder::check_new(path);
  }
  Setup setup = prepare(options);
  for (const auto& note : setup.notes) say(fmt::format("tpgm train: {}\n", note));
  for (const auto& note : setup.data.notes) say(fmt::format("tpgm train: {}\n", note));
  if (!folder) folder.emplace(RunFolder::create(path, setup.options, environment(setup)));

  TrainResult result;
  {
    StatusLine status;
    TrainCallbacks callbacks;
    callbacks.stop = interrupted;
    callbacks.say = [&](const std::string& text) { status.say("tpgm train: " + text); };
    callbacks.progress = [&](const TrainProgress& at) {
      if (!status.due()) return;
      status.show(
          fmt::format("{} epoch {}/{}, step {}/{}, {:.0f} images/s, loss {:.4f}, accuracy {:.2f} %, {} left",
                      at.phase, at.epoch, at.epochs, at.step, at.steps, at.images_s, at.loss, at.accuracy,
                      duration_text(at.seconds_left)));
    };
    Trainer trainer(setup, &*folder, callbacks);
    result = trainer.run();
  }
  if (!result.finished) {
    say(fmt::format("tpgm train: stopped at step {}; go on with: tpgm train --resume {}\n", result.steps,
                    path.string()));
    return 1;
  }
  print_result(setup.options, result, path, json);
  return 0;
}

int resume_run(const std::string& run, Settings settings, bool json) {
  for (const auto& [key, text] : settings) {
    if (std::find(std::begin(kHarmless), std::end(kHarmless), key) == std::end(kHarmless))
      throw UsageError(fmt::format("--resume goes on as the run was begun; --{} cannot change", key));
  }
  TORCH_CHECK(is_run(run), "[train] --resume '", run, "' is no run folder: it has no recipe.toml");
  settings.merge(load_recipe(fs::path(run) / "recipe.toml").settings);
  settings["output"] = run;
  return train_one(make_options(settings), /*resume=*/true, json);
}

Run configure_train(CLI::App& app) {
  struct Arguments {
    SettingFlags flags;
    std::string config, resume;
    std::vector<std::string> sweep;
    std::string seeds;
    int64_t jobs = 0;
    bool dry_run = false, json = false;
  };
  auto args = std::make_shared<Arguments>();
  app.add_option("-c,--config", args->config,
                 "Recipe: TOML file whose keys are these flags; flags override it");
  app.add_option("--resume", args->resume, "Resume the run in this folder, bit-exactly");
  app.add_flag("--dry-run", args->dry_run,
               "Print the effective recipe, the sizes of splits, the constrained tensors, steps and memory, "
               "without training");
  app.add_option("--sweep", args->sweep,
                 "KEY=VALUE,VALUE...: one run per value; may be repeated: one run per combination. For each "
                 "method, the best on selection data is tested");
  app.add_option("--seeds", args->seeds,
                 "Random seeds: 0,1,2; every run is repeated with each, and results are mean (std)");
  app.add_option("-j,--jobs", args->jobs,
                 "Number of parallel runs of a sweep (0: one); without a sweep, the same as --workers")
      ->check(CLI::Range(0, 1024));
  app.add_flag("--json", args->json, "Print the result as JSON");
  args->flags.add_all(app);
  return [args] {
    auto settings = args->flags.given();
    if (!args->resume.empty()) {
      if (!args->config.empty() || !args->sweep.empty() || !args->seeds.empty() || args->dry_run)
        throw UsageError("--resume takes no --config, --sweep, --seeds or --dry-run");
      if (args->jobs > 0) settings["workers"] = std::to_string(args->jobs);
      return resume_run(args->resume, settings, args->json);
    }
    Recipe recipe;
    if (!args->config.empty()) recipe = load_recipe(args->config);
    override_with(recipe, settings);
    if (!args->sweep.empty()) recipe.sweep = args->sweep;
    if (!args->seeds.empty()) from_text("--seeds", args->seeds, recipe.seeds);
    if (!recipe.take.empty())
      throw UsageError("the recipe takes '" + recipe.take.front() +
                       "' from another row of its table: run it with tpgm reproduce");
    const bool many = !recipe.sweep.empty() || !recipe.seeds.empty();
    if (!many && args->jobs > 0) recipe.settings["workers"] = std::to_string(args->jobs);
    if (many) return run_sweep(recipe, std::max<int64_t>(1, args->jobs), args->dry_run, args->json);
    const auto options = make_options(recipe.settings);
    if (!args->dry_run) return train_one(options, /*resume=*/false, args->json);
    print_plan(options);
    return 0;
  };
}

}  // namespace tpgm::tools
