// A whole file of PyTorch's, archive or stream.
#include "tests/fuzz/support.h"
#include "tpgm/io/torch_file.h"

using namespace tpgm;

FUZZ(bytes) {
  fuzz::parse_or_refuse(bytes.size(), [&] {
    const auto file = parse_torch_file(bytes);
    fuzz::demand(looks_like_torch_file(bytes), "what can be read also looks like it");
    fuzz::demand(!file.format.empty(), "a file has a format");
    fuzz::check_entries(file.entries, bytes);
  });
}
