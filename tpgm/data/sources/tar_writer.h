// A tar file, written as a whole or not at all.
#pragma once

#include <filesystem>
#include <string_view>

#include "tpgm/io/file.h"

namespace tpgm {

/// POSIX ustar, with a pax record for a name that does not fit it. Times, owners and modes are constants, so
/// that the same content is the same file.
class TarWriter {
 public:
  /// Throws as AtomicFile does.
  explicit TarWriter(const std::filesystem::path& path) : file_(path) {}

  /// `name` with '/' between folders.
  void add(std::string_view name, std::string_view bytes);
  /// Bytes so far.
  size_t size() const { return size_; }
  /// The last call on this object; without it nothing appears.
  void commit();

 private:
  void entry(std::string_view name, char type, std::string_view bytes);

  AtomicFile file_;
  size_t size_ = 0;
};

}  // namespace tpgm
