#include "tpgm/core/cuda_stream.h"

namespace tpgm {

void* current_stream(c10::Device) { return nullptr; }
bool capturing(c10::Device) { return false; }

}  // namespace tpgm
