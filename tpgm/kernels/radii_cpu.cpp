// The optimizer of the radii on the CPU.
#include <algorithm>

#include "tpgm/kernels/radii_math.h"

namespace tpgm::kernels {
namespace {

void start(const RadiiCall& call, const RadiiStart& start) {
  for (int64_t k = 0; k < call.count; ++k) start_one(call, start, k);
}

void step(const RadiiCall& call, const RadiiStep& step) {
  for (int64_t k = 0; k < call.count; ++k)
    if (save_or_restore(call, k)) step_one(call, step, k);
}

void clamp(const RadiiCall& call, const double* largest) {
  for (int64_t k = 0; k < call.count; ++k)
    if (save_or_restore(call, k)) clamp_one(call, largest, k);
}

void restore(const RadiiCall& call) {
  for (int64_t k = 0; k < call.count; ++k) restore_one(call, k);
}

void expect_finite(const double* value, int32_t code, int32_t* report, void*) {
  if (!std::isfinite(*value)) *report = std::min(*report, code);
}

}  // namespace

const RadiiBackend& radii_cpu() {
  static const RadiiBackend backend{start, step, clamp, restore, expect_finite};
  return backend;
}

}  // namespace tpgm::kernels
