#include "tpgm/core/displacements.h"

#include <ATen/DeviceGuard.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <unordered_set>
#include <utility>

#include "tpgm/base/call.h"
#include "tpgm/core/cuda_stream.h"
#include "tpgm/core/device_memory.h"
#include "tpgm/core/dtype.h"
#include "tpgm/core/memory_order.h"
#include "tpgm/kernels/memory_layout.h"

namespace tpgm {
namespace {

bool rows_are_dense(const at::Tensor& tensor, Norm norm) {
  return kernels::rows_are_dense(tensor.sizes(), tensor.strides(), norm);
}

at::Tensor dense(const at::Tensor& tensor, Norm norm) {
  return rows_are_dense(tensor, norm) ? tensor : tensor.contiguous();
}

// Whether kernels take the operand as Operands::bf16.
bool is_bf16_beside(const at::Tensor& weights, const at::Tensor& operand) {
  return operand.scalar_type() == at::kBFloat16 && weights.scalar_type() == at::kFloat;
}

// The norms of the rows of a matrix.
at::Tensor norms_of_rows(const at::Tensor& matrix, kernels::RowNorm norm) {
  switch (norm) {
    case kernels::RowNorm::kL2:
      return matrix.square().sum(1).sqrt();
    case kernels::RowNorm::kL1:
      return matrix.abs().sum(1);
  }
  TORCH_INTERNAL_ASSERT(false, "a norm without a case");
}

// Makes the device current, and hides operations from autograd.
struct Guards {
  explicit Guards(at::Device device) : on(device) {}
  at::OptionalDeviceGuard on;
  at::NoGradGuard no_grad;
};

at::Device device_of(const std::vector<Selected>& selected) {
  TORCH_CHECK(!selected.empty(), "nothing to constrain");
  const auto device = selected.front().tensor.device();
  for (const auto& each : selected) {
    TORCH_CHECK(each.tensor.device() == device, "'", each.name, "' is on ", each.tensor.device(), ", '",
                selected.front().name, "' on ", device, "; all constrained tensors must be on one device");
  }
  TORCH_CHECK(device.is_cpu() || device.is_cuda(), "tensors on ", device,
              " are not supported; only CPU and CUDA are");
  return device;
}

std::vector<std::string> names_of(const std::vector<Selected>& selected) {
  std::vector<std::string> names;
  for (const auto& each : selected) names.push_back(each.name);
  return names;
}

}  // namespace

Displacements::Displacements(const std::string& owner, const std::vector<Selected>& selected, Norm norm,
                             AnchorStorage storage) try
    : owner_(owner),
      norm_(norm),
      storage_(storage),
      device_(device_of(selected)),
      names_(names_of(selected)),
      flag_(owner_, names_, device_) {
  std::vector<kernels::Layout> layouts;
  for (const auto& [name, tensor, pretrained] : selected) {
    tensors_.push_back(tensor);  // not detached: set_data() on the parameter must reach it
    anchors_.push_back(store_anchor(pretrained, dense(tensor, norm_), storage_));
    const auto rows = kernels::rows_of(tensor.sizes(), norm_);
    layouts.push_back({rows, tensor.numel() / rows, dtype_of(tensor.scalar_type()),
                       dtype_of(anchors_.back().scalar_type())});
  }
  batch_ = std::make_unique<kernels::TensorBatch>(
      device_.is_cuda() ? kernels::cuda() : kernels::cpu(), layouts, norm_,
      flag_.report().mutable_data_ptr<int32_t>(), memory_on(device_, memory_),
      [](int64_t n, const auto& body) { at::parallel_for(0, n, /*grain_size=*/4, body); });
  distances_ = at::zeros({batch_->distances_size()}, scalar_options());
  smallest_ = distances_.slice(0, batch_->smallest_at(), batch_->largest_at());
  largest_ = distances_.slice(0, batch_->largest_at());
  // The first step could not tell an anchor that is not finite from bad weights.
  for (size_t k = 0; k < anchors_.size(); ++k) {
    TORCH_CHECK(at::isfinite(anchors_[k]).all().item<bool>(), "the anchor of '", names_[k],
                "' holds NaN or Inf; the pre-trained weights are damaged",
                storage_ == AnchorStorage::kBFloat16 ? " or too large for bfloat16" : "");
  }
} catch (...) {
  rethrow_from(owner);
}

int64_t Displacements::anchor_fingerprint() const {
  if (!fingerprint_) fingerprint_ = fingerprint(names_, anchors_);
  return *fingerprint_;
}

std::vector<at::Tensor> Displacements::gradients() const {
  std::vector<at::Tensor> result;
  for (const auto& tensor : tensors_) result.push_back(tensor.grad());
  return result;
}

NamedNumbers Displacements::by_name(const at::Tensor& values) const {
  NamedNumbers result;
  const auto host = values.cpu();
  for (size_t k = 0; k < names_.size(); ++k) result.insert(names_[k], host.const_data_ptr<double>()[k]);
  return result;
}

void Displacements::check_unchanged() const {
  for (size_t k = 0; k < tensors_.size(); ++k) {
    const auto& tensor = tensors_[k];
    TORCH_CHECK(tensor.device() == device_ &&
                    dtype_of(tensor.scalar_type()) == batch_->layout(static_cast<int64_t>(k)).weights &&
                    tensor.sizes() == anchors_[k].sizes(),
                "[", owner_, "] '", names_[k], "' is now ", tensor.scalar_type(), tensor.sizes(), " on ",
                tensor.device(),
                ", not what it was when the method was built; move and convert the module first");
  }
}

std::vector<at::Tensor> Displacements::dense_tensors() const {
  check_unchanged();
  std::vector<at::Tensor> result;
  for (const auto& tensor : tensors_) result.push_back(dense(tensor, norm_));
  return result;
}

// The tensors that displacements are taken from. The caller must keep them until its kernels are launched:
// some may be dense copies.
std::vector<at::Tensor> Displacements::sources() const {
  if (!sources_) return dense_tensors();
  check_unchanged();
  return *sources_;
}

std::vector<kernels::Operands> Displacements::operands(const std::vector<at::Tensor>& weights,
                                                       const std::vector<at::Tensor>& outputs_or_gradients) {
  std::vector<kernels::Operands> result(weights.size());
  for (size_t k = 0; k < weights.size(); ++k) {
    // The module's memory format may have changed since the last call; the anchor follows it.
    if (!same_order(anchors_[k], weights[k])) anchors_[k] = store_anchor(anchors_[k], weights[k], storage_);
    result[k].weights = weights[k].const_data_ptr();
    result[k].anchor = anchors_[k].const_data_ptr();
    if (!outputs_or_gradients.empty() && outputs_or_gradients[k].defined()) {
      result[k].output_or_gradient = outputs_or_gradients[k].mutable_data_ptr();
      result[k].bf16 = is_bf16_beside(weights[k], outputs_or_gradients[k]);
    }
  }
  return result;
}

// Calls measure(distances). On the CPU the check may throw, and the distances must then be as before.
template <class Measure>
void Displacements::measure_with(Measure&& measure) {
  const auto measured = device_.is_cpu() ? at::empty_like(distances_) : distances_;
  measure(measured.mutable_data_ptr<double>());
  if (device_.is_cpu()) {
    flag_.check();
    distances_.copy_(measured);
  }
}

void Displacements::measure() {
  const Guards guards(device_);
  measure_values(dense_tensors());
}

void Displacements::measure_values(const std::vector<at::Tensor>& values,
                                   const std::vector<at::Tensor>& copies) {
  const Guards guards(device_);
  const auto pointers = operands(values, copies);
  measure_with([&](double* distances) { batch_->measure(pointers, distances, current_stream(device_)); });
}

void Displacements::load_distances(const at::Tensor& distances) {
  TORCH_INTERNAL_ASSERT(distances.sizes() == distances_.sizes());
  distances_.copy_(distances);
}

bool Displacements::keep_directions() {
  const Guards guards(device_);
  std::vector<at::Tensor> closest;
  for (size_t k = 0; k < tensors_.size(); ++k) {
    const auto type = tensors_[k].scalar_type();
    if (type != at::kFloat && type != at::kDouble) return false;
    const auto& layout = batch_->layout(static_cast<int64_t>(k));
    const auto anchor = anchors_[k].to(device_, at::kDouble).reshape({layout.rows, layout.cols});
    const auto traits = kernels::traits(norm_);
    auto norms = norms_of_rows(anchor, traits.row_norm);
    if (traits.ratio_of == kernels::RatioOf::kLargestRow) norms.fill_(norms.max());
    closest.push_back(norms * (type == at::kFloat ? 0x1p-16 : 0x1p-45));
  }
  closest_ = at::cat(closest);
  batch_->keep_away(closest_.const_data_ptr<double>());
  return true;
}

// Calls write(operands) with the tensors as outputs. A tensor whose memory order differs from that of its
// source is written through a copy. Bumps the versions of all tensors, because their values change behind
// autograd.
template <class Write>
void Displacements::write_tensors(Write&& write) {
  const Guards guards(device_);
  const auto weights = sources();
  std::vector<at::Tensor> targets;
  for (size_t k = 0; k < tensors_.size(); ++k) {
    const bool direct = rows_are_dense(tensors_[k], norm_) && same_order(tensors_[k], weights[k]);
    targets.push_back(direct ? tensors_[k] : empty_in_order_of(weights[k], weights[k].scalar_type()));
  }
  write(operands(weights, targets));
  for (size_t k = 0; k < tensors_.size(); ++k) {
    if (!targets[k].is_same(tensors_[k]))
      tensors_[k].copy_(targets[k]);
    else
      tensors_[k].unsafeGetTensorImpl()->bump_version();
  }
  at::autocast::clear_cache();  // it may contain casts of the old values
}

void Displacements::project(const at::Tensor& radii) {
  write_tensors([&](const auto& pointers) {
    batch_->project(pointers, distances_.const_data_ptr<double>(), radii.const_data_ptr<double>(),
                    current_stream(device_));
  });
}

void Displacements::project_into(std::vector<at::Tensor>& copies, const at::Tensor& radii) {
  const Guards guards(device_);
  const auto weights = sources();
  batch_->project(operands(weights, copies), distances_.const_data_ptr<double>(),
                  radii.const_data_ptr<double>(), current_stream(device_));
}

void Displacements::measure_and_project(const at::Tensor& radii) {
  write_tensors([&](const auto& pointers) {
    measure_with([&](double* distances) {
      batch_->measure_and_project(pointers, distances, radii.const_data_ptr<double>(),
                                  current_stream(device_));
    });
  });
}

void Displacements::measure_and_project_into(std::vector<at::Tensor>& copies, const at::Tensor& radii) {
  const Guards guards(device_);
  const auto weights = sources();
  const auto pointers = operands(weights, copies);
  measure_with([&](double* distances) {
    batch_->measure_and_project(pointers, distances, radii.const_data_ptr<double>(), current_stream(device_));
  });
}

std::vector<at::Tensor> Displacements::room_for_copies(const std::vector<at::Tensor>& in_bfloat16) const {
  std::unordered_set<const at::TensorImpl*> chosen;
  for (const auto& tensor : in_bfloat16) chosen.insert(tensor.unsafeGetTensorImpl());
  const auto like = sources();
  std::vector<at::Tensor> room;
  for (size_t k = 0; k < tensors_.size(); ++k) {
    const bool bf16 =
        like[k].scalar_type() == at::kFloat && chosen.contains(tensors_[k].unsafeGetTensorImpl());
    room.push_back(empty_in_order_of(like[k], bf16 ? at::kBFloat16 : like[k].scalar_type()));
  }
  return room;
}

void Displacements::interpolate(const at::Tensor& ratios) {
  write_tensors([&](const auto& pointers) {
    batch_->interpolate(pointers, ratios.const_data_ptr<double>(), current_stream(device_));
  });
}

void Displacements::add_displacement(std::vector<at::Tensor>& gradients, double factor) {
  const Guards guards(device_);
  const auto weights = sources();
  std::vector<at::Tensor> laid;
  for (size_t k = 0; k < gradients.size(); ++k)
    laid.push_back(in_order_of(gradients[k], weights[k], weights[k].scalar_type()));
  batch_->add_displacement(operands(weights, laid), factor, current_stream(device_));
  for (size_t k = 0; k < gradients.size(); ++k)
    if (!laid[k].is_same(gradients[k])) gradients[k].copy_(laid[k]);
  flag_.check_on_cpu();
}

at::Tensor Displacements::radius_gradients(const std::vector<at::Tensor>& gradients, const at::Tensor& radii,
                                           Rows rows) {
  const Guards guards(device_);
  const auto weights = sources();
  const auto laid = laid_out_like(weights, gradients);
  auto result = at::empty({size()}, scalar_options());
  batch_->radius_gradients(operands(weights, laid), distances_.const_data_ptr<double>(),
                           radii.const_data_ptr<double>(), rows, result.mutable_data_ptr<double>(),
                           current_stream(device_));
  flag_.check_on_cpu();
  return result;
}

Displacements::Measured Displacements::measure_radius_gradients(const std::vector<at::Tensor>& gradients,
                                                                const at::Tensor& radii, Rows rows) {
  const Guards guards(device_);
  const auto weights = sources();
  const auto laid = laid_out_like(weights, gradients);
  const auto now = at::empty_like(distances_);
  auto result = at::empty({size()}, scalar_options());
  batch_->measure_radius_gradients(operands(weights, laid), distances_.const_data_ptr<double>(),
                                   radii.const_data_ptr<double>(), rows, now.mutable_data_ptr<double>(),
                                   result.mutable_data_ptr<double>(), current_stream(device_));
  flag_.check_on_cpu();
  return {result, now.slice(0, batch_->largest_at())};
}

// The gradients in the memory order of `weights`.
std::vector<at::Tensor> Displacements::laid_out_like(const std::vector<at::Tensor>& weights,
                                                     const std::vector<at::Tensor>& gradients) const {
  std::vector<at::Tensor> laid(gradients.size());
  for (size_t k = 0; k < gradients.size(); ++k) {
    if (!gradients[k].defined()) continue;
    const auto gradient = gradients[k].is_sparse() ? gradients[k].to_dense() : gradients[k];
    laid[k] = in_order_of(gradient, weights[k],
                          is_bf16_beside(weights[k], gradient) ? at::kBFloat16 : weights[k].scalar_type());
  }
  return laid;
}

}  // namespace tpgm
