// Amounts of memory as people write them.
#pragma once

#include <cstdint>
#include <string>

namespace tpgm {

/// "5GB" → 5·10⁹, "5GiB" → 5·2³⁰, "1000000"; throws std::invalid_argument.
int64_t parse_bytes(const std::string& text);

}  // namespace tpgm
