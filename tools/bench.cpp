// `tpgm bench`: the speed of tpgm and of its baselines, measured in one run.
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "benchmarks/projection.h"
#include "benchmarks/python.h"
#include "benchmarks/shapes.h"
#include "tools/bench.h"
#include "tools/command.h"
#include "tools/shared_files.h"
#include "tpgm/core/device.h"
#include "tpgm/methods/options.h"

namespace tpgm::tools {

Run configure_bench_io(CLI::App& app);      // bench_io.cpp
Run configure_bench_loader(CLI::App& app);  // bench_loader.cpp
Run configure_bench_step(CLI::App& app);    // bench_step.cpp

namespace {

using benchmarks::ProjectionReport;

struct ProjectionArguments {
  std::string device = "auto";
  std::string model = "resnet50";
  std::string dtype = "float32";
  int64_t repeats = 20;
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
  return {{"device", args.device},         {"model", args.model},
          {"dtype", args.dtype},           {"threads", at::get_num_threads()},
          {"repeats", args.repeats},       {"tensors", report.tensors},
          {"megabytes", report.megabytes}, {"copy_ms", report.copy_ms},
          {"copy_gb_s", report.copy_gb_s}, {"norms", norms}};
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
  benchmarks::ProjectionOptions options;
  options.device = at::Device(args.device);
  options.model = args.model;
  options.dtype = args.dtype == "bfloat16" ? at::kBFloat16 : at::kFloat;
  options.repeats = args.repeats;
  const auto report = with_progress("tpgm bench projection", options, benchmarks::measure_projection);
  if (args.json) {
    fmt::print("{}\n", as_json(args, report).dump(2));
  } else {
    print(args, report);
  }
  return 0;
}

}  // namespace

std::filesystem::path find_rival(const std::string& python, const std::string& given, const std::string& name,
                                 const std::vector<std::string>& modules) {
  if (python.empty()) return {};
  std::filesystem::path script = given;
  for (const auto& folder : shared_folders("benchmarks/rivals")) {
    if (script.empty() && std::filesystem::exists(folder / name)) script = folder / name;
  }
  TORCH_CHECK(!script.empty(), "there is no benchmarks/rivals/", name,
              " beside the program; give its path with --rival");
  benchmarks::check_python(python, script, given.empty() ? modules : std::vector<std::string>());
  return script;
}

void add_rival(CLI::App& app, std::string& path, const std::string& name) {
  app.add_option("--rival", path,
                 "Script of the baseline; default: benchmarks/rivals/" + name + ", which comes with tpgm");
}

Run configure_bench(CLI::App& app) {
  auto* io =
      app.add_subcommand("io", "measure merging two checkpoints, compared with a plain copy and Python");
  const Run run_io = configure_bench_io(*io);

  auto* loader =
      app.add_subcommand("loader", "measure loading batches of JPEGs, compared with Pillow and torchvision");
  const Run run_loader = configure_bench_loader(*loader);

  auto* projection = app.add_subcommand(
      "projection", "measure distance and projection of all tensors of a model, compared with ATen");
  auto args = std::make_shared<ProjectionArguments>();
  projection->add_option("--device", args->device, "Device: cpu or cuda (auto: cuda if available)")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  projection->add_option("--model-like", args->model, "Model whose tensor shapes are used")
      ->check(CLI::IsMember(benchmarks::model_names()));
  projection->add_option("--dtype", args->dtype, "Data type of the weights")
      ->check(CLI::IsMember({"float32", "bfloat16"}));
  projection->add_option("--repeats", args->repeats, "Number of measurements for the median")
      ->check(CLI::Range(1, 100000));
  projection->add_flag("--json", args->json, "Print JSON");

  auto* step = app.add_subcommand("step",
                                  "measure a training step of a model and of every method, and an inference "
                                  "batch, compared with PyTorch");
  const Run run_step = configure_bench_step(*step);

  app.require_subcommand(1);
  return [args, io, run_io, loader, run_loader, step, run_step] {
    if (loader->parsed()) return run_loader();
    if (step->parsed()) return run_step();
    if (io->parsed()) return run_io();
    args->device = find_device(args->device).is_cuda() ? "cuda" : "cpu";
    return bench_projection(*args);
  };
}

}  // namespace tpgm::tools
