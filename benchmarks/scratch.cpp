#include "benchmarks/scratch.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>

#include "benchmarks/python.h"

namespace tpgm::benchmarks {

namespace fs = std::filesystem;

Scratch::Scratch(const fs::path& parent, const std::string& call) {
  std::error_code error;
  TORCH_CHECK(fs::is_directory(parent, error), "[", call, "] '", parent.string(),
              "' is no folder to put files in");
  std::string name = call;
  std::replace(name.begin(), name.end(), ' ', '-');
  path_ = fs::absolute(parent) / fmt::format("tpgm-{}-{}", name, ::getpid());
  fs::create_directory(path_, error);
  TORCH_CHECK(!error, "[", call, "] cannot make a folder in '", parent.string(), "': ", error.message());
  // An interrupt from the terminal reaches it too.
  remover_ =
      ::popen(fmt::format("trap '' INT TERM HUP; read _; rm -rf -- {}", in_shell(path_)).c_str(), "we");
  TORCH_CHECK(remover_ != nullptr, "[", call, "] cannot run a shell");
}

Scratch::~Scratch() { ::pclose(remover_); }

}  // namespace tpgm::benchmarks
