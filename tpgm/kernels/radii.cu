// The optimizer of the radii on CUDA: one thread per radius, a block or two in all.
#include "tpgm/kernels/launch.cuh"
#include "tpgm/kernels/radii_math.h"

namespace tpgm::kernels {
namespace {

constexpr int kThreads = 256;

__device__ int64_t radius_of_thread() { return static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; }

__global__ void start_kernel(RadiiCall call, RadiiStart start) {
  const int64_t k = radius_of_thread();
  if (k < call.count) start_one(call, start, k);
}

__global__ void step_kernel(RadiiCall call, RadiiStep step) {
  const int64_t k = radius_of_thread();
  if (k < call.count && save_or_restore(call, k)) step_one(call, step, k);
}

__global__ void clamp_kernel(RadiiCall call, const double* largest) {
  const int64_t k = radius_of_thread();
  if (k < call.count && save_or_restore(call, k)) clamp_one(call, largest, k);
}

__global__ void restore_kernel(RadiiCall call) {
  const int64_t k = radius_of_thread();
  if (k < call.count) restore_one(call, k);
}

__global__ void expect_finite_kernel(const double* value, int32_t code, int32_t* report) {
  if (!isfinite(*value)) atomicMin(report, code);
}

template <class... Parameters>
void launch(const RadiiCall& call, void (*kernel)(RadiiCall, Parameters...),
            const Parameters&... parameters) {
  const auto blocks = static_cast<unsigned>((call.count + kThreads - 1) / kThreads);
  kernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(call.stream)>>>(call, parameters...);
  check_launch();
}

void start(const RadiiCall& call, const RadiiStart& start) { launch(call, start_kernel, start); }
void step(const RadiiCall& call, const RadiiStep& step) { launch(call, step_kernel, step); }
void clamp(const RadiiCall& call, const double* largest) { launch(call, clamp_kernel, largest); }
void restore(const RadiiCall& call) { launch(call, restore_kernel); }

void expect_finite(const double* value, int32_t code, int32_t* report, void* stream) {
  expect_finite_kernel<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(value, code, report);
  check_launch();
}

}  // namespace

const RadiiBackend& radii_cuda() {
  static const RadiiBackend backend{start, step, clamp, restore, expect_finite};
  return backend;
}

}  // namespace tpgm::kernels
