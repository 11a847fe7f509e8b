// The radii's arithmetic on CUDA: a block or two.
#include "tpgm/kernels/launch.cuh"
#include "tpgm/kernels/radii_math.h"

namespace tpgm::kernels {
namespace {

constexpr int kThreads = 256;

__global__ void step_kernel(RadiiCall call, RadiiStep step) {
  const int64_t k = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (k < call.count && save_or_go_back(call, k)) step_one(call, step, k);
}

__global__ void clamp_kernel(RadiiCall call, const double* largest) {
  const int64_t k = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (k < call.count && save_or_go_back(call, k)) clamp_one(call, largest[k], k);
}

__global__ void expect_finite_kernel(const double* value, int32_t code, int32_t* report) {
  if (!isfinite(*value)) atomicMin(report, code);
}

unsigned blocks_for(const RadiiCall& call) {
  return static_cast<unsigned>((call.count + kThreads - 1) / kThreads);
}

void step(const RadiiCall& call, const RadiiStep& step) {
  step_kernel<<<blocks_for(call), kThreads, 0, static_cast<cudaStream_t>(call.stream)>>>(call, step);
  check_launch();
}

void clamp(const RadiiCall& call, const double* largest) {
  clamp_kernel<<<blocks_for(call), kThreads, 0, static_cast<cudaStream_t>(call.stream)>>>(call, largest);
  check_launch();
}

void expect_finite(const double* value, int32_t code, int32_t* report, void* stream) {
  expect_finite_kernel<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(value, code, report);
  check_launch();
}

}  // namespace

const RadiiBackend& radii_cuda() {
  static const RadiiBackend backend{step, clamp, expect_finite};
  return backend;
}

}  // namespace tpgm::kernels
