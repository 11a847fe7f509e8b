#include "tpgm/core/finite_flag.h"

#include <ATen/DeviceGuard.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <utility>

#include "tpgm/core/cuda_stream.h"
#include "tpgm/kernels/finite_code.h"
#include "tpgm/kernels/radii.h"

namespace tpgm {

FiniteFlag::FiniteFlag(std::string owner, const std::vector<std::string>& names, at::Device device)
    : owner_(std::move(owner)), names_(names) {
  const auto options = at::TensorOptions(at::kInt);
  report_ = at::full({1}, kernels::kAllFinite, options.device(device));
  if (device.is_cuda()) host_report_ = at::full({1}, kernels::kAllFinite, options.pinned_memory(true));
}

void FiniteFlag::expect_finite(const at::Tensor& loss) {
  const auto device = report_.device();
  const at::OptionalDeviceGuard guard(device);
  const at::NoGradGuard no_grad;
  const auto value = loss.detach().to(at::TensorOptions(at::kDouble).device(device));
  const auto& backend = device.is_cuda() ? kernels::radii_cuda() : kernels::radii_cpu();
  backend.expect_finite(value.const_data_ptr<double>(),
                        kernels::code_of_loss(static_cast<int32_t>(names_.size())),
                        report_.mutable_data_ptr<int32_t>(), current_stream(device));
  check_on_cpu();
}

void FiniteFlag::check() {
  if (capturing(report_.device())) return;
  posted_.reset();
  if (const auto code = report_.item<int32_t>(); code != kernels::kAllFinite) raise(code);
}

void FiniteFlag::check_on_cpu() {
  if (report_.is_cpu()) check();
}

void FiniteFlag::post() {
  const auto device = report_.device();
  if (!device.is_cuda() || posted_ || capturing(device)) return;
  const at::OptionalDeviceGuard guard(device);
  const at::NoGradGuard no_grad;
  host_report_.copy_(report_, /*non_blocking=*/true);
  posted_.emplace(device.type());
  posted_->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

void FiniteFlag::poll() {
  if (!posted_ || capturing(report_.device()) || !posted_->query()) return;
  posted_.reset();
  if (const auto code = host_report_.item<int32_t>(); code != kernels::kAllFinite) raise(code);
}

void FiniteFlag::raise(int32_t code) {
  report_.fill_(kernels::kAllFinite);
  const auto found = kernels::decode(code, static_cast<int32_t>(names_.size()));
  TORCH_CHECK(found.what != kernels::NotFinite::kLoss, "[", owner_,
              "] the loss is NaN or Inf; the call has changed nothing. Look at the batch, or lower the "
              "learning rate");
  const auto& name = names_.at(static_cast<size_t>(found.tensor));
  TORCH_CHECK(found.what != kernels::NotFinite::kGradient, "[", owner_, "] the gradient of '", name,
              "' holds NaN or Inf; the call has changed nothing. Skip the batch, or scale the loss down");
  TORCH_CHECK(
      false, "[", owner_, "] '", name,
      "' holds NaN or Inf. The optimizer has diverged: go back to a checkpoint and lower the learning rate");
}

}  // namespace tpgm
