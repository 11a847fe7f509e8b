// The header of a file in a tar archive (POSIX.1-1988, pax).
#pragma once

#include <cstddef>
#include <cstdint>

namespace tpgm {

inline constexpr size_t kTarBlock = 512;
inline constexpr char kTarFile = '0', kTarOldFile = '\0', kTarPax = 'x', kTarPaxGlobal = 'g',
                      kTarGnuName = 'L';

struct TarHeader {
  char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[100];
  char magic[8];  // "ustar" and a version
  char user[32], group[32], major[8], minor[8], prefix[155], padding[12];
};
static_assert(sizeof(TarHeader) == kTarBlock);

/// The sum of all bytes, where the checksum field itself counts as spaces.
inline uint32_t tar_checksum(const TarHeader& header) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(&header);
  uint32_t sum = 0;
  for (size_t i = 0; i < kTarBlock; ++i) {
    const bool own = i >= offsetof(TarHeader, checksum) && i < offsetof(TarHeader, type);
    sum += own ? ' ' : bytes[i];
  }
  return sum;
}

}  // namespace tpgm
