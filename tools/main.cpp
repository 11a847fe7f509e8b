// The `tpgm` command: a table of subcommands.
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/cuda.h>
#include <torch/version.h>

#include <cstdio>
#include <map>
#include <string>

#include "tools/command.h"

namespace {

using tpgm::tools::Command;
using tpgm::tools::Run;

constexpr Command kCommands[] = {
    {"list", "methods, with their options and defaults", tpgm::tools::configure_list},
    {"theory", "Theorem 1 of the paper, numerically", tpgm::tools::configure_theory},
    {"bench", "our speed beside its rivals', in one run", tpgm::tools::configure_bench},
};

std::string version() {
  return fmt::format("tpgm {}\nLibTorch: {}\nCUDA: {}\nthreads: {}", TPGM_VERSION, TORCH_VERSION,
                     torch::cuda::is_available()
                         ? fmt::format("yes ({} device{})", torch::cuda::device_count(),
                                       torch::cuda::device_count() == 1 ? "" : "s")
                         : "no",
                     at::get_num_threads());
}

int run(const char* name, const Run& command) {
  try {
    return command();
  } catch (const c10::Error& error) {
    fmt::print(stderr, "tpgm {}: {}\n", name, error.what_without_backtrace());
  } catch (const std::exception& error) {
    fmt::print(stderr, "tpgm {}: {}\n", name, error.what());
  }
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Fine-tune pre-trained models and keep their robustness.", "tpgm");
  app.set_version_flag("--version", version);
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
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const auto& [name, command] = runs.at(app.get_subcommands().front());
  return run(name, command);
}
