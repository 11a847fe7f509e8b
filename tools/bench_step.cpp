// `tpgm bench step`.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/step.h"
#include "benchmarks/train_loop.h"
#include "tools/bench.h"
#include "tools/command.h"
#include "tools/text.h"
#include "tpgm/core/device.h"
#include "tpgm/methods/registry.h"
#include "tpgm/models/families.h"
#include "tpgm/models/registry.h"

namespace tpgm::tools {
namespace {

using benchmarks::MethodRow;
using benchmarks::MethodsReport;
using benchmarks::StepReport;
using benchmarks::StepSetting;
using benchmarks::StepTimes;
using Json = nlohmann::ordered_json;

struct StepArguments {
  std::string model = "resnet50";
  std::string device = "auto";
  std::int64_t batch_size = 16;
  std::int64_t classes = 1000;
  std::optional<bool> amp, compile, channels_last;
  bool cuda_graph = true;
  std::optional<std::int64_t> warmup, repeats;
  std::string python;
  std::string rival;
  bool compare = false;
  std::vector<std::string> methods = {"l2-sp", "mars-sp", "spd", "ftp", "tpgm"};
  std::string profile;
  bool json = false;
};

/// Of the rival, in Python.
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
  // What a user of a GPU would pick, and what he would pick in Python.
  options.amp = args.amp.value_or(args.compare && args.device == "cuda");
  options.compile = args.compile.value_or(args.compare);
  options.cuda_graph = args.cuda_graph;
  options.channels_last = args.channels_last;
  options.warmup = args.warmup;
  options.repeats = args.repeats;
  options.python = args.python;
  options.rival =
      find_rival("bench step", args.python, args.rival, "step.py", modules_for(*options.model.family));
  options.say = [](const std::string& text) { say(fmt::format("tpgm bench step: {}\n", text)); };
  options.folder = std::filesystem::temp_directory_path();
  return options;
}

Json as_json(const benchmarks::StepOptions& options, const StepSetting& setting) {
  return {{"model", to_text(setting.config)},
          {"parameters", setting.parameters},
          {"device", options.device.str()},
          {"threads", at::get_num_threads()},
          {"batch_size", options.batch_size},
          {"channels", setting.channels},
          {"image_size", setting.image_size},
          {"classes", options.classes},
          {"amp", options.amp},
          {"channels_last", setting.channels_last},
          {"warmup", setting.warmup},
          {"warmup_s", setting.warmup_s},
          {"repeats", setting.repeats}};
}

void print_setting(const StepArguments& args, const benchmarks::StepOptions& options,
                   const StepSetting& setting) {
  fmt::print("{}, {} parameters, {} images of {}×{}×{}, {}{}, {}{}\n\n", args.model,
             grouped(setting.parameters), args.batch_size, setting.channels, setting.image_size,
             setting.image_size, args.device,
             args.device == "cpu" ? fmt::format(", {} threads", at::get_num_threads()) : "",
             options.amp ? "bf16 autocast" : "float32", setting.channels_last ? ", channels last" : "");
}

std::string waited(const benchmarks::StepSetting& setting) {
  return setting.warmup_s > 0 ? fmt::format(" and {} s", setting.warmup_s) : "";
}

constexpr const char* kNoPython =
    "--python PYTHON measures the same model of torchvision, timm or open_clip beside it.";

// --- one model beside the library's ---

double relative_difference(double ours, double theirs) { return std::abs(ours - theirs) / std::abs(theirs); }

// The losses that are shown: of the untrained model, after a few updates, after as many as all have made.
// Where a warm-up lasts for a time, the faster ones make more.
std::vector<size_t> shown_steps(const std::vector<const StepTimes*>& all) {
  size_t most = all.front()->losses.size();
  for (const auto* each : all) most = std::min(most, each->losses.size());
  std::vector<size_t> steps;
  for (const size_t step : {size_t{1}, size_t{3}, most}) {
    if (step <= most && (steps.empty() || step > steps.back())) steps.push_back(step);
  }
  return steps;
}

// Weights of as many updates, so that their loss in evaluation can be compared.
bool as_trained(const StepTimes& a, const StepTimes& b) { return a.losses.size() == b.losses.size(); }

Json as_json(const StepArguments& args, const StepTimes& times) {
  const auto images_s = [&](double ms) { return 1e3 * static_cast<double>(args.batch_size) / ms; };
  Json json{{"name", times.name},
            {"torch", times.torch},
            {"training_ms", times.training_ms},
            {"training_images_s", images_s(times.training_ms)},
            {"inference_ms", times.inference_ms},
            {"inference_images_s", images_s(times.inference_ms)},
            {"losses", times.losses},
            {"inference_loss", times.inference_loss}};
  if (args.device == "cuda") {
    json.update({{"training_peak_mib", times.training_peak.allocated_mib},
                 {"training_reserved_mib", times.training_peak.reserved_mib},
                 {"inference_peak_mib", times.inference_peak.allocated_mib}});
  }
  return json;
}

Json as_json(const StepArguments& args, const StepReport& report) {
  const auto& ours = report.ours;
  auto rivals = Json::array();
  for (const auto& rival : report.rivals) {
    auto json = as_json(args, rival);
    auto differences = Json::array();
    for (size_t i = 0; i < std::min(ours.losses.size(), rival.losses.size()); ++i) {
      differences.push_back(relative_difference(ours.losses[i], rival.losses[i]));
    }
    json.update({{"training_times", rival.training_ms / ours.training_ms},
                 {"inference_times", rival.inference_ms / ours.inference_ms},
                 {"loss_differences", differences}});
    if (as_trained(ours, rival))
      json["inference_loss_difference"] = relative_difference(ours.inference_loss, rival.inference_loss);
    rivals.push_back(json);
  }
  auto own = as_json(args, ours);
  own["cuda_graph"] = ours.recorded;
  return {{"ours", own}, {"rivals", rivals}};
}

void print(const StepArguments& args, const StepReport& report, const benchmarks::LoopTimes& loop) {
  const auto& ours = report.ours;
  const bool peaks = args.device == "cuda";
  fmt::print("{:<44}{:>10}{:>11}{:>11}{:>12}\n", "", "ms", "images/s", peaks ? "peak MiB" : "",
             report.rivals.empty() ? "" : "× faster");
  const auto row = [&](const StepTimes& times, const char* what, double ms, double peak, double our_ms) {
    fmt::print("{:<44}{:>10.2f}{:>11.1f}{:>11}", fmt::format("{}, {}", what, times.name), ms,
               1e3 * static_cast<double>(args.batch_size) / ms, peaks ? fmt::format("{:.0f}", peak) : "");
    fmt::print("{}\n", &times == &ours ? "" : fmt::format("{:>11.2f}×", ms / our_ms));
  };
  std::vector<const StepTimes*> all{&ours};
  for (const auto& rival : report.rivals) all.push_back(&rival);
  for (const auto* each : all)
    row(*each, "training step", each->training_ms, each->training_peak.allocated_mib, ours.training_ms);
  for (const auto* each : all)
    row(*each, "inference", each->inference_ms, each->inference_peak.allocated_mib, ours.inference_ms);

  fmt::print("\n{:<44}", "loss");
  const auto steps = shown_steps(all);
  for (const size_t step : steps) fmt::print("{:>11}", fmt::format("step {}", step));
  fmt::print("{:>12}\n", "evaluation");
  for (const auto* each : all) {
    fmt::print("{:<44}", each->name);
    for (const size_t step : steps) fmt::print("{:>11.5f}", each->losses.at(step - 1));
    fmt::print("{:>12.5f}\n", each->inference_loss);
    if (each == &ours) continue;
    fmt::print("{:<44}", "  tpgm differs by");
    for (const size_t step : steps) {
      fmt::print("{:>11.1e}", relative_difference(ours.losses[step - 1], each->losses.at(step - 1)));
    }
    fmt::print("{:>12}\n",
               as_trained(ours, *each)
                   ? fmt::format("{:.1e}", relative_difference(ours.inference_loss, each->inference_loss))
                   : "");
  }
  fmt::print("\n{:<44}{:>10}\n", "the loop around it", "ms");
  fmt::print("{:<44}{:>10.2f}\n", "training step, by itself", loop.step_ms);
  fmt::print("{:<44}{:>10.2f}   {:+.1f} %\n", "through tpgm train, without data, in turns", loop.trainer_ms,
             100 * (loop.trainer_ms / loop.step_ms - 1));

  fmt::print(
      "\nMedians of {} after {}{} that do not count, LibTorch {}. A step is forward, backward and AdamW, as\n"
      "'tpgm train' makes it{}; evaluation comes after all of them.\n",
      report.setting.repeats, report.setting.warmup, waited(report.setting), ours.torch,
      ours.recorded ? ": replayed from a CUDA graph" : "");
  if (report.rivals.empty()) {
    fmt::print("{}\n", kNoPython);
  } else {
    fmt::print("× faster: tpgm than Python with torch {}, from the same weights on the same images{}.\n",
               report.rivals.front().torch, args.device == "cpu" ? ", taking turns" : "");
  }
}

int measure_one(const StepArguments& args, const benchmarks::StepOptions& options) {
  const auto report = with_progress("tpgm bench step", options, benchmarks::measure_step);
  const auto loop = with_progress("tpgm bench step, the loop", options, [&](const auto& shown) {
    return benchmarks::measure_loop(shown, report.setting);
  });
  if (args.json) {
    auto json = as_json(options, report.setting);
    json.update(as_json(args, report));
    json["loop"] = {{"step_ms", loop.step_ms}, {"trainer_ms", loop.trainer_ms}};
    fmt::print("{}\n", json.dump(2));
  } else {
    print_setting(args, options, report.setting);
    print(args, report, loop);
  }
  return 0;
}

// --- every method beside plain fine-tuning and the library's model ---

/// What the rows are compared with: of the rivals the last that ran, compile before eager.
struct Bases {
  const StepTimes* rival = nullptr;
  const StepTimes* plain = nullptr;
  double weights_mib = 0;  // in float32
  size_t steps = 0;        // after which losses are shown

  explicit Bases(const MethodsReport& report)
      : weights_mib(4.0 * static_cast<double>(report.setting.parameters) / (1 << 20)),
        steps(std::min<size_t>(20, static_cast<size_t>(report.setting.warmup + report.setting.repeats - 1))) {
    for (const auto& each : report.rivals) {
      if (each.error.empty()) rival = &each;
    }
    if (report.ours.front().times.error.empty()) plain = &report.ours.front().times;
  }
  std::optional<double> of_rival(const StepTimes& times) const {
    return rival ? std::optional(times.training_ms / rival->training_ms) : std::nullopt;
  }
  std::optional<double> of_plain(const StepTimes& times) const {
    if (times.plain_ms) return times.training_ms / *times.plain_ms;
    return plain ? std::optional(times.training_ms / plain->training_ms) : std::nullopt;
  }
  /// Memory that plain fine-tuning does not take, without the radius data, in copies of the weights.
  std::optional<double> beyond(const StepTimes& times) const {
    if (!plain || times.training_peak.allocated_mib == 0) return std::nullopt;
    return (times.training_peak.allocated_mib - times.radius_data_mib - plain->training_peak.allocated_mib) /
           weights_mib;
  }
  /// Of the step that comes after so many.
  double loss(const StepTimes& times) const { return times.losses.at(steps); }
};

Json as_json(const StepTimes& times, const Bases& bases, bool ours) {
  Json json{{"name", times.name}, {"torch", times.torch}};
  if (!times.error.empty()) {
    json["error"] = times.error;
    return json;
  }
  json["ms"] = times.training_ms;
  if (const auto ratio = bases.of_rival(times)) json["of_rival"] = *ratio;
  if (const auto ratio = bases.of_plain(times)) json["of_plain"] = *ratio;
  if (times.plain_ms) json["plain_ms"] = *times.plain_ms;
  if (times.training_peak.allocated_mib > 0) json["peak_mib"] = times.training_peak.allocated_mib;
  if (times.training_peak.reserved_mib > 0) json["reserved_mib"] = times.training_peak.reserved_mib;
  if (const auto beyond = bases.beyond(times); beyond && ours) json["copies_beyond_plain"] = *beyond;
  if (times.radius_data_mib > 0) json["radius_data_mib"] = times.radius_data_mib;
  if (ours) json["cuda_graph"] = times.recorded;
  json["loss"] = bases.loss(times);
  json["losses"] = times.losses;
  return json;
}

Json as_json(const MethodsReport& report) {
  const Bases bases(report);
  auto rivals = Json::array(), ours = Json::array();
  for (const auto& each : report.rivals) rivals.push_back(as_json(each, bases, false));
  for (const auto& each : report.ours) {
    auto json = as_json(each.times, bases, true);
    json["method"] = each.method;
    if (each.radius_batch > 0) json["radius_batch"] = each.radius_batch;
    ours.push_back(json);
  }
  Json json{{"weights_mib", bases.weights_mib}, {"loss_after", bases.steps}};
  if (bases.rival) json["rival"] = bases.rival->name;
  json.update({{"rivals", rivals}, {"ours", ours}});
  return json;
}

void print(const StepArguments& args, const MethodsReport& report) {
  const Bases bases(report);
  const std::string base = !bases.rival                             ? ""
                           : bases.rival->name.ends_with("compile") ? "× compile"
                                                                    : "× eager";
  const bool beside = std::any_of(report.ours.begin(), report.ours.end(),
                                  [](const MethodRow& each) { return each.times.plain_ms.has_value(); });
  const int wide = bases.rival ? 11 : 0, wide_beside = beside ? 12 : 0;
  fmt::print("{:<34}{:>10}{:>{}}{:>{}}{:>9}{:>10}{:>14}{:>15}\n", "training step", "ms", base, wide,
             beside ? "plain's ms" : "", wide_beside, "× plain", "peak MiB", "beyond plain",
             fmt::format("loss after {}", bases.steps));
  const auto number = [](std::optional<double> value, int digits) {
    return value ? fmt::format("{:.{}f}", *value, digits) : "";
  };
  const auto row = [&](const std::string& name, const StepTimes& times, bool ours) {
    if (!times.error.empty()) {
      fmt::print("{:<34}  {}\n", name, times.error);
      return;
    }
    const double peak = times.training_peak.allocated_mib;
    fmt::print("{:<34}{:>10.2f}{:>{}}{:>{}}{:>9}{:>10}{:>14}{:>15.5f}\n", name, times.training_ms,
               number(bases.of_rival(times), 2), wide, number(times.plain_ms, 2), wide_beside,
               number(bases.of_plain(times), 3), number(peak > 0 ? std::optional(peak) : std::nullopt, 0),
               ours ? number(bases.beyond(times), 2) : "", bases.loss(times));
  };
  for (const auto& each : report.rivals) row(each.name, each, false);
  for (const auto& each : report.ours) row("tpgm: " + each.times.name, each.times, true);

  const bool cpu = args.device == "cpu";
  fmt::print(
      "\nMedians of {} after {}{} that do not count, all from the same weights on the same images{}; "
      "LibTorch "
      "{}{}.\n"
      "×: the row's time over Python's or plain fine-tuning's{}. Beyond plain: memory without the radius "
      "batch, in "
      "copies\n"
      "of the weights in float32 ({:.0f} MiB){}.\n"
      "Losses: plain's should be the library's. A method that holds weights near the pre-trained ones has "
      "one "
      "of its own.\n",
      report.setting.repeats, report.setting.warmup, waited(report.setting), cpu ? ", taking turns" : "",
      report.ours.front().times.torch,
      report.rivals.empty() || report.rivals.front().torch.empty()
          ? ""
          : fmt::format(", Python's torch {}", report.rivals.front().torch),
      beside ? ", which is taken in turns with each method: plain's ms" : "", bases.weights_mib,
      cpu ? "; of ours, Python's is not known" : "");
  if (!cpu) {
    std::vector<std::string> launched, alone;
    for (const auto& each : report.ours) {
      if (!each.times.error.empty()) continue;
      if (!each.times.recorded) launched.push_back(each.times.name);
      if (each.method != "ft" && !each.times.plain_ms) alone.push_back(each.times.name);
    }
    if (!alone.empty() && bases.plain) {
      fmt::print("Over the row 'plain', as the device has no memory for two: {}.\n", fmt::join(alone, "; "));
    }
    if (launched.empty()) {
      fmt::print("Ours are replayed from CUDA graphs, as 'tpgm train' does.\n");
    } else {
      fmt::print("Not from a CUDA graph: {}.\n", fmt::join(launched, "; "));
    }
  }
  if (args.python.empty()) fmt::print("{}\n", kNoPython);
}

int measure_all(const StepArguments& args, const benchmarks::StepOptions& options) {
  const auto report = with_progress("tpgm bench step", options, [&](const benchmarks::StepOptions& watched) {
    return benchmarks::measure_methods(watched, args.methods);
  });
  if (args.json) {
    auto json = as_json(options, report.setting);
    json.update(as_json(report));
    fmt::print("{}\n", json.dump(2));
  } else {
    print_setting(args, options, report.setting);
    print(args, report);
  }
  const auto failed = [](const StepTimes& times) { return !times.error.empty(); };
  return std::any_of(report.rivals.begin(), report.rivals.end(), failed) ||
                 std::any_of(report.ours.begin(), report.ours.end(),
                             [&](const MethodRow& row) { return failed(row.times); })
             ? 1
             : 0;
}

int bench_step(const StepArguments& args, bool methods_given) {
  if (args.compile.value_or(false) && args.python.empty())
    throw UsageError("--compile is the rival's: give --python PYTHON");
  if (methods_given && !args.compare) throw UsageError("--methods goes with --compare");
  if (!args.profile.empty() && (args.compare || args.json))
    throw UsageError(
        "--profile runs one step for a profiler to see, and goes with neither --compare nor --json");
  const auto options = options_of(args);
  if (!args.profile.empty()) {
    const auto setting = benchmarks::profile_step(options, args.profile);
    fmt::print("{}: a step of {} after {}\n", args.model, args.profile, setting.warmup);
    return 0;
  }
  return args.compare ? measure_all(args, options) : measure_one(args, options);
}

/// A flag and its opposite, either of which decides what is left open otherwise.
CLI::Option* add_switch(CLI::App& app, const std::string& name, std::optional<bool>& value,
                        const std::string& help, const std::string& no_help) {
  auto* yes = app.add_flag_callback("--" + name, [&value] { value = true; }, help);
  app.add_flag_callback("--no-" + name, [&value] { value = false; }, no_help)->excludes(yes);
  return yes;
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
      "Use AMP: compute in bfloat16 where torch.autocast does; default: on with --compare on cuda, else off",
      "Compute in float32");
  add_switch(app, "channels-last", args->channels_last,
             "Use channels_last (NHWC) memory layout; default: on for ResNets, off for ViTs",
             "Use NCHW memory layout");
  app.add_flag_callback(
      "--no-cuda-graph", [args] { args->cuda_graph = false; },
      "On cuda, launch the kernels of our steps one by one instead of replaying a CUDA graph");
  app.add_option("--classes,--num-classes", args->classes, "Number of classes")
      ->check(CLI::Range(1, 1 << 24));
  app.add_option("--repeats", args->repeats,
                 "Number of steps for the median; default: 5, on cuda or with --compare 20")
      ->check(CLI::Range(1, 100000));
  app.add_option("--warmup", args->warmup,
                 "Warm-up steps; default: 2, on cuda 10 and as many as 2 s take. On cuda at least 6, after "
                 "which steps are replayed")
      ->check(CLI::Range(0, 100000));
  app.add_option(
      "--python", args->python,
      "Python interpreter with torch, safetensors and the model's library (torchvision for ResNets, timm too "
      "for ViTs, open_clip_torch for CLIP), to run the rival; default: no rival");
  add_rival(app, args->rival, "step.py");
  add_switch(app, "compile", args->compile,
             "Also measure torch.compile of the rival's model; default: with --compare",
             "Measure only eager mode");
  app.add_flag(
      "--compare", args->compare,
      "Compare training steps of the rival, of plain fine-tuning and of each method: time, memory, loss");
  auto* chosen =
      app.add_option("--methods", args->methods,
                     "Methods for --compare, separated by commas; tpgm (MARS norm, a radius step in every "
                     "step) has two rows: radius batches of a quarter of the batch size and of the same size")
          ->delimiter(',')
          ->default_str("l2-sp,mars-sp,spd,ftp,tpgm")
          ->check(CLI::IsMember(method_names()));
  app.add_option("--profile", args->profile,
                 "Profile this method (ft: plain): run only --warmup steps and one more, which ncu "
                 "--profile-from-start off sees; see benchmarks/kernels.py")
      ->check(CLI::IsMember(method_names()));
  app.add_flag("--json", args->json, "Print JSON");
  return [args, chosen] {
    args->device = find_device(args->device).is_cuda() ? "cuda" : "cpu";
    return bench_step(*args, chosen->count() > 0);
  };
}

}  // namespace tpgm::tools
