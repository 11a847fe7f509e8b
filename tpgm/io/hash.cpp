// XXH3, by its own library.
#include "tpgm/io/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

namespace tpgm {

std::string fingerprint(std::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return fmt::format("xxh3-128:{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace tpgm
