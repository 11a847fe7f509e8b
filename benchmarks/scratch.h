// The folder for the temporary files of a benchmark.
#pragma once

#include <sys/types.h>

#include <filesystem>

namespace tpgm::benchmarks {

/// A new folder below `parent`, which must exist. It is removed with the object, and also if the process is
/// interrupted or crashes: another process waits for its end, so that no gigabytes are left.
class Scratch {
 public:
  explicit Scratch(const std::filesystem::path& parent);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int alive_ = -1;  // a pipe that the remover waits for
  pid_t remover_ = -1;
};

}  // namespace tpgm::benchmarks
