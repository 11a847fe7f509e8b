// A hash that is the same on every machine and in every version: for fingerprints in files, and for draws.
#pragma once

#include <cstdint>
#include <string_view>

namespace tpgm {

/// FNV-1a over all bytes that were added, whatever their cuts.
class Fnv1a {
 public:
  Fnv1a& add(std::string_view bytes) {
    for (const char byte : bytes) hash_ = (hash_ ^ static_cast<unsigned char>(byte)) * 0x100000001b3ULL;
    return *this;
  }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0xcbf29ce484222325ULL;
};

}  // namespace tpgm
