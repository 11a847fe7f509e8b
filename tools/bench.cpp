// `tpgm bench`: our speed beside its rivals', in one run.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/cuda.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/io.h"
#include "benchmarks/projection.h"
#include "benchmarks/shapes.h"
#include "benchmarks/step.h"
#include "benchmarks/train_loop.h"
#include "tools/command.h"
#include "tools/text.h"
#include "tpgm/methods/options.h"
#include "tpgm/models/registry.h"

namespace tpgm::tools {

Run configure_bench_loader(CLI::App& app);  // bench_loader.cpp

namespace {

using benchmarks::ProjectionReport;

struct ProjectionArguments {
  std::string device = "cpu";
  std::string model = "resnet50";
  std::string dtype = "float32";
  std::int64_t repeats = 20;
  bool json = false;
};

nlohmann::ordered_json as_json(const ProjectionArguments& args, const ProjectionReport& report) {
  auto norms = nlohmann::ordered_json::array();
  for (const auto& each : report.norms) {
    norms.push_back({{"norm", to_text(each.norm)},
                     {"ours_ms", each.ours_ms},
                     {"ours_gb_s", each.ours_gb_s},
                     {"share_of_copy", each.ours_gb_s / report.copy_gb_s},
                     {"aten_ms", each.aten_ms},
                     {"times_aten", each.aten_ms / each.ours_ms},
                     {"largest_difference", each.largest_difference}});
  }
  return {{"device", args.device},
          {"model", args.model},
          {"dtype", args.dtype},
          {"threads", at::get_num_threads()},
          {"tensors", report.tensors},
          {"megabytes", report.megabytes},
          {"copy_ms", report.copy_ms},
          {"copy_gb_s", report.copy_gb_s},
          {"norms", norms}};
}

void print(const ProjectionArguments& args, const ProjectionReport& report) {
  fmt::print("distance + projection of {} tensors, {:.0f} MB of {} ({}), {}{}\n\n", report.tensors,
             report.megabytes, args.dtype, args.model, args.device,
             args.device == "cpu" ? fmt::format(", {} threads", at::get_num_threads()) : "");
  fmt::print("{:<24}{:>10}{:>10}{:>10}{:>12}\n", "", "ms", "GB/s", "of copy", "× faster");
  fmt::print("{:<24}{:>10.3f}{:>10.1f}\n", "plain copy", report.copy_ms, report.copy_gb_s);
  for (const auto& each : report.norms) {
    fmt::print("{:<24}{:>10.3f}{:>10.1f}{:>9.0f}%\n", "tpgm, " + to_text(each.norm), each.ours_ms,
               each.ours_gb_s, 100 * each.ours_gb_s / report.copy_gb_s);
    fmt::print("{:<24}{:>10.3f}{:>10}{:>10}{:>11.1f}×\n", "ATen, " + to_text(each.norm), each.aten_ms, "", "",
               each.aten_ms / each.ours_ms);
  }
  fmt::print(
      "\nGB/s: 2 passes for the copy, 5 for distance + projection. Medians of {} with cold caches.\n"
      "× faster: tpgm against ATen calls tensor by tensor; their results differ by at most {:.1f} "
      "roundings.\n",
      args.repeats, [&] {
        double largest = 0;
        for (const auto& each : report.norms) {
          largest = std::max(largest, each.largest_difference);
        }
        return largest;
      }());
}

int bench_projection(const ProjectionArguments& args) {
  TORCH_CHECK(args.device == "cpu" || torch::cuda::is_available(),
              "[bench] --device cuda: no CUDA device is visible, or this LibTorch was built without CUDA");
  benchmarks::ProjectionOptions options;
  options.device = at::Device(args.device);
  options.model = args.model;
  options.dtype = args.dtype == "bfloat16" ? at::kBFloat16 : at::kFloat;
  options.repeats = args.repeats;
  const auto report = benchmarks::measure_projection(options);
  if (args.json) {
    fmt::print("{}\n", as_json(args, report).dump(2));
  } else {
    print(args, report);
  }
  return 0;
}

struct IoArguments {
  std::string folder = std::filesystem::temp_directory_path().string();
  double gigabytes = 2;
  std::int64_t repeats = 3;
  std::string python;
  std::string rival = "benchmarks/rivals/io.py";
  bool json = false;
};

int bench_io(const IoArguments& args) {
  const auto report = benchmarks::measure_io({.folder = args.folder,
                                              .gigabytes = args.gigabytes,
                                              .repeats = args.repeats,
                                              .python = args.python,
                                              .rival = args.rival});
  if (args.json) {
    nlohmann::ordered_json json{{"gigabytes", report.gigabytes},
                                {"tensors", report.tensors},
                                {"threads", at::get_num_threads()},
                                {"copy_s", report.copy},
                                {"copy_plain_s", report.copy_plain},
                                {"merge_s", report.merge},
                                {"merge_process_s", report.merge_process},
                                {"merge_peak_mib", report.merge_peak_mib},
                                {"compare_s", report.compare},
                                {"open_s", report.open}};
    if (report.python > 0)
      json.update({{"python_s", report.python}, {"python_process_s", report.python_process}});
    fmt::print("{}\n", json.dump(2));
    return 0;
  }
  const double gigabytes = report.gigabytes;
  fmt::print("two checkpoints of {:.2f} GB, {} tensors, page cache warm, {} threads, in {}\n\n", gigabytes,
             report.tensors, at::get_num_threads(), args.folder);
  fmt::print("{:<44}{:>8}{:>8}{:>10}{:>9}\n", "", "s", "GB/s", "of copy", "× faster");
  const auto row = [&](const char* what, double time, double passes) {
    fmt::print("{:<44}{:>8.3f}{:>8.2f}", what, time, passes * gigabytes / time);
  };
  row("read both, write one: all threads", report.copy, 3);
  fmt::print("\n");
  row("read both, write one: one thread", report.copy_plain, 3);
  fmt::print("{:>9.0f}%\n", 100 * report.copy / report.copy_plain);
  row("tpgm wise", report.merge, 3);
  fmt::print("{:>9.0f}%\n", 100 * report.copy / report.merge);
  row("tpgm wise, the process", report.merge_process, 3);
  fmt::print("{:>9.0f}%\n", 100 * report.copy / report.merge_process);
  if (report.python > 0) {
    row("Python, without imports (no fsync)", report.python, 3);
    fmt::print("{:>10}{:>8.1f}×\n", "", report.python / report.merge);
    row("Python, the process", report.python_process, 3);
    fmt::print("{:>10}{:>8.1f}×\n", "", report.python_process / report.merge_process);
  }
  row("tpgm inspect A B", report.compare, 2);
  fmt::print("\n{:<44}{:>8.4f}\n", "opening one", report.open);
  fmt::print(
      "\nMedians of {}. tpgm wise took {:.0f} MiB beyond mapped pages. × faster: than Python; process "
      "against process.\n",
      args.repeats, report.merge_peak_mib);
  return 0;
}

struct StepArguments {
  std::string model = "resnet50";
  std::string device = "cpu";
  std::int64_t batch_size = 16;
  std::int64_t classes = 1000;
  bool amp = false;
  std::optional<bool> channels_last;
  std::optional<std::int64_t> warmup, repeats;
  std::string python;
  std::string rival = "benchmarks/rivals/step.py";
  bool compile = false;
  bool json = false;
};

double relative_difference(double ours, double theirs) { return std::abs(ours - theirs) / std::abs(theirs); }

// The losses that are shown: of the untrained model, after a few updates, after all of them.
std::vector<size_t> shown_steps(const benchmarks::StepTimes& times) {
  std::vector<size_t> steps;
  for (const size_t step : {size_t{1}, size_t{3}, times.losses.size()}) {
    if (step <= times.losses.size() && (steps.empty() || step > steps.back())) steps.push_back(step);
  }
  return steps;
}

nlohmann::ordered_json as_json(const StepArguments& args, const benchmarks::StepTimes& times) {
  const auto images_s = [&](double ms) { return 1e3 * static_cast<double>(args.batch_size) / ms; };
  nlohmann::ordered_json json{{"name", times.name},
                              {"torch", times.torch},
                              {"training_ms", times.training_ms},
                              {"training_images_s", images_s(times.training_ms)},
                              {"inference_ms", times.inference_ms},
                              {"inference_images_s", images_s(times.inference_ms)},
                              {"losses", times.losses},
                              {"inference_loss", times.inference_loss}};
  if (times.training_peak_mib > 0) {
    json.update(
        {{"training_peak_mib", times.training_peak_mib}, {"inference_peak_mib", times.inference_peak_mib}});
  }
  return json;
}

nlohmann::ordered_json as_json(const StepArguments& args, const benchmarks::StepReport& report) {
  const auto& ours = report.ours;
  auto rivals = nlohmann::ordered_json::array();
  for (const auto& rival : report.rivals) {
    auto json = as_json(args, rival);
    auto differences = nlohmann::ordered_json::array();
    for (size_t i = 0; i < std::min(ours.losses.size(), rival.losses.size()); ++i) {
      differences.push_back(relative_difference(ours.losses[i], rival.losses[i]));
    }
    json.update(
        {{"training_times", rival.training_ms / ours.training_ms},
         {"inference_times", rival.inference_ms / ours.inference_ms},
         {"loss_differences", differences},
         {"inference_loss_difference", relative_difference(ours.inference_loss, rival.inference_loss)}});
    rivals.push_back(json);
  }
  return {{"model", report.model},
          {"parameters", report.parameters},
          {"device", args.device},
          {"threads", at::get_num_threads()},
          {"batch_size", args.batch_size},
          {"channels", report.channels},
          {"image_size", report.image_size},
          {"classes", args.classes},
          {"amp", args.amp},
          {"channels_last", report.channels_last},
          {"warmup", report.warmup},
          {"repeats", report.repeats},
          {"ours", as_json(args, ours)},
          {"rivals", rivals}};
}

void print(const StepArguments& args, const benchmarks::StepReport& report) {
  const auto& ours = report.ours;
  fmt::print("{}, {} parameters, {} images of {}×{}×{}, {}{}, {}{}\n\n", args.model,
             grouped(report.parameters), args.batch_size, report.channels, report.image_size,
             report.image_size, args.device,
             args.device == "cpu" ? fmt::format(", {} threads", at::get_num_threads()) : "",
             args.amp ? "bf16 autocast" : "float32", report.channels_last ? ", channels last" : "");

  const bool peaks = ours.training_peak_mib > 0;
  fmt::print("{:<44}{:>10}{:>11}{:>11}{:>12}\n", "", "ms", "images/s", peaks ? "peak MiB" : "", "× faster");
  const auto row = [&](const benchmarks::StepTimes& times, const char* what, double ms, double peak,
                       double our_ms) {
    fmt::print("{:<44}{:>10.2f}{:>11.1f}{:>11}", fmt::format("{}, {}", what, times.name), ms,
               1e3 * static_cast<double>(args.batch_size) / ms, peaks ? fmt::format("{:.0f}", peak) : "");
    fmt::print("{}\n", &times == &ours ? "" : fmt::format("{:>11.2f}×", ms / our_ms));
  };
  std::vector<const benchmarks::StepTimes*> all{&ours};
  for (const auto& rival : report.rivals) all.push_back(&rival);
  for (const auto* each : all)
    row(*each, "training step", each->training_ms, each->training_peak_mib, ours.training_ms);
  for (const auto* each : all)
    row(*each, "inference", each->inference_ms, each->inference_peak_mib, ours.inference_ms);

  fmt::print("\n{:<44}", "loss");
  const auto steps = shown_steps(ours);
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
    fmt::print("{:>12.1e}\n", relative_difference(ours.inference_loss, each->inference_loss));
  }

  fmt::print(
      "\nMedians of {} after {} that do not count, LibTorch {}. A step is forward, backward and AdamW.",
      report.repeats, report.warmup, ours.torch);
  if (report.rivals.empty()) {
    fmt::print("\n--python PYTHON measures the same model of torchvision, timm or open_clip beside it.\n");
  } else {
    fmt::print("\n× faster: tpgm than Python with torch {}, from the same weights on the same images{}.\n",
               report.rivals.front().torch, args.device == "cpu" ? ", taking turns" : "");
  }
}

void print(const benchmarks::LoopTimes& loop) {
  fmt::print("\n{:<44}{:>10.2f}\n", "the loop: a bare step", loop.bare_ms);
  const auto row = [&](const char* what, double ms) {
    fmt::print("{:<44}{:>10.2f}   {:+.1f} %\n", what, ms, 100 * (ms / loop.bare_ms - 1));
  };
  row("the same through tpgm train, without data", loop.trainer_ms);
  if (loop.trainer_graph_ms > 0) row("and from a CUDA graph", loop.trainer_graph_ms);
}

int bench_step(const StepArguments& args) {
  if (args.compile && args.python.empty()) throw UsageError("--compile is the rival's: give --python PYTHON");
  benchmarks::StepOptions options;
  options.model = parse_model(args.model);
  options.device = at::Device(args.device);
  options.batch_size = args.batch_size;
  options.classes = args.classes;
  options.amp = args.amp;
  options.channels_last = args.channels_last;
  options.warmup = args.warmup;
  options.repeats = args.repeats;
  options.python = args.python;
  options.rival = args.rival;
  options.compile = args.compile;
  options.folder = std::filesystem::temp_directory_path();
  const auto report = benchmarks::measure_step(options);
  const auto loop = benchmarks::measure_loop(options);
  if (args.json) {
    auto json = as_json(args, report);
    json["loop"] = {{"bare_ms", loop.bare_ms}, {"trainer_ms", loop.trainer_ms}};
    if (loop.trainer_graph_ms > 0) json["loop"]["trainer_cuda_graph_ms"] = loop.trainer_graph_ms;
    fmt::print("{}\n", json.dump(2));
  } else {
    print(args, report);
    print(loop);
  }
  return 0;
}

void configure_step(CLI::App& step, StepArguments& args) {
  step.add_option("--model", args.model,
                  "A name of 'tpgm list models', with sizes behind a colon: vit-l-16:recompute=true")
      ->check(parses(parse_model));
  step.add_option("-b,--batch-size", args.batch_size, "Images of a step")->check(CLI::Range(1, 1 << 20));
  step.add_option("--device", args.device, "cpu or cuda")->check(CLI::IsMember({"cpu", "cuda"}));
  step.add_flag("--amp", args.amp, "Compute in bfloat16 where torch.autocast does");
  auto* last = step.add_flag_callback(
      "--channels-last", [&] { args.channels_last = true; },
      "Images and convolutions as NHWC; default: on for ResNets, off for ViTs");
  step.add_flag_callback(
          "--no-channels-last", [&] { args.channels_last = false; }, "As NCHW")
      ->excludes(last);
  step.add_option("--classes,--num-classes", args.classes, "Of the head")->check(CLI::Range(1, 1 << 24));
  step.add_option("--repeats", args.repeats, "Steps to take the median of; default: 5, on cuda 20")
      ->check(CLI::Range(1, 100000));
  step.add_option("--warmup", args.warmup, "Steps before that do not count; default: 2, on cuda 10")
      ->check(CLI::Range(0, 100000));
  step.add_option(
      "--python", args.python,
      "A Python with torch, safetensors and the model's library (torchvision for ResNets, timm too "
      "for ViTs, open_clip_torch for CLIP), to run the rival; default: none");
  step.add_option("--rival", args.rival, "The rival's script");
  step.add_flag("--compile", args.compile, "Measure torch.compile of the rival's model too");
  step.add_flag("--json", args.json, "For a program to read");
}

}  // namespace

Run configure_bench(CLI::App& app) {
  auto* io = app.add_subcommand("io", "merging two checkpoints, beside a plain copy and beside Python");
  auto io_args = std::make_shared<IoArguments>();
  io->add_option("--folder", io_args->folder, "Where to put the files; they are removed in the end");
  io->add_option("--gigabytes", io_args->gigabytes, "Size of each checkpoint")
      ->check(CLI::Range(0.001, 1000.0));
  io->add_option("--repeats", io_args->repeats, "Runs to take the median of")->check(CLI::Range(1, 1000));
  io->add_option("--python", io_args->python,
                 "A Python with torch and safetensors, to run the rival; default: none");
  io->add_option("--rival", io_args->rival, "The rival's script");
  io->add_flag("--json", io_args->json, "For a program to read");

  auto* loader = app.add_subcommand("loader", "batches of JPEGs, beside Pillow and torchvision");
  const Run run_loader = configure_bench_loader(*loader);

  auto* projection = app.add_subcommand("projection", "distance and projection of all tensors of a model");
  auto args = std::make_shared<ProjectionArguments>();
  projection->add_option("--device", args->device, "cpu or cuda")->check(CLI::IsMember({"cpu", "cuda"}));
  projection->add_option("--model-like", args->model, "Whose shapes")
      ->check(CLI::IsMember(benchmarks::model_names()));
  projection->add_option("--dtype", args->dtype, "Type of the weights")
      ->check(CLI::IsMember({"float32", "bfloat16"}));
  projection->add_option("--repeats", args->repeats, "Runs to take the median of")
      ->check(CLI::Range(1, 100000));
  projection->add_flag("--json", args->json, "For a program to read");

  auto* step =
      app.add_subcommand("step", "a training step and an inference batch of a model, beside PyTorch");
  auto step_args = std::make_shared<StepArguments>();
  configure_step(*step, *step_args);

  app.require_subcommand(1);
  return [args, io_args, step_args, io, loader, run_loader, step] {
    if (loader->parsed()) return run_loader();
    if (step->parsed()) return bench_step(*step_args);
    return io->parsed() ? bench_io(*io_args) : bench_projection(*args);
  };
}

}  // namespace tpgm::tools
