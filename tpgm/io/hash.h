// A fingerprint of files, to say later which ones something was made from.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace tpgm {

/// XXH3 of 128 bits: at the speed of memory, and not meant to withstand somebody who forges files. A build
/// without xxhash throws in the constructor (no_hash.cpp).
class Fingerprint {
 public:
  Fingerprint();
  ~Fingerprint();
  Fingerprint(Fingerprint&&) noexcept;
  Fingerprint& operator=(Fingerprint&&) noexcept;

  void add(std::string_view bytes);
  /// "xxh3-128:" and 32 hex digits, the ones `xxh128sum FILE` prints.
  std::string text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tpgm
