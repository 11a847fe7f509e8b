// main() of tpgm-torch, which launcher.cpp executes: the table of subcommands.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <malloc.h>
#include <torch/cuda.h>
#include <torch/version.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "tools/command.h"
#include "tools/complaint.h"
#include "tools/help_formatter.h"
#include "tpgm/base/version.h"

namespace {

using tpgm::tools::Command;
using tpgm::tools::Run;

constexpr Command kCommands[] = {
    {"demo", "compare all methods on the built-in data: a table and report.html",
     tpgm::tools::configure_demo},
    {"compare", "compare all methods on your images and checkpoint: a table and report.html",
     tpgm::tools::configure_compare},
    {"train", "fine-tune with any model, method and data", tpgm::tools::configure_train},
    {"list", "list models, methods and recipes, with their options and defaults",
     tpgm::tools::configure_list},
    {"inspect", "show what is in a checkpoint, or the distance between two", tpgm::tools::configure_inspect},
    {"eval", "evaluate runs and checkpoints: a table of ID and OOD accuracy", tpgm::tools::configure_eval},
    {"project", "project a fine-tuned checkpoint towards its anchor, by learned radii",
     tpgm::tools::configure_project},
    {"wise", "interpolate between two checkpoints (WISE-FT); needs no model", tpgm::tools::configure_wise},
    {"convert", "convert any checkpoint to safetensors", tpgm::tools::configure_convert},
    {"zeroshot", "make a zero-shot head from class names and templates, with CLIP",
     tpgm::tools::configure_zeroshot},
    {"data", "check, split, pack or draw a data set", tpgm::tools::configure_data},
    {"predict", "write logits or features of images to a file", tpgm::tools::configure_predict},
    {"pretrain", "pre-train a small CLIP on images and text, contrastively", tpgm::tools::configure_pretrain},
    {"report", "write an HTML report of runs: tables, curves, layers, images", tpgm::tools::configure_report},
    {"reproduce", "run a table of the paper from its recipes, and compare the numbers",
     tpgm::tools::configure_reproduce},
    {"theory", "check Theorem 1 of the paper numerically", tpgm::tools::configure_theory},
    {"bench", "benchmark tpgm against PyTorch and other baselines", tpgm::tools::configure_bench},
};

std::string version_text() {
  std::string cuda = "no (built without)";
  if (tpgm::built_with_cuda()) {
    const auto devices = torch::cuda::device_count();
    cuda = devices == 0 ? "no (no device visible)"
                        : fmt::format("yes ({} device{})", devices, devices == 1 ? "" : "s");
  }
  return fmt::format("tpgm {}\nLibTorch: {}\nCUDA: {}\nthreads: {}", tpgm::version(), TORCH_VERSION, cuda,
                     at::get_num_threads());
}

// The last of a repeated option wins, as in most commands; lists grow.
void take_last(CLI::App& app) {
  for (auto* option : app.get_options()) {
    if (option->nonpositional() && option->get_items_expected_max() == 1 &&
        option->get_multi_option_policy() == CLI::MultiOptionPolicy::Throw)
      option->take_last();
  }
  for (auto* sub : app.get_subcommands([](CLI::App*) { return true; })) take_last(*sub);
}

}  // namespace

int main(int argc, char** argv) {
#ifdef __GLIBC__
  // A step frees gradients and activations, and the next one allocates them again. If glibc returned them to
  // the system in between, they would be cleared and mapped again, page by page (measured:
  // docs/performance-notes.md). If glibc refuses so high a threshold, both stay at their defaults: the second
  // call alone would make it slower.
  if (mallopt(M_MMAP_THRESHOLD, 1 << 30) == 1) mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
#endif
  CLI::App app("Fine-tune pre-trained models and keep their robustness.", "tpgm");
  app.formatter(tpgm::tools::help_formatter());
  app.set_version_flag("--version", version_text, "Print the version and exit");
  app.option_defaults()->always_capture_default();
  app.require_subcommand(1);
  app.footer("tpgm COMMAND --help shows the options of a command and their defaults.");

  std::map<const CLI::App*, std::pair<const char*, Run>> runs;
  for (const auto& command : kCommands) {
    auto* sub = app.add_subcommand(command.name, command.summary);
    sub->footer("");
    sub->option_defaults()->always_capture_default();
    runs[sub] = {command.name, command.configure(*sub)};
  }
  take_last(app);
  const bool asks = argc > 1 && std::string(argv[1]) == "help";
  if (argc == 1 || (asks && argc == 2)) {
    if (!asks) {
      tpgm::tools::say(app.help());
      return 2;
    }
    fmt::print("{}", app.help());
    return 0;
  }
  if (asks) {  // "help train" is "train --help"
    std::rotate(argv + 1, argv + 2, argv + argc);
    argv[argc - 1] = const_cast<char*>("--help");
  }
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (const auto complaint = tpgm::tools::unknown_command(app, words); !complaint.empty()) {
    tpgm::tools::say(complaint);
    return 2;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    std::string command = "tpgm";
    const CLI::App* at = &app;
    for (; !at->get_subcommands().empty(); command += " " + at->get_name()) {
      at = at->get_subcommands().front();
    }
    const auto complaint = tpgm::tools::complaint_of(error, *at, words);
    tpgm::tools::say(fmt::format("{}: {}{} {} --help\n", command, complaint,
                                 complaint.ends_with('?') ? " See" : "; see", command));
    return 2;
  }
  const CLI::App* at = app.get_subcommands().front();
  const auto& [name, command] = runs.at(at);
  std::string whole_name = name;
  while (!at->get_subcommands().empty()) {
    at = at->get_subcommands().front();
    whole_name += " " + at->get_name();
  }
  return tpgm::tools::run(whole_name, command);
}
