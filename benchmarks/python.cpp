#include "benchmarks/python.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <sys/wait.h>

#include <cstdio>
#include <string_view>

#include "tpgm/base/shell.h"

namespace tpgm::benchmarks {

std::string in_shell(const std::filesystem::path& path) { return shell_quoted(path.string()); }

void check_python(const std::string& python, const std::filesystem::path& script,
                  const std::vector<std::string>& modules) {
  TORCH_CHECK(std::filesystem::exists(script), "--rival: there is no '", script.string(), "'");
  std::string command =
      in_shell(python) +
      R"( -c 'import importlib.util as u, sys; print("lacks", *[m for m in sys.argv[1:] if not u.find_spec(m)], sep=", ")')";
  for (const auto& module : modules) command += " " + module;
  FILE* pipe = ::popen((command + " 2> /dev/null").c_str(), "r");
  TORCH_CHECK(pipe != nullptr, "cannot run a shell");
  std::string said(1024, '\0');
  said.resize(std::fread(said.data(), 1, said.size(), pipe));
  const int status = ::pclose(pipe);
  constexpr std::string_view kLacks = "lacks";
  TORCH_CHECK(status == 0 && said.starts_with(kLacks), "--python '", python, "' does not run as Python 3");
  said.pop_back();  // the end of the line
  TORCH_CHECK(
      said == kLacks, "--python '", python, "' has no ", said.substr(kLacks.size() + 2),
      "; all baselines together need: pip install torch torchvision timm open_clip_torch safetensors");
}

std::string status_text(int status) {
  return WIFEXITED(status) ? fmt::format("exit status {}", WEXITSTATUS(status))
                           : fmt::format("signal {}", WTERMSIG(status));
}

}  // namespace tpgm::benchmarks
