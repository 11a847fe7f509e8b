// `tpgm bench io`: merging two checkpoints, compared with a plain copy and Python.
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "benchmarks/io.h"
#include "tools/bench.h"
#include "tools/command.h"

namespace tpgm::tools {
namespace {

struct IoArguments {
  std::string folder = temporary_folder().string();
  double gigabytes = 2;
  int64_t repeats = 3;
  std::string python;
  std::string rival;
  bool json = false;
};

int bench_io(const IoArguments& args) {
  const benchmarks::IoOptions options{
      .folder = args.folder,
      .gigabytes = args.gigabytes,
      .repeats = args.repeats,
      .python = args.python,
      .rival = find_rival(args.python, args.rival, "io.py", {"torch", "safetensors"}),
      .progress = {}};
  const auto report = with_progress("tpgm bench io", options, benchmarks::measure_io);
  if (args.json) {
    nlohmann::ordered_json json{{"gigabytes", report.gigabytes},
                                {"tensors", report.tensors},
                                {"threads", at::get_num_threads()},
                                {"repeats", args.repeats},
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
  const bool rival = report.python > 0;
  fmt::print("{:<44}{:>8}{:>8}{:>10}{:>9}\n", "", "s", "GB/s", "of copy", rival ? "× faster" : "");
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
  if (rival) {
    row("Python, without imports (no fsync)", report.python, 3);
    fmt::print("{:>10}{:>8.1f}×\n", "", report.python / report.merge);
    row("Python, the process", report.python_process, 3);
    fmt::print("{:>10}{:>8.1f}×\n", "", report.python_process / report.merge_process);
  }
  row("tpgm inspect A B", report.compare, 2);
  fmt::print("\n{:<44}{:>8.4f}\n", "opening one", report.open);
  fmt::print(
      "\nMedians of {}. tpgm wise took {:.0f} MiB beyond mapped pages. Of copy: share of a copy's speed, the "
      "first\nrow's, which varies with the disk.\n{}\n",
      args.repeats, report.merge_peak_mib,
      rival ? "× faster: tpgm than Python; process against process."
            : "--python PYTHON measures the same with safetensors in Python beside it.");
  return 0;
}

}  // namespace

Run configure_bench_io(CLI::App& app) {
  auto args = std::make_shared<IoArguments>();
  app.add_option("--folder", args->folder, "Folder for temporary files, which are removed afterwards");
  app.add_option("--gigabytes", args->gigabytes, "Size of each checkpoint in GB")
      ->check(CLI::Range(0.001, 1000.0));
  app.add_option("--repeats", args->repeats, "Number of measurements for the median")
      ->check(CLI::Range(1, 1000));
  app.add_option("--python", args->python,
                 "Python interpreter with torch and safetensors, to run the baseline; default: no baseline");
  add_rival(app, args->rival, "io.py");
  app.add_flag("--json", args->json, "Print JSON");
  return [args] { return bench_io(*args); };
}

}  // namespace tpgm::tools
