// Reads zip archives as PyTorch writes them: records by name, without copies.
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

/// Reads the central directory (zip and zip64). Refuses duplicate names, records that overlap or leave the
/// file, encryption and compression other than deflate. Checksums are not verified, because PyTorch can omit
/// them. Refers to the bytes of `file`, which must outlive it.
class ZipArchive {
 public:
  ZipArchive(std::string_view file, MemoryBudget& budget);

  const std::unordered_map<std::string_view, ZipRecord>& records() const noexcept { return records_; }
  bool contains(std::string_view name) const { return records_.contains(name); }

  /// The bytes of a record, without a copy; Malformed if there is none or it is compressed.
  std::string_view stored(std::string_view name) const;
  /// The bytes of a record, decompressed if necessary; Malformed if there are more than `limit`.
  std::string text(std::string_view name, size_t limit) const;

 private:
  std::string_view data(std::string_view name, const ZipRecord& record) const;

  std::string_view file_;
  std::unordered_map<std::string_view, ZipRecord> records_;
};

}  // namespace tpgm
