// The passes between the GEMMs of a transformer as autograd functions.
#include "tpgm/nn/residual.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "tpgm/core/cuda_stream.h"
#include "tpgm/core/dtype.h"
#include "tpgm/kernels/projection.h"
#include "tpgm/nn/gemm.h"
#include "tpgm/nn/operands.h"
#include "tpgm/nn/precision.h"
#include "tpgm/nn/testing.h"

namespace tpgm {
namespace {

using kernels::ResidualBackend;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

thread_local int fuse_on_cpu = 0;

const ResidualBackend& residual_backend(const at::Tensor& x) {
  return x.is_cuda() ? kernels::residual_cuda() : kernels::residual_cpu();
}

bool has_kernels(const at::Tensor& x, int64_t cols) {
  if (x.is_cpu()) return fuse_on_cpu > 0;
  return x.is_cuda() && kernels::tuned_for(x.get_device()) && cols % residual_backend(x).multiple_of == 0;
}

const void* data(const at::Tensor& x) { return x.defined() ? x.const_data_ptr() : nullptr; }
void* out(const at::Tensor& x) { return x.defined() ? x.mutable_data_ptr() : nullptr; }

at::Tensor scratch_for(const at::Tensor& x, int64_t cols, int sums) {
  return at::empty({residual_backend(x).scratch_bytes(cols, sums)}, x.options().dtype(at::kByte));
}

at::ScalarType sum_type(at::ScalarType type) { return type == at::kDouble ? at::kDouble : at::kFloat; }

struct AddLayerNorm : torch::autograd::Function<AddLayerNorm> {
  static tensor_list forward(AutogradContext* context, const at::Tensor& stream, const at::Tensor& weight,
                             const at::Tensor& shift, const std::optional<at::Tensor>& branch,
                             const std::optional<at::Tensor>& bias, double eps, at::ScalarType branches) {
    const c10::DeviceGuard guard(stream.device());
    const at::Tensor x = dense(stream), gain = dense(weight), offset = dense(shift);
    const at::Tensor added = branch ? dense(*branch) : at::Tensor();
    const at::Tensor constant = bias ? dense(*bias) : at::Tensor();
    const at::Tensor sum = added.defined() ? at::empty_like(x) : stream;
    const at::Tensor normed = at::empty_like(x, x.options().dtype(branches));
    const at::Tensor mean = at::empty({x.numel() / x.size(-1)}, x.options()), rstd = at::empty_like(mean);
    kernels::AddLayerNorm args;
    args.types = {dtype_of(x.scalar_type()), dtype_of(branches)};
    args.rows = mean.numel();
    args.cols = x.size(-1);
    args.x = data(x);
    args.branch = data(added);
    args.bias = data(constant);
    args.weight = data(gain);
    args.shift = data(offset);
    args.eps = eps;
    if (added.defined()) args.sum = out(sum);
    args.normed = out(normed);
    args.mean = out(mean);
    args.rstd = out(rstd);
    residual_backend(x).add_layer_norm(args, current_stream(x.device()));
    context->save_for_backward({sum, mean, rstd, weight});
    context->saved_data["branch"] = added.defined();
    context->saved_data["bias"] = constant.defined();
    context->set_materialize_grads(false);
    return {sum, normed};
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& grads) {
    check_first_derivative("a fused pass of a transformer");
    const auto saved = context->get_saved_variables();
    const at::Tensor sum = dense(saved[0]), weight = dense(saved[3]);
    const c10::DeviceGuard guard(sum.device());
    const bool with_branch = context->saved_data["branch"].toBool();
    const bool with_bias = context->saved_data["bias"].toBool();
    // Rare: models that use only the sum do not call this function. A pass over zeros is cheap enough.
    const at::Tensor d_normed = grads[1].defined() ? dense(grads[1]) : at::zeros_like(sum);
    const at::Tensor d_sum = grads[0].defined() ? dense(grads[0]) : at::Tensor();
    const bool one_type = d_normed.scalar_type() == sum.scalar_type();
    const at::Tensor dx = at::empty_like(sum);
    at::Tensor d_branch, d_bias;
    if (with_branch) d_branch = one_type ? dx : at::empty_like(d_normed);
    if (with_bias) d_bias = at::empty_like(weight);
    const at::Tensor d_weight = at::empty_like(weight), d_shift = at::empty_like(weight);
    kernels::AddLayerNormBackward args;
    args.types = {dtype_of(sum.scalar_type()), dtype_of(d_normed.scalar_type())};
    args.rows = saved[1].numel();
    args.cols = weight.numel();
    args.d_normed = data(d_normed);
    args.d_sum = data(d_sum);
    args.sum = data(sum);
    args.mean = data(saved[1]);
    args.rstd = data(saved[2]);
    args.weight = data(weight);
    args.dx = out(dx);
    if (!one_type) args.d_branch = out(d_branch);
    args.d_weight = out(d_weight);
    args.d_shift = out(d_shift);
    args.d_bias = out(d_bias);
    const at::Tensor scratch = scratch_for(sum, args.cols, 3);
    residual_backend(sum).add_layer_norm_backward(args, out(scratch), current_stream(sum.device()));
    return {dx, d_weight, d_shift, d_branch, d_bias, {}, {}};
  }
};

struct LinearAct : torch::autograd::Function<LinearAct> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias, int64_t unit) {
    const c10::DeviceGuard guard(x.device());
    const at::Tensor before = gemm(as_rows(x), weight.t(), value_in(x.scalar_type(), bias));
    const at::Tensor y = at::empty_like(before);
    kernels::Activate args;
    args.dtype = dtype_of(x.scalar_type());
    args.unit = static_cast<kernels::Unit>(unit);
    args.rows = before.size(0);
    args.cols = before.size(1);
    args.x = data(before);
    args.y = out(y);
    residual_backend(x).activate(args, current_stream(x.device()));
    context->save_for_backward({x, weight, before});
    context->saved_data["unit"] = unit;
    context->saved_data["bias"] = bias.scalar_type();
    auto sizes = x.sizes().vec();
    sizes.back() = weight.size(0);
    return y.view(sizes);
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& grads) {
    check_first_derivative("a fused pass of a transformer");
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &before = saved[2];
    const c10::DeviceGuard guard(x.device());
    const at::Tensor dy = dense(as_rows(grads[0])), d_before = at::empty_like(before);
    const at::Tensor d_bias = at::empty({before.size(1)}, x.options().dtype(sum_type(x.scalar_type())));
    kernels::Activate args;
    args.dtype = dtype_of(x.scalar_type());
    args.unit = static_cast<kernels::Unit>(context->saved_data["unit"].toInt());
    args.rows = before.size(0);
    args.cols = before.size(1);
    args.x = data(before);
    args.y = out(d_before);
    args.dy = data(dy);
    args.d_bias = out(d_bias);
    const at::Tensor scratch = scratch_for(x, args.cols, 1);
    residual_backend(x).activate_backward(args, out(scratch), current_stream(x.device()));
    at::Tensor dx, d_weight;
    if (context->needs_input_grad(0)) dx = gemm(d_before, weight).view(x.sizes());
    if (context->needs_input_grad(1)) d_weight = gemm(d_before.t(), as_rows(x));
    return {dx, d_weight, d_bias.to(context->saved_data["bias"].toScalarType()), {}};
  }
};

}  // namespace

at::ScalarType branch_type(const at::Tensor& stream) {
  const auto device = stream.device().type();
  return at::autocast::is_autocast_enabled(device) ? at::autocast::get_autocast_dtype(device)
                                                   : stream.scalar_type();
}

bool fuses_stream(const at::Tensor& x, at::ScalarType branches) {
  if (!has_kernels(x, x.size(-1)) || x.size(-1) > residual_backend(x).most_norm_cols || x.size(-1) == 0)
    return false;
  if (x.scalar_type() == at::kDouble) return x.is_cpu() && branches == at::kDouble;
  return x.scalar_type() == at::kFloat && (branches == at::kFloat || branches == at::kBFloat16);
}

bool fuses_columns(const at::Tensor& x, at::ScalarType dtype, int64_t width) {
  return has_kernels(x, width) && width > 0 && (x.is_cpu() || x.scalar_type() != at::kDouble) &&
         (dtype == at::kFloat || dtype == at::kBFloat16 || (dtype == at::kDouble && x.is_cpu()));
}

FuseOnCpu::FuseOnCpu() { ++fuse_on_cpu; }
FuseOnCpu::~FuseOnCpu() { --fuse_on_cpu; }

SumAndNorm add_layer_norm(const at::Tensor& x, const at::Tensor& branch, const at::Tensor& bias,
                          const at::Tensor& weight, const at::Tensor& shift, double eps,
                          at::ScalarType branches) {
  TORCH_CHECK(branch.defined() || !bias.defined(), "[add_layer_norm] a bias belongs to a branch");
  const auto both =
      AddLayerNorm::apply(x, weight, shift, if_defined(branch), if_defined(bias), eps, branches);
  return {both[0], both[1]};
}

at::Tensor linear_act(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      kernels::Unit unit) {
  return LinearAct::apply(x, weight, bias, static_cast<int64_t>(unit));
}

at::Tensor column_sums(at::TensorList parts, const at::Tensor& beside) {
  const at::Tensor& first = parts.front();
  const c10::DeviceGuard guard(first.device());
  kernels::ColumnSums args;
  TORCH_CHECK(parts.size() <= args.kMaxParts, "[column_sums] ", parts.size(),
              " matrices; three are the most");
  args.dtype = dtype_of(first.scalar_type());
  args.rows = first.size(0);
  args.cols = first.size(1);
  args.parts = static_cast<int>(parts.size());
  tensor_list held;  // until the kernel is on its way
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool as_it_is = parts[i].stride(1) == 1 &&
                          parts[i].stride(0) % residual_backend(first).multiple_of == 0 &&
                          is_aligned(parts[i]);
    held.push_back(as_it_is ? parts[i] : dense(parts[i]));
    args.from[i] = data(held[i]);
    args.stride[i] = held[i].stride(0);
  }
  const at::Tensor sums =
      at::empty({args.parts * args.cols}, first.options().dtype(sum_type(first.scalar_type())));
  args.sums = out(sums);
  if (beside.defined()) {
    TORCH_CHECK(beside.sizes() == at::IntArrayRef({args.rows, args.parts * args.cols}) &&
                    beside.is_contiguous() && beside.scalar_type() == first.scalar_type(),
                "[column_sums] ", args.parts, " matrices of ", first.sizes(), " do not fit into one of ",
                beside.sizes());
    args.beside = out(beside);
  }
  const at::Tensor scratch = scratch_for(first, args.cols, args.parts);
  residual_backend(first).column_sums(args, out(scratch), current_stream(first.device()));
  return sums;
}

}  // namespace tpgm
