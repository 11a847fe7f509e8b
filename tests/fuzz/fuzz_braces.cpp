// A pattern of shards.
#include "tests/fuzz/support.h"
#include "tpgm/data/sources/braces.h"

using namespace tpgm;

FUZZ(bytes) {
  constexpr size_t kNames = size_t{512} << 20;  // a short pattern may stand for many names
  fuzz::parse_or_refuse(kNames, [&] {
    size_t size = 0;
    const auto names = parse_braces(std::string(bytes));
    for (const auto& name : names) {
      size += name.size();
      fuzz::demand(name.find('{') == std::string::npos, "a name has no brace that opens");
    }
    fuzz::demand(!names.empty() && names.size() <= 1'000'000 && size <= kNames / 2 + bytes.size(),
                 "names are within their limits");
  });
}
