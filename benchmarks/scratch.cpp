#include "benchmarks/scratch.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "benchmarks/python.h"

namespace tpgm::benchmarks {

namespace fs = std::filesystem;

Scratch::Scratch(const fs::path& parent, const std::string& call) {
  std::error_code error;
  TORCH_CHECK(fs::is_directory(parent, error), "[", call, "] '", parent.string(),
              "' is no folder to put files in");
  std::string name = "tpgm-" + call + "-XXXXXX";
  std::replace(name.begin(), name.end(), ' ', '-');
  name = (fs::absolute(parent) / name).string();
  TORCH_CHECK(::mkdtemp(name.data()) != nullptr, "[", call, "] cannot make a folder in '", parent.string(),
              "': ", std::strerror(errno));
  path_ = name;
  // An interrupt from the terminal reaches it too.
  remover_ =
      ::popen(fmt::format("trap '' INT TERM HUP QUIT; read _; rm -rf -- {}", in_shell(path_)).c_str(), "we");
  if (remover_ == nullptr) fs::remove(path_, error);
  TORCH_CHECK(remover_ != nullptr, "[", call, "] cannot run a shell");
}

Scratch::~Scratch() { ::pclose(remover_); }

}  // namespace tpgm::benchmarks
