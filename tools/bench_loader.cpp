// `tpgm bench loader`: batches of JPEGs, beside Pillow and torchvision.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "benchmarks/loader.h"
#include "tools/bench.h"
#include "tools/command.h"
#include "tools/text.h"

namespace tpgm::tools {
namespace {

using benchmarks::LoaderBenchOptions;
using benchmarks::LoaderReport;
using benchmarks::LoaderSpeed;

struct LoaderBenchArguments {
  LoaderBenchOptions options;
  std::string folder = temporary_folder().string();
  std::string rival;
  bool json = false;
};

double ratio(const LoaderSpeed& a, const LoaderSpeed& b) { return a.images_s / b.images_s; }

nlohmann::ordered_json as_json(const LoaderSpeed& speed) {
  return {{"images_s", speed.images_s}, {"images_cpu_s", speed.images_cpu_s}};
}

nlohmann::ordered_json as_json(const LoaderBenchOptions& options, const LoaderReport& report) {
  auto rows = nlohmann::ordered_json::array();
  for (const auto& row : report.rows) {
    rows.push_back({{"name", row.name}, {"ours", as_json(row.ours)}});
    if (row.rival)
      rows.back().update({{"rival", as_json(*row.rival)}, {"times", ratio(row.ours, *row.rival)}});
  }
  const LoaderSpeed& one = report.rows.front().ours;
  nlohmann::ordered_json json{{"images", options.images},         {"quality", options.quality},
                              {"file_kb", report.file_kb},        {"image_size", options.image_size},
                              {"batch_size", options.batch_size}, {"turns", report.turns}};
  if (!report.rival.empty()) json.update({{"rival", report.rival}, {"rival_torch", report.rival_torch}});
  json.update({{"rows", rows},
               {"two_workers", as_json(report.two_workers)},
               {"two_workers_times", ratio(report.two_workers, one)},
               {"shards", as_json(report.shards)},
               {"shards_times", ratio(report.shards, one)},
               {"queue_mib", report.queue_mib},
               {"resident_mib", report.resident_mib},
               {"resident_twice_mib", report.resident_twice_mib},
               {"list_s", report.list_s},
               {"list_mib", report.list_mib}});
  return json;
}

void print(const LoaderBenchOptions& options, const LoaderReport& report) {
  fmt::print("{} JPEGs of 500×375, quality {}, {:.0f} kB on average; batches of {} at {} px on the CPU\n\n",
             grouped(options.images), options.quality, report.file_kb, options.batch_size,
             options.image_size);
  fmt::print("{:<66}{:>9}{:>14}{:>10}\n", "", "images/s", "images/CPU s",
             report.rival.empty() ? "" : "× faster");
  const auto row = [](const std::string& what, const LoaderSpeed& speed, const std::string& times) {
    fmt::print("{:<66}{:>9.0f}{:>14.0f}{:>10}\n", what, speed.images_s, speed.images_cpu_s, times);
  };
  for (const auto& each : report.rows) {
    row(fmt::format("{}, tpgm", each.name), each.ours, "");
    if (each.rival) {
      row(fmt::format("{}, {}", each.name, report.rival), *each.rival,
          fmt::format("{:.2f}×", ratio(each.ours, *each.rival)));
    }
  }
  const auto& first = report.rows.front();
  fmt::print("\n{:<66}{:>9}{:>14}{:>10}\n", first.name, "images/s", "images/CPU s", "of one");
  const auto relative = [&](const char* what, const LoaderSpeed& speed) {
    row(what, speed, fmt::format("{:.2f}×", ratio(speed, first.ours)));
  };
  row("one worker, folders", first.ours, "");
  relative("one worker, shards", report.shards);
  relative("two workers, folders", report.two_workers);

  fmt::print("\n{:<66}{:>9}\n", "", "MiB");
  const auto memory = [](const std::string& what, double mib) { fmt::print("{:<66}{:>9.0f}\n", what, mib); };
  memory("queue × batch", report.queue_mib);
  memory(fmt::format("resident, {} images", grouped(options.images)), report.resident_mib);
  memory(fmt::format("resident, {} images", grouped(2 * options.images)), report.resident_twice_mib);
  memory(fmt::format("opening a list of 1,000,000 files, which takes {:.2f} s", report.list_s),
         report.list_mib);

  fmt::print("\nMedians of {} turns of two batches; page cache warm. CPU s: of all threads of a side.",
             report.turns);
  if (report.rival.empty()) {
    fmt::print("\n--python PYTHON measures Pillow and torchvision on the same files beside it.\n");
  } else {
    fmt::print(
        "\n× faster: tpgm with one worker than Python with torch {} in one process, taking turns with the "
        "same "
        "files.\n",
        report.rival_torch);
  }
}

}  // namespace

Run configure_bench_loader(CLI::App& app) {
  auto args = std::make_shared<LoaderBenchArguments>();
  auto& options = args->options;
  app.add_option("--images", options.images, "Number of JPEGs to make, of 500×375 pixels")
      ->check(CLI::Range(10, 1 << 20));
  app.add_option("--quality", options.quality, "JPEG quality")->check(CLI::Range(1, 100));
  app.add_option("--size", options.image_size, "Input image size")->check(CLI::Range(1, 4096));
  app.add_option("-b,--batch-size", options.batch_size, "Batch size")->check(CLI::Range(1, 1 << 20));
  app.add_option("--repeats", options.repeats, "Passes over the images")->check(CLI::Range(1, 1000));
  app.add_option("--folder", args->folder, "Folder for temporary files, which are removed afterwards");
  app.add_option(
      "--python", options.python,
      "Python interpreter with torch, torchvision and Pillow, to run the baseline; default: no baseline");
  add_rival(app, args->rival, "loader.py");
  app.add_flag("--json", args->json, "Print JSON");
  return [args] {
    auto options = args->options;
    options.folder = args->folder;
    options.rival = find_rival(options.python, args->rival, "loader.py", {"torch", "torchvision", "PIL"});
    const auto report = with_progress("tpgm bench loader", options, benchmarks::measure_loader);
    if (args->json) {
      fmt::print("{}\n", as_json(options, report).dump(2));
    } else {
      print(options, report);
    }
    return 0;
  };
}

}  // namespace tpgm::tools
