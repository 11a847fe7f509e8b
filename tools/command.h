// A subcommand of `tpgm`: its name, a line of help, and how it adds its options.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace tpgm::tools {

/// Does the work and returns the exit status: 0 ok, 1 failed. Exceptions become one line on stderr and
/// status 1.
using Run = std::function<int()>;

struct Command {
  const char* name;
  const char* summary;
  Run (*configure)(CLI::App& app);  // adds options that live as long as the Run
};

Run configure_bench(CLI::App& app);
Run configure_list(CLI::App& app);
Run configure_theory(CLI::App& app);

}  // namespace tpgm::tools
