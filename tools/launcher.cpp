// main() of bin/tpgm. Loading LibTorch takes a third of a second. `tpgm inspect` of one checkpoint needs none
// of it and is done here; for every other command this program executes tpgm-torch.
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "tools/command.h"
#include "tools/inspect_one.h"

namespace {

// bin/tpgm and libexec/tpgm/tpgm-torch, in the build folder as well as installed.
int hand_over(char** argv) {
  std::error_code error;
  // Libraries of LibTorch end the process without it, in words of their own.
  if (std::filesystem::current_path(error).empty()) {
    tpgm::tools::say("tpgm: the working folder does not exist any more; change into one that does\n");
    return 1;
  }
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) {
    tpgm::tools::say(fmt::format("tpgm: cannot find itself, /proc/self/exe: {}\n", error.message()));
    return 1;
  }
  const auto other = self.parent_path().parent_path() / "libexec" / "tpgm" / "tpgm-torch";
  ::execv(other.c_str(), argv);
  tpgm::tools::say(fmt::format("tpgm: cannot execute '{}': {}; build or install tpgm again\n", other.string(),
                               std::strerror(errno)));
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || std::strcmp(argv[1], "inspect") != 0) return hand_over(argv);
  tpgm::tools::InspectArguments args;
  CLI::App app;
  tpgm::tools::add_inspect_options(app, args);
  try {
    app.parse(argc - 1, argv + 1);
  } catch (const CLI::ParseError&) {  // help, too
    return hand_over(argv);
  }
  if (!args.b.empty()) return hand_over(argv);
  return tpgm::tools::run("inspect", [&] { return tpgm::tools::inspect_one(args); });
}
