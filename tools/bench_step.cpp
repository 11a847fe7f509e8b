// `tpgm bench step`: training steps and an inference batch, compared with PyTorch.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/step.h"
#include "benchmarks/step_table.h"
#include "benchmarks/train_loop.h"
#include "tools/bench.h"
#include "tools/command.h"
#include "tpgm/core/device.h"
#include "tpgm/methods/registry.h"
#include "tpgm/models/families.h"
#include "tpgm/models/named_models.h"

namespace tpgm::tools {
namespace {

struct StepArguments {
  std::string model = "resnet50";
  std::string device = "auto";
  int64_t batch_size = 16;
  int64_t classes = 1000;
  std::optional<bool> amp, compile, channels_last;
  bool cuda_graph = true;
  std::optional<int64_t> warmup, repeats;
  std::string python;
  std::string rival;
  bool compare = false;
  std::vector<std::string> methods = {"l2-sp", "mars-sp", "spd", "ftp", "tpgm"};
  std::string profile;
  bool json = false;
};

// The Python modules that the baseline needs.
std::vector<std::string> modules_for(const Family& family) {
  std::vector<std::string> modules = {"torch", "safetensors"};
  if (const auto& library = *family.library) modules.push_back(library->module);
  return modules;
}

benchmarks::StepOptions options_of(const StepArguments& args) {
  benchmarks::StepOptions options;
  options.model = parse_model(args.model);
  options.device = at::Device(args.device);
  options.batch_size = args.batch_size;
  options.classes = args.classes;
  // The usual choice on a GPU, in C++ and in Python.
  options.amp = args.amp.value_or(args.compare && args.device == "cuda");
  options.compile = args.compile.value_or(args.compare);
  options.cuda_graph = args.cuda_graph;
  options.channels_last = args.channels_last;
  options.warmup = args.warmup;
  options.repeats = args.repeats;
  options.python = args.python;
  options.rival = find_rival(args.python, args.rival, "step.py", modules_for(*options.model.family));
  options.say = [](const std::string& text) { say_line("bench step", text); };
  options.folder = temporary_folder();
  return options;
}

int measure_one(const benchmarks::StepRun& run, bool json) {
  const auto& options = run.options;
  const auto report = with_progress("tpgm bench step", options, benchmarks::measure_step);
  const auto loop = with_progress("tpgm bench step, the loop", options, [&](const auto& shown) {
    return benchmarks::measure_loop(shown, report.setting);
  });
  if (json) {
    fmt::print("{}\n", to_json(run, report, loop).dump(2));
  } else {
    fmt::print("{}", to_text(run, report, loop));
  }
  return 0;
}

int measure_all(const benchmarks::StepRun& run, const std::vector<std::string>& methods, bool json) {
  const auto& options = run.options;
  const auto report = with_progress("tpgm bench step", options, [&](const benchmarks::StepOptions& watched) {
    return benchmarks::measure_methods(watched, methods);
  });
  if (json) {
    fmt::print("{}\n", to_json(run, report).dump(2));
  } else {
    fmt::print("{}", to_text(run, report));
  }
  const auto failed = [](const benchmarks::StepTimes& times) { return !times.error.empty(); };
  return std::any_of(report.rivals.begin(), report.rivals.end(), failed) ||
                 std::any_of(report.ours.begin(), report.ours.end(),
                             [&](const benchmarks::MethodRow& row) { return failed(row.times); })
             ? 1
             : 0;
}

int bench_step(const StepArguments& args, bool methods_given) {
  if (args.compile.value_or(false) && args.python.empty())
    throw UsageError("--compile applies to the baseline: give --python PYTHON");
  if (methods_given && !args.compare) throw UsageError("--methods needs --compare");
  if (!args.profile.empty() && (args.compare || args.json))
    throw UsageError(
        "--profile runs one step for a profiler; it cannot be combined with --compare or --json");
  const auto options = options_of(args);
  if (!args.profile.empty()) {
    const auto setting = benchmarks::profile_step(options, args.profile);
    fmt::print("{}: a step of {} after {}\n", args.model, args.profile, setting.warmup);
    return 0;
  }
  const benchmarks::StepRun run{args.model, options, args.device};
  return args.compare ? measure_all(run, args.methods, args.json) : measure_one(run, args.json);
}

// A flag and its opposite. If neither is given, `value` stays empty.
void add_switch(CLI::App& app, const std::string& name, std::optional<bool>& value, const std::string& help) {
  app.add_flag(fmt::format("--{0},!--no-{0}", name), value, help)->take_last();
}

std::vector<std::string> method_names() {
  std::vector<std::string> names;
  for (const auto& method : methods()) names.push_back(method.name);
  return names;
}

}  // namespace

Run configure_bench_step(CLI::App& app) {
  auto args = std::make_shared<StepArguments>();
  app.add_option("--model", args->model,
                 "Name of a model in 'tpgm list models', with sizes after a colon: resnet18:image_size=64, "
                 "vit-l-16:recompute=true")
      ->check(parses(parse_model));
  app.add_option("-b,--batch-size", args->batch_size, "Batch size")->check(CLI::Range(1, 1 << 20));
  app.add_option("--device", args->device, "Device: cpu or cuda (auto: cuda if available)")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  add_switch(
      app, "amp", args->amp,
      "Use AMP: compute in bf16 where torch.autocast does; default: on with --compare on cuda, else off");
  add_switch(app, "channels-last", args->channels_last,
             "Use channels_last (NHWC) memory layout; default: on for convolutional families");
  app.add_flag_callback(
      "--no-cuda-graph", [args] { args->cuda_graph = false; },
      "On cuda, launch the kernels of our steps one by one instead of replaying a CUDA graph");
  app.add_option("--classes,--num-classes", args->classes, "Number of classes")
      ->check(CLI::Range(1, 1 << 24));
  app.add_option("--repeats", args->repeats,
                 "Number of steps for the median; default: 5, on cuda or with --compare 20")
      ->check(CLI::Range(1, 100000));
  app.add_option("--warmup", args->warmup,
                 "Number of warm-up steps; default: 2, on cuda 10 and 2 s more. On cuda at least "
                 "6, because the CUDA graph is captured during them")
      ->check(CLI::Range(0, 100000));
  app.add_option(
      "--python", args->python,
      "Python interpreter with torch, safetensors and the model's library, to run the baseline; default: no "
      "baseline");
  add_rival(app, args->rival, "step.py");
  add_switch(app, "compile", args->compile,
             "Also measure the baseline with torch.compile; default: with --compare");
  app.add_flag(
      "--compare", args->compare,
      "Compare training steps of the baseline, of plain fine-tuning and of each method: time, memory, loss");
  auto* chosen =
      app.add_option("--methods", args->methods,
                     "Methods for --compare, separated by commas; tpgm (MARS norm, a radius step in every "
                     "step) has two rows: radius batches of a quarter of the batch size and of the same size")
          ->delimiter(',')
          ->default_str(fmt::format("{}", fmt::join(args->methods, ",")))
          ->check(CLI::IsMember(method_names()));
  app.add_option("--profile", args->profile,
                 "Profile this method (ft: plain): run only --warmup steps and one more, for "
                 "'ncu --profile-from-start off'; see benchmarks/kernels.py")
      ->check(CLI::IsMember(method_names()));
  app.add_flag("--json", args->json, "Print JSON");
  return [args, chosen] {
    args->device = find_device(args->device).is_cuda() ? "cuda" : "cpu";
    return bench_step(*args, chosen->count() > 0);
  };
}

}  // namespace tpgm::tools
