// Lists the files in a tar archive, header by header.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace tpgm {

struct TarEntry {
  std::string name;
  uint64_t offset = 0;  // of its content in the archive
  uint64_t size = 0;
};

/// Reads ustar, GNU's long names and large sizes, and paths and sizes of pax. It skips folders, links and
/// devices. Throws Malformed.
class TarReader {
 public:
  /// Copies `size` bytes from `offset`; TarReader asks only for bytes within the file.
  using Read = std::function<void(uint64_t offset, char* to, size_t size)>;

  TarReader(uint64_t file_size, Read read) : file_size_(file_size), read_(std::move(read)) {}

  /// The next file; nothing at the end.
  std::optional<TarEntry> next();
  /// The content of an entry. The caller checks first that its size is reasonable.
  std::string bytes(const TarEntry& entry) const;

 private:
  std::string text(uint64_t size);

  uint64_t file_size_, at_ = 0;
  Read read_;
};

}  // namespace tpgm
