// A fingerprint of files, to say later which ones something was made from.
#pragma once

#include <string>
#include <string_view>

namespace tpgm {

/// "xxh3-128:" and 32 hex digits, the ones `xxh128sum FILE` prints. At the speed of memory; not meant to
/// withstand somebody who forges files. A build without xxhash throws (no_hash.cpp).
std::string fingerprint(std::string_view bytes);

}  // namespace tpgm
