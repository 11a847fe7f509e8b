#include "benchmarks/scratch.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <system_error>

#include "benchmarks/python.h"

namespace tpgm::benchmarks {

namespace fs = std::filesystem;

Scratch::Scratch(const fs::path& parent) {
  std::error_code error;
  TORCH_CHECK(fs::is_directory(parent, error), "'", parent.string(), "' is not a folder to put files in");
  std::string name = (fs::absolute(parent) / "tpgm-bench-XXXXXX").string();
  TORCH_CHECK(::mkdtemp(name.data()) != nullptr, "cannot make a folder in '", parent.string(),
              "': ", std::strerror(errno));
  path_ = name;
  // An interrupt from the terminal reaches it too.
  remover_ =
      ::popen(fmt::format("trap '' INT TERM HUP QUIT; read _; rm -rf -- {}", in_shell(path_)).c_str(), "we");
  if (remover_ == nullptr) fs::remove(path_, error);
  TORCH_CHECK(remover_ != nullptr, "cannot run a shell");
}

Scratch::~Scratch() { ::pclose(remover_); }

}  // namespace tpgm::benchmarks
