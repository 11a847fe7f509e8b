// Runs programs without a shell, so that paths reach them as they are.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <string>
#include <vector>

namespace tpgm {

/// A program whose output is read through a pipe. Its input and its errors are those of this process.
class ChildProcess {
 public:
  enum class Errors { kShown, kHidden };

  /// Runs arguments[0], which is found in PATH if it has no '/'. If it cannot be run, its output is empty and
  /// its status that of a shell: exit status 127.
  explicit ChildProcess(const std::vector<std::string>& arguments, Errors errors = Errors::kShown);
  /// Waits for its end.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  FILE* output() const { return output_; }
  /// All that is left of its output.
  std::string read_all();
  /// Closes the pipe and waits for the end of the program: its status, as waitpid() has it.
  int wait();

 private:
  pid_t process_ = -1;
  FILE* output_ = nullptr;
  int status_ = 127 << 8;
};

}  // namespace tpgm
