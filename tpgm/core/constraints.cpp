#include "tpgm/core/constraints.h"

#include <ATen/DeviceGuard.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <cstring>
#include <unordered_set>

#include "tpgm/core/dtype.h"
#include "tpgm/core/memory_order.h"
#include "tpgm/core/stream.h"

namespace tpgm {
namespace {

int64_t rows_of(const at::Tensor& tensor, Norm norm) {
  return norm == Norm::kL2 || tensor.dim() < 2 || tensor.numel() == 0 ? 1 : tensor.size(0);
}

// True if memory holds exactly the tensor's elements, row after row; inside a row in any order.
bool row_dense(const at::Tensor& tensor, Norm norm) {
  const auto rows = rows_of(tensor, norm);
  return tensor.is_non_overlapping_and_dense() && (rows == 1 || tensor.stride(0) == tensor.numel() / rows);
}

at::Tensor dense(const at::Tensor& tensor, Norm norm) {
  return row_dense(tensor, norm) ? tensor : tensor.contiguous();
}

// `tensor` in the type and memory order of `like`.
at::Tensor laid_out(const at::Tensor& tensor, const at::Tensor& like, at::ScalarType type) {
  if (same_order(tensor, like) && tensor.scalar_type() == type) return tensor;
  return empty_in_order_of(like, type).copy_(tensor);
}

at::Tensor laid_out(const at::Tensor& tensor, const at::Tensor& like) {
  return laid_out(tensor, like, like.scalar_type());
}

// What kernels take as Operands::bf16.
bool narrow(const at::Tensor& third, const at::Tensor& weights) {
  return third.scalar_type() == at::kBFloat16 && weights.scalar_type() == at::kFloat;
}

// On the right device, and invisible to autograd.
struct Guards {
  explicit Guards(at::Device device) : on(device) {}
  at::OptionalDeviceGuard on;
  at::NoGradGuard no_grad;
};

template <class T>
at::Tensor on_device(const std::vector<T>& values, at::Device device) {
  static_assert(std::is_trivially_copyable_v<T>);
  auto bytes = at::empty({static_cast<int64_t>(values.size() * sizeof(T))}, at::kByte);
  if (!values.empty()) std::memcpy(bytes.mutable_data_ptr(), values.data(), values.size() * sizeof(T));
  return bytes.to(device);
}

}  // namespace

Constraints::Constraints(std::string owner, const std::vector<Selected>& selected, Norm norm,
                         AnchorStorage storage)
    : owner_(std::move(owner)), norm_(norm), storage_(storage), device_(at::kCPU) {
  TORCH_CHECK(!selected.empty(), "[", owner_, "] nothing to constrain");
  device_ = selected.front().tensor.device();
  std::vector<kernels::Layout> layouts;
  for (const auto& [name, tensor, pretrained] : selected) {
    TORCH_CHECK(tensor.device() == device_, "[", owner_, "] '", name, "' is on ", tensor.device(), ", '",
                selected.front().name, "' on ", device_, "; all constrained tensors must be on one device");
    names_.push_back(name);
    tensors_.push_back(tensor);  // not detached: the module may give it new memory
    anchors_.push_back(store_anchor(pretrained, dense(tensor, norm_), storage_));
    const auto rows = rows_of(tensor, norm_);
    layouts.push_back({rows, tensor.numel() / rows, dtype_of(tensor.scalar_type()),
                       dtype_of(anchors_.back().scalar_type())});
  }
  TORCH_CHECK(device_.is_cpu() || device_.is_cuda(), "[", owner_, "] tensors on ", device_,
              " are not supported; only CPU and CUDA are");
  backend_ = device_.is_cuda() ? &kernels::cuda() : &kernels::cpu();
  radii_backend_ = device_.is_cuda() ? &kernels::radii_cuda() : &kernels::radii_cpu();
  plan_ = kernels::make_plan(layouts);
  plan_tensors_ = on_device(plan_.tensors, device_);
  plan_pieces_ = on_device(plan_.pieces, device_);
  const auto f64 = scalar_options();
  partials_ = at::empty({2 * static_cast<int64_t>(plan_.pieces.size())}, f64);
  tickets_ = at::zeros({size()}, f64.dtype(at::kInt));
  report_ = at::full({1}, kernels::kAllFinite, f64.dtype(at::kInt));
  row_dots_ = at::empty({plan_.rows}, f64);
  distances_ = at::zeros({plan_.rows + 2 * size()}, f64);
  smallest_ = distances_.slice(0, plan_.rows, plan_.rows + size());
  largest_ = distances_.slice(0, plan_.rows + size());
  if (device_.is_cuda())
    host_report_ = at::full({1}, kernels::kAllFinite, at::TensorOptions(at::kInt).pinned_memory(true));
  // An anchor that is not finite would look like bad weights at the first step; say so now.
  for (size_t k = 0; k < anchors_.size(); ++k) {
    TORCH_CHECK(at::isfinite(anchors_[k]).all().item<bool>(), "[", owner_, "] the anchor of '", names_[k],
                "' holds NaN or Inf; the pre-trained weights are damaged",
                storage_ == AnchorStorage::kBFloat16 ? " or too large for bfloat16" : "");
  }
}

at::TensorOptions Constraints::scalar_options() const {
  return at::TensorOptions(at::kDouble).device(device_);
}

int64_t Constraints::anchor_fingerprint() const {
  if (!fingerprint_) fingerprint_ = fingerprint(names_, anchors_);
  return *fingerprint_;
}

std::vector<at::Tensor> Constraints::gradients() const {
  std::vector<at::Tensor> result;
  for (const auto& tensor : tensors_) result.push_back(tensor.grad());
  return result;
}

torch::OrderedDict<std::string, double> Constraints::by_name(const at::Tensor& values) const {
  torch::OrderedDict<std::string, double> result;
  const auto host = values.cpu();
  for (size_t k = 0; k < names_.size(); ++k) result.insert(names_[k], host.const_data_ptr<double>()[k]);
  return result;
}

void Constraints::check_unchanged() const {
  for (size_t k = 0; k < tensors_.size(); ++k) {
    const auto& tensor = tensors_[k];
    const auto& layout = plan_.tensors[k].layout;
    TORCH_CHECK(tensor.device() == device_ && dtype_of(tensor.scalar_type()) == layout.weights &&
                    tensor.sizes() == anchors_[k].sizes(),
                "[", owner_, "] '", names_[k], "' is now ", tensor.scalar_type(), tensor.sizes(), " on ",
                tensor.device(),
                ", not what it was when the method was built; move and convert the module first");
  }
}

// The tensors, or dense copies of those that are not.
std::vector<at::Tensor> Constraints::dense_tensors() const {
  check_unchanged();
  std::vector<at::Tensor> result;
  for (const auto& tensor : tensors_) result.push_back(dense(tensor, norm_));
  return result;
}

// What reductions and projections start from.
std::vector<at::Tensor> Constraints::sources() const {
  check_unchanged();
  return holding() ? held_ : dense_tensors();
}

kernels::Batch Constraints::batch(const std::vector<kernels::Operands>& operands) {
  kernels::Batch batch;
  batch.plan = &plan_;
  batch.tensors = static_cast<const kernels::TensorPlan*>(plan_tensors_.const_data_ptr());
  batch.pieces = static_cast<const kernels::Piece*>(plan_pieces_.const_data_ptr());
  batch.operands = operands.data();
  batch.partials = partials_.mutable_data_ptr<double>();
  batch.tickets = reinterpret_cast<uint32_t*>(tickets_.mutable_data_ptr<int32_t>());
  batch.report = report_.mutable_data_ptr<int32_t>();
  batch.parallel_for = [](int64_t n, const auto& body) { at::parallel_for(0, n, /*grain_size=*/4, body); };
  batch.stream = current_stream(device_);
  return batch;
}

kernels::Distances Constraints::norms(const at::Tensor& distances) const {
  auto* rows = distances.mutable_data_ptr<double>();
  return {rows, rows + plan_.rows, rows + plan_.rows + size()};
}

kernels::RatioOf Constraints::ratio_of() const {
  return norm_ == Norm::kMarsMax ? kernels::RatioOf::kLargestRow : kernels::RatioOf::kRow;
}

kernels::RowNorm Constraints::row_norm() const {
  return norm_ == Norm::kL2 ? kernels::RowNorm::kL2 : kernels::RowNorm::kL1;
}

kernels::Limits Constraints::limits(const at::Tensor& radii) const {
  return {radii.const_data_ptr<double>(), closest_.defined() ? closest_.const_data_ptr<double>() : nullptr};
}

std::vector<kernels::Operands> Constraints::operands(const std::vector<at::Tensor>& weights,
                                                     const std::vector<at::Tensor>& third) {
  std::vector<kernels::Operands> result(weights.size());
  for (size_t k = 0; k < weights.size(); ++k) {
    // The module's memory format may have changed since the last call; the anchor follows it.
    if (!same_order(anchors_[k], weights[k])) anchors_[k] = store_anchor(anchors_[k], weights[k], storage_);
    result[k].weights = weights[k].const_data_ptr();
    result[k].anchor = anchors_[k].const_data_ptr();
    if (!third.empty() && third[k].defined()) {
      result[k].output_or_gradient = third[k].mutable_data_ptr();
      result[k].bf16 = narrow(third[k], weights[k]);
    }
  }
  return result;
}

void Constraints::measure(bool hold) {
  const Guards guards(device_);
  const auto weights = dense_tensors();
  auto copies = hold ? room_for_held(weights) : std::vector<at::Tensor>();
  measure(weights, copies);
  release();
  if (hold) {
    held_ = std::move(copies);
    holding_ = true;
  }
}

// Where to hold copies of `weights`. On the CPU a call may throw, and what was held must still be there.
std::vector<at::Tensor> Constraints::room_for_held(const std::vector<at::Tensor>& weights) const {
  std::vector<at::Tensor> room;
  for (size_t k = 0; k < weights.size(); ++k) {
    const auto& like = weights[k];
    const bool again = device_.is_cuda() && keeps_memory_ && !held_.empty() && same_order(held_[k], like);
    room.push_back(again ? held_[k] : empty_in_order_of(like, like.scalar_type()));
  }
  return room;
}

void Constraints::release() {
  holding_ = false;
  if (!keeps_memory_) held_.clear();
}

void Constraints::load_held(const std::vector<at::Tensor>& values) {
  const Guards guards(device_);
  const auto like = dense_tensors();
  for (size_t k = 0; k < values.size(); ++k) {
    TORCH_CHECK(values[k].sizes() == like[k].sizes(), "[", owner_, "] '", names_[k], "' is ",
                values[k].sizes(), " in the state, ", like[k].sizes(), " in the model");
  }
  if (values.empty()) {
    release();
    return;
  }
  auto held = room_for_held(like);
  for (size_t k = 0; k < values.size(); ++k) held[k].copy_(values[k]);
  measure(held, {});
  held_ = std::move(held);
  holding_ = true;
}

void Constraints::measure(const std::vector<at::Tensor>& weights, const std::vector<at::Tensor>& copies) {
  const auto pointers = operands(weights, copies);
  measure_with([&](const kernels::Distances& norms) { backend_->measure(batch(pointers), row_norm(), norms); });
}

// measure(norms). The check on the CPU may throw, and distances are to be as before then.
template <class Measure>
void Constraints::measure_with(Measure&& measure) {
  const auto measured = device_.is_cpu() ? at::empty_like(distances_) : distances_;
  measure(norms(measured));
  if (device_.is_cpu()) {
    check();
    distances_.copy_(measured);
  }
}

void Constraints::load_distances(const at::Tensor& distances) {
  TORCH_INTERNAL_ASSERT(distances.sizes() == distances_.sizes());
  distances_.copy_(distances);
}

bool Constraints::keep_directions() {
  const Guards guards(device_);
  std::vector<at::Tensor> closest;
  for (size_t k = 0; k < tensors_.size(); ++k) {
    const auto type = tensors_[k].scalar_type();
    if (type != at::kFloat && type != at::kDouble) return false;
    const auto rows = rows_of(tensors_[k], norm_);
    const auto anchor = anchors_[k].to(device_, at::kDouble).reshape({rows, tensors_[k].numel() / rows});
    auto norms = norm_ == Norm::kL2 ? anchor.square().sum(1).sqrt() : anchor.abs().sum(1);
    if (norm_ == Norm::kMarsMax) norms.fill_(norms.max());
    closest.push_back(norms * (type == at::kFloat ? 0x1p-16 : 0x1p-45));
  }
  closest_ = at::cat(closest);
  return true;
}

// write(sources, targets), then what a tensor that lies otherwise than its source needs, and word to
// autograd that values changed.
template <class Write>
void Constraints::write_tensors(Write&& write) {
  const Guards guards(device_);
  const auto weights = sources();
  std::vector<at::Tensor> targets;
  for (size_t k = 0; k < tensors_.size(); ++k) {
    const bool direct = row_dense(tensors_[k], norm_) && same_order(tensors_[k], weights[k]);
    targets.push_back(direct ? tensors_[k] : empty_in_order_of(weights[k], weights[k].scalar_type()));
  }
  write(weights, targets);
  for (size_t k = 0; k < tensors_.size(); ++k)
    if (!targets[k].is_same(tensors_[k]))
      tensors_[k].copy_(targets[k]);
    else
      tensors_[k].unsafeGetTensorImpl()->bump_version();
  at::autocast::clear_cache();  // it may hold casts of the old values
}

void Constraints::project(const at::Tensor& radii) {
  write_tensors([&](const auto& weights, const auto& targets) {
    const auto pointers = operands(weights, targets);
    backend_->project(batch(pointers), ratio_of(), norms(), limits(radii));
  });
}

void Constraints::measure_and_project(const at::Tensor& radii) {
  release();
  write_tensors([&](const auto& weights, const auto& targets) {
    const auto pointers = operands(weights, targets);
    measure_with([&](const kernels::Distances& norms) {
      backend_->measure_and_project(batch(pointers), row_norm(), ratio_of(), norms, limits(radii));
    });
  });
}

void Constraints::measure_and_project_into(std::vector<at::Tensor>& copies, const at::Tensor& radii) {
  const Guards guards(device_);
  release();
  const auto weights = sources();  // alive until the call is through: some may be dense copies
  const auto pointers = operands(weights, copies);
  measure_with([&](const kernels::Distances& norms) {
    backend_->measure_and_project(batch(pointers), row_norm(), ratio_of(), norms, limits(radii));
  });
}

void Constraints::project_into(std::vector<at::Tensor>& copies, const at::Tensor& radii) {
  const Guards guards(device_);
  const auto weights = sources();  // alive until the call is through: some may be dense copies
  const auto pointers = operands(weights, copies);
  backend_->project(batch(pointers), ratio_of(), norms(), limits(radii));
}

std::vector<at::Tensor> Constraints::room_for_copies(const std::vector<at::Tensor>& in_bfloat16) const {
  std::unordered_set<const at::TensorImpl*> narrow;
  for (const auto& tensor : in_bfloat16) narrow.insert(tensor.unsafeGetTensorImpl());
  const auto like = sources();
  std::vector<at::Tensor> room;
  for (size_t k = 0; k < tensors_.size(); ++k) {
    const bool is_narrow =
        like[k].scalar_type() == at::kFloat && narrow.contains(tensors_[k].unsafeGetTensorImpl());
    room.push_back(empty_in_order_of(like[k], is_narrow ? at::kBFloat16 : like[k].scalar_type()));
  }
  return room;
}

void Constraints::interpolate(const at::Tensor& ratios) {
  write_tensors([&](const auto& weights, const auto& targets) {
    const auto pointers = operands(weights, targets);
    backend_->interpolate(batch(pointers), ratios.const_data_ptr<double>());
  });
}

at::Tensor Constraints::slopes(const std::vector<at::Tensor>& gradients, const at::Tensor& radii,
                               kernels::Rows rows) {
  const Guards guards(device_);
  const auto weights = sources();
  const auto laid = laid_out_like(weights, gradients);
  auto result = at::empty({size()}, scalar_options());
  const auto pointers = operands(weights, laid);
  backend_->radius_gradients(batch(pointers), ratio_of(), rows, norms(), radii.const_data_ptr<double>(),
                   row_dots_.mutable_data_ptr<double>(), result.mutable_data_ptr<double>());
  if (device_.is_cpu()) check();
  return result;
}

Constraints::MeasuredSlopes Constraints::measure_slopes(const std::vector<at::Tensor>& gradients,
                                                        const at::Tensor& radii, kernels::Rows rows) {
  const Guards guards(device_);
  const auto weights = sources();
  const auto laid = laid_out_like(weights, gradients);
  const auto now = at::empty_like(distances_);
  auto result = at::empty({size()}, scalar_options());
  const auto pointers = operands(weights, laid);
  backend_->measure_radius_gradients(batch(pointers), row_norm(), ratio_of(), rows, norms(),
                           radii.const_data_ptr<double>(), norms(now), row_dots_.mutable_data_ptr<double>(),
                           result.mutable_data_ptr<double>());
  if (device_.is_cpu()) check();
  return {result, now.slice(0, plan_.rows + size())};
}

// The gradients as kernels read them beside `weights`.
std::vector<at::Tensor> Constraints::laid_out_like(const std::vector<at::Tensor>& weights,
                                                   const std::vector<at::Tensor>& gradients) const {
  std::vector<at::Tensor> laid(gradients.size());
  for (size_t k = 0; k < gradients.size(); ++k) {
    if (gradients[k].defined()) {
      const auto gradient = gradients[k].is_sparse() ? gradients[k].to_dense() : gradients[k];
      laid[k] = laid_out(gradient, weights[k],
                         narrow(gradient, weights[k]) ? at::kBFloat16 : weights[k].scalar_type());
    }
  }
  return laid;
}

void Constraints::add_displacement(std::vector<at::Tensor>& gradients, double factor) {
  const Guards guards(device_);
  const auto weights = sources();
  std::vector<at::Tensor> laid;
  for (size_t k = 0; k < gradients.size(); ++k) laid.push_back(laid_out(gradients[k], weights[k]));
  const auto pointers = operands(weights, laid);
  backend_->add_displacement(batch(pointers), factor);
  for (size_t k = 0; k < gradients.size(); ++k)
    if (!laid[k].is_same(gradients[k])) gradients[k].copy_(laid[k]);
  if (device_.is_cpu()) check();
}

void Constraints::expect_finite_loss(const at::Tensor& loss) {
  const Guards guards(device_);
  const auto value = loss.detach().to(scalar_options());
  radii_backend_->expect_finite(value.const_data_ptr<double>(), static_cast<int32_t>(size()),
                                report_.mutable_data_ptr<int32_t>(), current_stream(device_));
  if (device_.is_cpu()) check();
}

void Constraints::post() {
  if (device_.is_cuda() && !posted_ && !capturing(device_)) {
    const Guards guards(device_);
    host_report_.copy_(report_, /*non_blocking=*/true);
    posted_.emplace(device_.type());
    posted_->record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  }
}

void Constraints::poll() {
  if (posted_ && !capturing(device_) && posted_->query()) {
    posted_.reset();
    if (const auto code = host_report_.item<int32_t>(); code != kernels::kAllFinite) raise(code);
  }
}

void Constraints::check() {
  if (capturing(device_)) return;
  posted_.reset();
  if (const auto code = report_.item<int32_t>(); code != kernels::kAllFinite) raise(code);
}

void Constraints::raise(int32_t code) {
  report_.fill_(kernels::kAllFinite);
  const auto count = static_cast<int32_t>(size());
  TORCH_CHECK(code != count, "[", owner_,
              "] the loss is NaN or Inf; the call has changed nothing. Look at the batch, or lower the "
              "learning rate");
  TORCH_CHECK(code < count, "[", owner_, "] the gradient of '", names_[code - count - 1],
              "' holds NaN or Inf; the call has changed nothing. Skip the batch, or scale the loss down");
  TORCH_CHECK(
      false, "[", owner_, "] '", names_[code],
      "' holds NaN or Inf. The optimizer has diverged: go back to a checkpoint and lower the learning "
      "rate");
}

}  // namespace tpgm
