// Helpers around launches of CUDA kernels.
#pragma once

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

namespace tpgm::kernels {

/// Throws if the last launch failed.
inline void check_launch() {
  if (const auto error = cudaGetLastError(); error != cudaSuccess) {
    const bool other_gpu =
        error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction;
    throw std::runtime_error(
        std::string("[tpgm] a CUDA kernel could not be launched: ") + cudaGetErrorString(error) +
        (other_gpu ? " (built for other GPUs: set TPGM_CUDA_ARCHITECTURES when configuring)" : ""));
  }
}

/// The number of multiprocessors of the current device.
inline int multiprocessors() {
  int device = 0, count = 1;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) != cudaSuccess)
    throw std::runtime_error("[tpgm] the CUDA device does not say how many multiprocessors it has");
  return count;
}

}  // namespace tpgm::kernels
