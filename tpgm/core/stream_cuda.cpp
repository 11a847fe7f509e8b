#include <c10/cuda/CUDAStream.h>

#include "tpgm/core/stream.h"

namespace tpgm {

void* current_stream(c10::Device device) {
  return device.is_cuda() ? c10::cuda::getCurrentCUDAStream(device.index()).stream() : nullptr;
}

}  // namespace tpgm
