// The stream that kernels on a device have to run on.
#pragma once

#include <c10/core/Device.h>

namespace tpgm {

/// LibTorch's current stream on `device` as a cudaStream_t; null for the CPU.
void* current_stream(c10::Device device);

/// True if that stream is being captured in a graph: kernels do not run yet, and nothing may wait for them.
bool capturing(c10::Device device);

}  // namespace tpgm
