// Constants of the safetensors format, for its reader and its writer.
#pragma once

#include <cstddef>

namespace tpgm {

inline constexpr size_t kSafetensorsLengthBytes = 8;  // before the header: its length
inline constexpr size_t kSafetensorsMaxHeader = 100'000'000;
inline constexpr const char* kSafetensorsMetadata = "__metadata__";

}  // namespace tpgm
