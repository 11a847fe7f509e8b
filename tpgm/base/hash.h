// A hash that is the same on every machine, unlike std::hash.
#pragma once

#include <cstdint>
#include <string_view>

namespace tpgm {

/// FNV-1a with 64 bits. To hash a text in pieces, give the hash of the pieces before as `hash`.
constexpr uint64_t fnv1a(std::string_view bytes, uint64_t hash = 0xcbf29ce484222325) {
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  return hash;
}

}  // namespace tpgm
