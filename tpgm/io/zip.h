// The directory of a zip archive, as PyTorch writes it: records found by name, read where they lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "tpgm/base/untrusted.h"

namespace tpgm {

struct ZipRecord {
  size_t header = 0;        ///< offset of the local header
  size_t size = 0;          ///< bytes in the file
  size_t inflated = 0;      ///< bytes when unpacked; the same unless `compressed`
  bool compressed = false;  ///< deflate
};

/// Reads the central directory (zip and zip64) and refuses what no writer makes: duplicate names, records
/// that overlap or leave the file, encryption, other compressions. Checksums are not looked at: PyTorch can
/// be told not to write them. Views the `file`, which has to outlive it.
class ZipArchive {
 public:
  ZipArchive(std::string_view file, MemoryBudget& budget);

  const std::unordered_map<std::string_view, ZipRecord>& records() const noexcept { return records_; }
  bool contains(std::string_view name) const { return records_.contains(name); }

  /// Where the bytes of a record are; Malformed if there is none or it is compressed.
  std::string_view stored(std::string_view name) const;
  /// Its bytes, inflated if need be; Malformed beyond `limit` bytes.
  std::string text(std::string_view name, size_t limit) const;

 private:
  std::string_view data(std::string_view name, const ZipRecord& record) const;

  std::string_view file_;
  std::unordered_map<std::string_view, ZipRecord> records_;
};

}  // namespace tpgm
