// All constrained tensors of a model as one batch: how far each is from its anchor, and the projections back.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tpgm/core/anchor.h"
#include "tpgm/core/selection.h"
#include "tpgm/kernels/projection.h"
#include "tpgm/kernels/radii.h"

namespace tpgm {

/// The distance n of a tensor from its anchor, and with it what a radius limits.
enum class Norm {
  kL2,       ///< Frobenius norm of the displacement; one ratio per tensor.
  kMars,     ///< Sum of magnitudes of each row (all dims but the first); one radius per tensor, one ratio per
             ///< row. A tensor of rank 0 or 1 is one row.
  kMarsMax,  ///< The largest of those row sums; one ratio per tensor.
};

/// Holds the tensors of a model beside their anchor and runs the kernels over all of them at once, on the
/// device they are on. Per-tensor numbers are float64 tensors of shape [size()] on that device, in the order
/// of names().
///
/// The tensors must stay on their device, in their type and shape; their memory format may change. Tensors
/// that are not dense (a slice of something larger) are worked on in a dense copy.
///
/// NaN and Inf: on the CPU a call throws at once. On CUDA nothing waits: a flag on the device turns all later
/// writes into no-ops, and the error comes from the first poll() after the flag has reached the host, or from
/// check(), which waits for it. After the error the flag is clear.
///
/// In a graph: calls may be recorded while capturing() is true, and replayed. They read and write the same
/// memory each time; poll(), post() and check() do nothing then and belong outside of the recording.
class Constraints {
 public:
  /// `owner` names the method in messages. Throws if the tensors are on several devices.
  Constraints(std::string owner, const std::vector<Selected>& selected, Norm norm, AnchorStorage storage);

  int64_t size() const { return static_cast<int64_t>(tensors_.size()); }
  const std::vector<std::string>& names() const { return names_; }
  const std::vector<at::Tensor>& tensors() const { return tensors_; }
  const std::vector<at::Tensor>& anchors() const { return anchors_; }
  at::Device device() const { return device_; }
  Norm norm() const { return norm_; }
  at::TensorOptions scalar_options() const;
  /// The tensors' .grad; undefined where there is none.
  std::vector<at::Tensor> gradients() const;
  /// Per-tensor numbers by name, on the host. Waits for the device.
  torch::OrderedDict<std::string, double> by_name(const at::Tensor& values) const;
  /// Tells this set of anchors from another; see fingerprint().
  int64_t anchor_fingerprint() const;

  /// Measures the distances of the tensors as they are now. With `hold`, also keeps a copy of them: until
  /// release(), slopes and projections start from the held copy, not from the tensors. If it
  /// throws, distances and held copy are as before.
  void measure(bool hold = false);
  /// min and max over rows of the distances last measured, in memory that the next measure() changes.
  const at::Tensor& smallest() const { return smallest_; }
  const at::Tensor& largest() const { return largest_; }
  /// All of them, rows first, to be saved and loaded.
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
  /// From now on projections leave a tensor's direction from its anchor to be read off it: no row comes
  /// nearer than 2^-16 of its anchor's norm (float64: 2^-45), where rounding would begin to hide the
  /// direction. False, and nothing changes, if a tensor is of a 16-bit type: those have no bits to spare.
  bool keep_directions();
  /// Uninitialised, like the tensors but dense. Those that are float32 and in `in_bfloat16` (the very
  /// variables) are of that type.
  std::vector<at::Tensor> room_for_copies(const std::vector<at::Tensor>& in_bfloat16) const;
  /// tensor ← anchor + ratio · displacement; a ratio may be any number.
  void interpolate(const at::Tensor& ratios);
  /// The derivative of a loss with respect to each radius: Σ_rows ⟨G_r, Δ_r⟩ / n_r, G its gradient with
  /// respect to the tensors (an undefined one counts as zero; of float32 tensors it may be bfloat16), over
  /// the `rows` whose ratio the radius determines.
  at::Tensor slopes(const std::vector<at::Tensor>& gradients, const at::Tensor& radii, kernels::Rows rows);
  /// The same with the tensors' own distances n, measured in the same pass, and the largest of those. Which
  /// rows the radius determines is still for the distances last measured to say, and those stay.
  struct MeasuredSlopes {
    at::Tensor slopes, largest;
  };
  MeasuredSlopes measure_slopes(const std::vector<at::Tensor>& gradients, const at::Tensor& radii,
                                kernels::Rows rows);
  /// gradient ← gradient + factor · displacement.
  void add_displacement(std::vector<at::Tensor>& gradients, double factor);

  bool holding() const { return holding_; }
  const std::vector<at::Tensor>& held() const { return held_; }
  /// From now on the held copy keeps its memory (on CUDA), from one measure() to the next and after
  /// release(): for a recorded step that reads what the one before it held.
  void keep_held_memory() { keeps_memory_ = true; }
  /// Holds the given values (one per tensor, same shapes) as if they had been measured.
  void load_held(const std::vector<at::Tensor>& values);
  void release();

  /// Counts a loss that is not finite like a NaN in the weights.
  void expect_finite_loss(const at::Tensor& loss);
  /// The flag, where the kernels note what was not finite since it was last clear: kernels::Batch::report.
  const at::Tensor& report() const { return report_; }
  /// Throws if something was not; waits for the device. `poll` looks only at what has already arrived.
  void check();
  void poll();
  /// Starts the flag's way to the host; what poll() looks at.
  void post();

 private:
  std::vector<at::Tensor> dense_tensors() const;
  std::vector<at::Tensor> sources() const;
  void check_unchanged() const;
  std::vector<at::Tensor> room_for_held(const std::vector<at::Tensor>& weights) const;
  void measure(const std::vector<at::Tensor>& weights, const std::vector<at::Tensor>& copies);
  kernels::Batch batch(const std::vector<kernels::Operands>& operands);
  kernels::Distances norms(const at::Tensor& distances) const;
  kernels::Distances norms() const { return norms(distances_); }
  kernels::RatioOf ratio_of() const;
  kernels::RowNorm row_norm() const;
  kernels::Limits limits(const at::Tensor& radii) const;
  std::vector<at::Tensor> laid_out_like(const std::vector<at::Tensor>& weights,
                                        const std::vector<at::Tensor>& gradients) const;
  template <class Measure>
  void measure_with(Measure&& measure);
  std::vector<kernels::Operands> operands(const std::vector<at::Tensor>& weights,
                                          const std::vector<at::Tensor>& third);
  template <class Write>
  void write_tensors(Write&& write);
  [[noreturn]] void raise(int32_t code);

  std::string owner_;
  Norm norm_;
  AnchorStorage storage_;
  at::Device device_;
  std::vector<std::string> names_;
  std::vector<at::Tensor> tensors_;
  std::vector<at::Tensor> anchors_;
  std::vector<at::Tensor> held_;
  bool holding_ = false, keeps_memory_ = false;
  mutable std::optional<int64_t> fingerprint_;

  const kernels::Backend* backend_;
  const kernels::RadiiBackend* radii_backend_;
  kernels::Plan plan_;
  at::Tensor plan_tensors_, plan_pieces_;  // the plan's arrays on the device
  at::Tensor partials_, tickets_, report_, row_dots_;
  at::Tensor distances_, smallest_, largest_;  // of all rows, and behind them what the other two name
  at::Tensor closest_;                         // keep_directions(): of all rows
  at::Tensor host_report_;
  std::optional<c10::Event> posted_;
};

}  // namespace tpgm
