// A safetensors file: its header, then every tensor.
#include "tests/fuzz/support.h"
#include "tpgm/io/safetensors.h"

using namespace tpgm;

FUZZ(bytes) {
  fuzz::parse_or_refuse(bytes.size(), [&] {
    const auto header = parse_safetensors(bytes);
    fuzz::check_entries(header.entries, bytes);
  });
}
