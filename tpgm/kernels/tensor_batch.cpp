#include "tpgm/kernels/tensor_batch.h"

#include <utility>

namespace tpgm::kernels {
namespace {

template <class T>
T* zeros(const Memory& memory, size_t count) {
  return static_cast<T*>(memory(count * sizeof(T), nullptr));
}

template <class T>
const T* copy(const Memory& memory, const std::vector<T>& values) {
  static_assert(std::is_trivially_copyable_v<T>);
  return static_cast<const T*>(memory(values.size() * sizeof(T), values.data()));
}

}  // namespace

TensorBatch::TensorBatch(const Backend& backend, const std::vector<Layout>& layouts, Norm norm,
                         int32_t* report, const Memory& memory, ParallelFor parallel_for)
    : backend_(backend),
      norm_(traits(norm)),
      plan_(make_plan(layouts)),
      parallel_for_(std::move(parallel_for)),
      device_tensors_(copy(memory, plan_.tensors)),
      device_pieces_(copy(memory, plan_.pieces)),
      partials_(zeros<double>(memory, 2 * plan_.pieces.size())),
      row_dots_(zeros<double>(memory, static_cast<size_t>(plan_.rows))),
      tickets_(zeros<uint32_t>(memory, plan_.tensors.size())),
      report_(report) {}

Batch TensorBatch::call(const std::vector<Operands>& operands, void* stream) const {
  return {&plan_,   device_tensors_, device_pieces_, operands.data(), partials_,
          tickets_, report_,         parallel_for_,  stream};
}

// Kernels only read the distances that a call takes as const.
Distances TensorBatch::split(const double* distances) const {
  auto* rows = const_cast<double*>(distances);
  return {rows, rows + smallest_at(), rows + largest_at()};
}

void TensorBatch::measure(const std::vector<Operands>& operands, double* distances, void* stream) {
  backend_.measure(call(operands, stream), norm_.row_norm, split(distances));
}

void TensorBatch::project(const std::vector<Operands>& operands, const double* distances, const double* radii,
                          void* stream) {
  backend_.project(call(operands, stream), norm_.ratio_of, split(distances), {radii, closest_});
}

void TensorBatch::measure_and_project(const std::vector<Operands>& operands, double* distances,
                                      const double* radii, void* stream) {
  backend_.measure_and_project(call(operands, stream), norm_.row_norm, norm_.ratio_of, split(distances),
                               {radii, closest_});
}

void TensorBatch::interpolate(const std::vector<Operands>& operands, const double* ratios, void* stream) {
  backend_.interpolate(call(operands, stream), ratios);
}

void TensorBatch::radius_gradients(const std::vector<Operands>& operands, const double* distances,
                                   const double* radii, Rows rows, double* result, void* stream) {
  backend_.radius_gradients(call(operands, stream), norm_.ratio_of, rows, split(distances), radii, row_dots_,
                            result);
}

void TensorBatch::measure_radius_gradients(const std::vector<Operands>& operands, const double* distances,
                                           const double* radii, Rows rows, double* now, double* result,
                                           void* stream) {
  backend_.measure_radius_gradients(call(operands, stream), norm_.row_norm, norm_.ratio_of, rows,
                                    split(distances), radii, split(now), row_dots_, result);
}

void TensorBatch::add_displacement(const std::vector<Operands>& operands, double factor, void* stream) {
  backend_.add_displacement(call(operands, stream), factor);
}

}  // namespace tpgm::kernels
