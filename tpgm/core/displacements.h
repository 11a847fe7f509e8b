// All constrained tensors of a model as one batch: how far each is from its anchor, and the ways back.
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

/// Holds the tensors of a model beside their anchor and runs the kernels over all of them at once, on the
/// device they are on: LibTorch's side of kernels::TensorBatch. Per-tensor numbers are float64 tensors of
/// shape [size()] on that device, in the order of names().
///
/// The tensors must stay on their device, in their type and shape; their memory format may change. Tensors
/// that are not dense (a slice of something larger) are worked on in a dense copy.
///
/// NaN and Inf: on the CPU a call throws at once. On CUDA nothing waits, and errors come from flag(); once it
/// is not clear, calls write nothing.
///
/// In a graph: calls may be captured, and replayed. They read and write the same memory each time.
class Displacements {
 public:
  /// `owner` names the method in messages. Throws if the tensors are on several devices.
  Displacements(std::string owner, const std::vector<Selected>& selected, Norm norm, AnchorStorage storage);

  const std::string& owner() const { return owner_; }
  int64_t size() const { return static_cast<int64_t>(tensors_.size()); }
  const std::vector<std::string>& names() const { return names_; }
  const std::vector<at::Tensor>& tensors() const { return tensors_; }
  const std::vector<at::Tensor>& anchors() const { return anchors_; }
  at::Device device() const { return device_; }
  Norm norm() const { return norm_; }
  at::TensorOptions scalar_options() const { return at::TensorOptions(at::kDouble).device(device_); }
  /// The tensors' .grad; undefined where there is none.
  std::vector<at::Tensor> gradients() const;
  /// Per-tensor numbers by name, on the host. Waits for the device.
  NamedNumbers by_name(const at::Tensor& values) const;
  /// Tells this set of anchors from another; see fingerprint().
  int64_t anchor_fingerprint() const;
  FiniteFlag& flag() { return flag_; }

  /// Measures the distances of the tensors as they are now. If it throws, distances are as before.
  void measure();
  /// min and max over rows of the distances last measured, in memory that the next measure() changes.
  const at::Tensor& smallest() const { return smallest_; }
  const at::Tensor& largest() const { return largest_; }
  /// All of them, as kernels::TensorBatch arranges them, to be saved and loaded.
  const at::Tensor& distances() const { return distances_; }
  void load_distances(const at::Tensor& distances);

  /// tensor ← anchor + min(1, radius / n) · displacement, with the distances last measured.
  void project(const at::Tensor& radii);
  /// The same into `copies`, and the tensors stay as they are; see room_for_copies().
  void project_into(std::vector<at::Tensor>& copies, const at::Tensor& radii);
  /// measure(), then either of the two, with fewer passes over the tensors. In place a row that is not
  /// finite keeps its weights, and others may have been projected when its error comes.
  void measure_and_project(const at::Tensor& radii);
  void measure_and_project_into(std::vector<at::Tensor>& copies, const at::Tensor& radii);
  /// Uninitialised, like the tensors but dense. Those that are float32 and in `in_bfloat16` (the very
  /// variables) are of that type.
  std::vector<at::Tensor> room_for_copies(const std::vector<at::Tensor>& in_bfloat16) const;
  /// From now on projections leave a tensor's direction from its anchor to be read off it: no row comes
  /// nearer than 2^-16 of its anchor's norm (float64: 2^-45), where rounding would begin to hide the
  /// direction. False, and nothing changes, if a tensor is of a 16-bit type: those have no bits to spare.
  bool keep_directions();

  /// tensor ← anchor + ratio · displacement; a ratio may be any number.
  void interpolate(const at::Tensor& ratios);
  /// gradient ← gradient + factor · displacement.
  void add_displacement(std::vector<at::Tensor>& gradients, double factor);

  /// dL/dγ, the derivative of a loss with respect to each radius: Σ_rows ⟨G_r, Δ_r⟩ / n_r, G its gradient
  /// with respect to the tensors (an undefined one counts as zero; of float32 tensors it may be bfloat16),
  /// over the `rows` whose ratio the radius determines.
  at::Tensor radius_gradients(const std::vector<at::Tensor>& gradients, const at::Tensor& radii, Rows rows);
  /// The same with the tensors' own distances n, measured in the same pass, and the largest of those. Which
  /// rows the radius determines is still for the distances last measured to say, and those stay.
  struct Measured {
    at::Tensor radius_gradients, largest;
  };
  Measured measure_radius_gradients(const std::vector<at::Tensor>& gradients, const at::Tensor& radii,
                                    Rows rows);

  // What HeldCopy needs.

  /// What displacements are taken of from now on, in place of the tensors: one dense tensor for each, which
  /// the caller keeps. Null: the tensors. measure() is of the tensors all the same.
  void take_from(const std::vector<at::Tensor>* sources) { sources_ = sources; }
  /// The distances of other values of the tensors, laid out like dense_tensors(), with a copy of the values
  /// into `copies`, if any, on the way.
  void measure_values(const std::vector<at::Tensor>& values, const std::vector<at::Tensor>& copies = {});
  /// The tensors, or dense copies of those that are not.
  std::vector<at::Tensor> dense_tensors() const;

 private:
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
  at::Tensor distances_, smallest_, largest_;  // of all rows, and behind them what the other two name
  at::Tensor closest_;                         // keep_directions(): of all rows
};

}  // namespace tpgm
