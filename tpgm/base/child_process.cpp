#include "tpgm/base/child_process.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace tpgm {

ChildProcess::ChildProcess(const std::vector<std::string>& arguments, Errors errors) {
  int ends[2];
  TORCH_CHECK(::pipe2(ends, O_CLOEXEC) == 0, "cannot make a pipe: ", std::strerror(errno));
  std::vector<char*> argv;
  for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  if (errors == Errors::kHidden)
    ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  if (::posix_spawnp(&process_, argv[0], &actions, nullptr, argv.data(), environ) != 0) process_ = -1;
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  output_ = ::fdopen(ends[0], "r");
}

ChildProcess::~ChildProcess() { wait(); }

std::string ChildProcess::read_all() {
  std::string text;
  for (char buffer[4096]; const size_t count = std::fread(buffer, 1, sizeof buffer, output_);)
    text.append(buffer, count);
  return text;
}

int ChildProcess::wait() {
  if (output_ != nullptr) std::fclose(std::exchange(output_, nullptr));
  if (process_ > 0) {
    while (::waitpid(process_, &status_, 0) < 0 && errno == EINTR) {
    }
    process_ = -1;
  }
  return status_;
}

}  // namespace tpgm
