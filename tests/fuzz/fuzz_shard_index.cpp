// The index of a checkpoint in shards.
#include "tests/fuzz/support.h"
#include "tpgm/io/shard_index.h"

using namespace tpgm;

FUZZ(bytes) {
  fuzz::parse_or_refuse(bytes.size(), [&] {
    const auto files = parse_shard_index(bytes);
    fuzz::demand(!files.empty(), "an index names files");
    for (const auto& [tensor, file] : files) {
      const std::filesystem::path path(file);
      fuzz::demand(path.filename() == path && path != "." && path != "..", "an index stays in its folder");
    }
  });
}
