// In the place of hash.cpp where xxhash is not installed.
#include <c10/util/Exception.h>

#include "tpgm/io/hash.h"

namespace tpgm {

std::string fingerprint(std::string_view) {
  TORCH_CHECK(false,
              "[fingerprint] this tpgm was built without xxhash; install it (Debian, Ubuntu: apt-get install "
              "libxxhash-dev) and build again");
}

}  // namespace tpgm
