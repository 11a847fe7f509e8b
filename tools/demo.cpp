// `tpgm demo`: all methods compared on the built-in data, in minutes.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <thread>

#include "tools/command.h"
#include "tools/command_line.h"
#include "tools/interrupt.h"
#include "tools/run_many.h"
#include "tools/shared_files.h"
#include "tools/table_runs.h"
#include "tpgm/core/device.h"

namespace tpgm::tools {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIntroduction =
    R"(A small CLIP is pre-trained on letters, digits and signs in typefaces of five styles. It is fine-tuned on one style,
sans-serif, and tested on that (ID) and on the other four: serif, monospaced, handwritten, decorative (OOD).
Plain fine-tuning (FT) is compared with methods that keep the model near its pre-trained weights.
)";

constexpr const char* kNext =
    R"(
On your own images (class folders) and checkpoint (Hugging Face, open_clip, timm, torchvision, .pt or .safetensors):
  tpgm data check my-images
  tpgm compare --checkpoint my-clip --data-dir my-images -o compare
docs/quickstart.md has the rest.
)";

struct DemoArguments {
  std::string output = "demo", device = "auto";
  int64_t seeds = 1, jobs = 0;
};

int demo(const DemoArguments& args) {
  const auto device = find_device(args.device);
  const auto cores = static_cast<int64_t>(std::max(1U, std::thread::hardware_concurrency()));
  Progress progress(Progress::Elsewhere::kNothing);
  ReproduceOptions options;
  options.given["device"] = device.str();
  options.seeds = first_seeds(args.seeds);
  // The model is so small that a run does not profit from a second core.
  options.jobs = job_options("demo", args.jobs > 0 ? args.jobs : std::min<int64_t>(cores, 8), progress);
  options.output = fs::absolute(args.output).lexically_normal();
  interrupted();

  const auto folder = find_table("demo");
  TablePlan plan(load_table(folder, "demo"), options);
  DataSizes sizes;
  const auto left = plan.cost(sizes).left;
  say(kIntroduction);
  if (left.runs > 0) {
    say(fmt::format("{} runs, {} side by side, on {}; recipes in {}\n\n", left.runs,
                    options.jobs.side_by_side, device.str(), folder.string()));
  } else {
    say(fmt::format("All runs are in {} already; to make them again, remove it\n\n",
                    options.output.string()));
  }
  const bool fine = run_and_report("demo", plan, sizes, options.output, "TPGM on letters");
  fmt::print("{}", kNext);
  TORCH_CHECK(fine, "[demo] some runs failed, and are missing above; the same command tries them again");
  return 0;
}

}  // namespace

Run configure_demo(CLI::App& app) {
  auto args = std::make_shared<DemoArguments>();
  app.add_option("-o,--output", args->output,
                 "Output folder for the runs and report.html; finished runs in it are not repeated");
  app.add_option("--seeds", args->seeds, "Number of seeds per method; with several the table has mean (std)")
      ->check(CLI::Range(1, 100));
  app.add_option("--device", args->device, "Device: cpu, cuda or cuda:N (auto: cuda if available)");
  app.add_option("-j,--jobs", args->jobs, "Number of parallel runs (0: one per core, at most 8)")
      ->check(CLI::Range(0, 1024));
  return [args] { return demo(*args); };
}

}  // namespace tpgm::tools
