// The CUDA stream on which our kernels run.
#pragma once

#include <c10/core/Device.h>

namespace tpgm {

/// LibTorch's current stream on `device` as a cudaStream_t; null for the CPU.
void* current_stream(c10::Device device);

/// True while that stream is captured in a CUDA graph: kernels do not run yet, and the host must not
/// synchronize.
bool capturing(c10::Device device);

}  // namespace tpgm
