// The stream that kernels on a device have to run on.
#pragma once

#include <c10/core/Device.h>

namespace tpgm {

/// LibTorch's current stream on `device` as a cudaStream_t; null for the CPU.
void* current_stream(c10::Device device);

}  // namespace tpgm
