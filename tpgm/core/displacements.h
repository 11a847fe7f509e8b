// All constrained tensors of a model as one batch: their distances from the anchor, projections towards it,
// and the gradients of the radii.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/ordered_dict.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tpgm/core/anchor.h"
#include "tpgm/core/finite_flag.h"
#include "tpgm/core/selection.h"
#include "tpgm/kernels/tensor_batch.h"

namespace tpgm {

using kernels::Norm;
using kernels::Rows;

/// The tensors of a model with their anchor: the LibTorch adapter of kernels::TensorBatch, which runs each
/// kernel over all tensors at once. A *displacement* is tensor − anchor. Numbers per tensor are float64
/// tensors of shape [size()] on device(), in the order of names().
///
/// The tensors must keep their device, type and shape; their memory format may change. Tensors that are not
/// dense (slices of larger ones) are processed through a dense copy.
///
/// NaN and Inf: on the CPU a call throws at once. On CUDA nothing waits, and errors come from flag(); once it
/// is set, calls write nothing.
///
/// CUDA graphs: calls may be captured and replayed; they use the same memory each time.
class Displacements {
 public:
  /// Messages begin with [owner]. Throws if the tensors are on several devices.
  Displacements(const std::string& owner, const std::vector<Selected>& selected, Norm norm,
                AnchorStorage storage);

  int64_t size() const { return static_cast<int64_t>(tensors_.size()); }
  const std::vector<std::string>& names() const { return names_; }
  const std::vector<at::Tensor>& tensors() const { return tensors_; }
  const std::vector<at::Tensor>& anchors() const { return anchors_; }
  at::Device device() const { return device_; }
  Norm norm() const { return norm_; }
  at::TensorOptions scalar_options() const { return at::TensorOptions(at::kDouble).device(device_); }
  /// .grad of each tensor; undefined where there is none.
  std::vector<at::Tensor> gradients() const;
  /// Numbers per tensor with their names, on the host. Waits for the device.
  NamedNumbers by_name(const at::Tensor& values) const;
  /// Identifies the anchor; see fingerprint().
  int64_t anchor_fingerprint() const;
  FiniteFlag& flag() { return flag_; }

  /// Measures the distances of the present values. If it throws, the distances are as before.
  void measure();
  /// The smallest and largest row distance of each tensor, as last measured. The next measure() overwrites
  /// them.
  const at::Tensor& smallest() const { return smallest_; }
  const at::Tensor& largest() const { return largest_; }
  /// All distances in the order of kernels::TensorBatch, to save and to load.
  const at::Tensor& distances() const { return distances_; }
  void load_distances(const at::Tensor& distances);

  /// tensor ← anchor + min(1, radius / n) · displacement, with the distances n last measured.
  void project(const at::Tensor& radii);
  /// The same into `copies` (see room_for_copies()), without changing the tensors.
  void project_into(std::vector<at::Tensor>& copies, const at::Tensor& radii);
  /// measure() and project() or project_into() in one call, with fewer passes over the tensors. In place, a
  /// row that is not finite keeps its weights; other rows may have been projected when the error comes.
  void measure_and_project(const at::Tensor& radii);
  void measure_and_project_into(std::vector<at::Tensor>& copies, const at::Tensor& radii);
  /// Uninitialized dense tensors like the tensors. The copies of float32 tensors that are in `in_bfloat16`
  /// (the same variables) are bfloat16.
  std::vector<at::Tensor> room_for_copies(const std::vector<at::Tensor>& in_bfloat16) const;
  /// From now on projections preserve the direction of each row's displacement: no row comes nearer to the
  /// anchor than 2^-16 of the anchor row's norm (float64: 2^-45), because rounding would hide the direction
  /// there. Returns false and changes nothing if a tensor has a 16-bit type, which is too coarse for this.
  bool keep_directions();

  /// tensor ← anchor + ratio · displacement; a ratio may be any number.
  void interpolate(const at::Tensor& ratios);
  /// gradient ← gradient + factor · displacement.
  void add_displacement(std::vector<at::Tensor>& gradients, double factor);

  /// The radius gradients dL/dγ = Σ ⟨G_r, Δ_r⟩ / n_r over `rows`. G is the gradient of the loss with respect
  /// to the tensors, Δ the displacement, n the distances last measured. Undefined gradients count as zero;
  /// those of float32 tensors may be bfloat16.
  at::Tensor radius_gradients(const std::vector<at::Tensor>& gradients, const at::Tensor& radii, Rows rows);
  /// The same with n measured from the present values in the same pass; also returns the largest n of each
  /// tensor. The distances last measured still decide which rows count, and are not changed.
  struct Measured {
    at::Tensor radius_gradients, largest;
  };
  Measured measure_radius_gradients(const std::vector<at::Tensor>& gradients, const at::Tensor& radii,
                                    Rows rows);

 private:
  friend class HeldCopy;  // for these three:
  // From now on displacements are `sources` − anchor instead of tensor − anchor, except in measure(). There
  // is one dense tensor for each; the vector must stay alive. Null: the tensors themselves.
  void take_from(const std::vector<at::Tensor>* sources) { sources_ = sources; }
  // Measures the distances of `values`, laid out like dense_tensors(), and copies the values into `copies`
  // if it is not empty.
  void measure_values(const std::vector<at::Tensor>& values, const std::vector<at::Tensor>& copies = {});
  // The tensors; a dense copy of each that is not dense.
  std::vector<at::Tensor> dense_tensors() const;

  void check_unchanged() const;
  std::vector<at::Tensor> sources() const;
  std::vector<kernels::Operands> operands(const std::vector<at::Tensor>& weights,
                                          const std::vector<at::Tensor>& outputs_or_gradients);
  std::vector<at::Tensor> laid_out_like(const std::vector<at::Tensor>& weights,
                                        const std::vector<at::Tensor>& gradients) const;
  template <class Measure>
  void measure_with(Measure&& measure);
  template <class Write>
  void write_tensors(Write&& write);

  const std::string owner_;
  const Norm norm_;
  const AnchorStorage storage_;
  at::Device device_;
  std::vector<std::string> names_;
  std::vector<at::Tensor> tensors_, anchors_;
  const std::vector<at::Tensor>* sources_ = nullptr;
  mutable std::optional<int64_t> fingerprint_;

  FiniteFlag flag_;
  std::vector<at::Tensor> memory_;  // of the batch
  std::unique_ptr<kernels::TensorBatch> batch_;
  at::Tensor distances_, smallest_, largest_;  // the last two are views of the first
  at::Tensor closest_;                         // keep_directions(): one per row
};

}  // namespace tpgm
