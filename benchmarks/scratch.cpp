#include "benchmarks/scratch.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <system_error>

namespace tpgm::benchmarks {

namespace fs = std::filesystem;

Scratch::Scratch(const fs::path& parent) {
  std::error_code error;
  TORCH_CHECK(fs::is_directory(parent, error), "'", parent.string(), "' is not a folder to put files in");
  std::string name = (fs::absolute(parent) / "tpgm-bench-XXXXXX").string();
  TORCH_CHECK(::mkdtemp(name.data()) != nullptr, "cannot make a folder in '", parent.string(),
              "': ", std::strerror(errno));
  path_ = name;
  int ends[2] = {-1, -1};
  const char* const arguments[] = {"rm", "-rf", "--", path_.c_str(), nullptr};
  remover_ = ::pipe2(ends, O_CLOEXEC) == 0 ? ::fork() : -1;
  if (remover_ == 0) {
    // Only what is safe in a signal handler. An interrupt from the terminal reaches this process, too.
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::signal(number, SIG_IGN);
    ::close(ends[1]);
    char none = 0;
    while (::read(ends[0], &none, 1) != 0) {  // until the other end is closed, however that happens
    }
    ::execvp(arguments[0], const_cast<char* const*>(arguments));
    ::_exit(127);
  }
  ::close(ends[0]);
  alive_ = ends[1];
  if (remover_ < 0) fs::remove(path_, error);
  TORCH_CHECK(remover_ > 0, "cannot start a process: ", std::strerror(errno));
}

Scratch::~Scratch() {
  ::close(alive_);
  ::waitpid(remover_, nullptr, 0);
}

}  // namespace tpgm::benchmarks
