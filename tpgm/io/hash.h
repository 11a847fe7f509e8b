// Fingerprints of files, which identify the inputs that an output was made from.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace tpgm {

/// XXH3 with 128 bits: as fast as memory, but not cryptographic. In a build without xxhash the constructor
/// throws (no_hash.cpp).
class Fingerprint {
 public:
  Fingerprint();
  ~Fingerprint();
  Fingerprint(Fingerprint&&) noexcept;
  Fingerprint& operator=(Fingerprint&&) noexcept;

  void add(std::string_view bytes);
  /// "xxh3-128:" and the 32 hex digits that `xxh128sum FILE` prints.
  std::string text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tpgm
