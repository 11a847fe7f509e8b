// All constrained tensors and their anchors as one batch: the plan, the pointers and the scratch memory of
// the projection kernels. Pointers in, no torch: bindings, such as LibTorch's in core/displacements.h, are
// thin adapters of this.
#pragma once

#include <cstdint>
#include <vector>

#include "tpgm/kernels/projection.h"

namespace tpgm::kernels {

/// Owns what kernels need beside the tensors: the plan, on the host and on the device, and scratch memory.
/// Each call is given what it reads and writes: `operands`, one per tensor, and arrays of float64 on the
/// backend's device. CUDA kernels run asynchronously on `stream` (a cudaStream_t); on the CPU a call is done
/// when it returns.
///
/// *Distances* are one array of distances_size() numbers: those of all rows, tensor after tensor, then the
/// smallest of each tensor, then the largest of each tensor.
class TensorBatch {
 public:
  /// `report` (one number on the backend's device) is where kernels report NaN and Inf; see finite_code.h. It
  /// must outlive this object, as must the memory.
  TensorBatch(const Backend& backend, const std::vector<Layout>& layouts, Norm norm, int32_t* report,
              const Memory& memory, ParallelFor parallel_for = {});

  int64_t tensors() const { return static_cast<int64_t>(plan_.tensors.size()); }
  int64_t rows() const { return plan_.rows; }
  const Layout& layout(int64_t tensor) const { return plan_.tensors[static_cast<size_t>(tensor)].layout; }

  int64_t distances_size() const { return rows() + 2 * tensors(); }
  int64_t smallest_at() const { return rows(); }  ///< index in an array of distances
  int64_t largest_at() const { return rows() + tensors(); }

  /// From now on no projection brings a row nearer to its anchor than `closest` (one number per row), however
  /// small its radius. The array must outlive this object.
  void keep_away(const double* closest) { closest_ = closest; }

  /// These are documented at Backend.
  void measure(const std::vector<Operands>& operands, double* distances, void* stream);
  void project(const std::vector<Operands>& operands, const double* distances, const double* radii,
               void* stream);
  void measure_and_project(const std::vector<Operands>& operands, double* distances, const double* radii,
                           void* stream);
  void interpolate(const std::vector<Operands>& operands, const double* ratios, void* stream);
  void radius_gradients(const std::vector<Operands>& operands, const double* distances, const double* radii,
                        Rows rows, double* result, void* stream);
  void measure_radius_gradients(const std::vector<Operands>& operands, const double* distances,
                                const double* radii, Rows rows, double* now, double* result, void* stream);
  void add_displacement(const std::vector<Operands>& operands, double factor, void* stream);

 private:
  Batch call(const std::vector<Operands>& operands, void* stream) const;
  Distances split(const double* distances) const;

  const Backend& backend_;
  const NormTraits norm_;
  const Plan plan_;
  ParallelFor parallel_for_;
  const TensorPlan* device_tensors_;
  const Piece* device_pieces_;
  double *partials_, *row_dots_;
  uint32_t* tickets_;
  int32_t* report_;
  const double* closest_ = nullptr;
};

}  // namespace tpgm::kernels
