// The files in a tar, one header after another.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace tpgm {

struct TarEntry {
  std::string name;
  uint64_t offset = 0;  // of its bytes
  uint64_t size = 0;
};

/// ustar, GNU's long names and large sizes, pax' paths and sizes. Folders, links and devices are left out.
/// Throws Malformed.
class TarReader {
 public:
  /// Copies `size` bytes from `offset`, which lie within the file.
  using Read = std::function<void(uint64_t offset, char* to, size_t size)>;

  TarReader(uint64_t file_size, Read read) : file_size_(file_size), read_(std::move(read)) {}

  /// The next file; nothing at the end.
  std::optional<TarEntry> next();
  /// All bytes of an entry, which the caller knows to be small.
  std::string bytes(const TarEntry& entry) const;

 private:
  std::string text(uint64_t size);

  uint64_t file_size_, at_ = 0;
  Read read_;
};

}  // namespace tpgm
