// Writes a tar archive, which appears only when it is complete.
#pragma once

#include <filesystem>
#include <string_view>

#include "tpgm/io/file.h"

namespace tpgm {

/// Writes POSIX ustar, with a pax record for a name that does not fit. Times, owners and modes are constants,
/// so that the same content gives the same bytes.
class TarWriter {
 public:
  /// Throws as AtomicFile does.
  explicit TarWriter(const std::filesystem::path& path) : file_(path) {}

  /// Adds a file; `name` has '/' between folders.
  void add(std::string_view name, std::string_view bytes);
  /// Bytes written so far.
  size_t size() const { return size_; }
  /// Makes the file appear under its name. No other call may follow.
  void commit();

 private:
  void entry(std::string_view name, char type, std::string_view bytes);

  AtomicFile file_;
  size_t size_ = 0;
};

}  // namespace tpgm
