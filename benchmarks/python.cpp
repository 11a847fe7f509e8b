#include "benchmarks/python.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <sys/wait.h>

#include <cstdio>
#include <string_view>

#include "tpgm/base/child_process.h"

namespace tpgm::benchmarks {

void check_python(const std::string& python, const std::filesystem::path& script,
                  const std::vector<std::string>& modules) {
  TORCH_CHECK(std::filesystem::exists(script), "--rival: there is no '", script.string(), "'");
  std::vector<std::string> command = {
      python, "-c",
      "import importlib.util as u, sys; "
      "print('lacks', *[m for m in sys.argv[1:] if not u.find_spec(m)], sep=', ')"};
  command.insert(command.end(), modules.begin(), modules.end());
  ChildProcess process(command, ChildProcess::Errors::kHidden);
  std::string said = process.read_all();
  const int status = process.wait();
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
