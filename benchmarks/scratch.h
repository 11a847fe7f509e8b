// Where a benchmark puts its files.
#pragma once

#include <cstdio>
#include <filesystem>
#include <string>

namespace tpgm::benchmarks {

/// A folder of its own below `parent`, which must be there. It goes with the object, or with the process if
/// that is interrupted or crashes: a shell waits for its end, so that no gigabytes stay behind.
class Scratch {
 public:
  /// `call` begins messages: "bench io".
  Scratch(const std::filesystem::path& parent, const std::string& call);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  FILE* remover_ = nullptr;
};

}  // namespace tpgm::benchmarks
