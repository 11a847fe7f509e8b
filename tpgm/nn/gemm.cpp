#include "tpgm/nn/gemm.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "tpgm/core/cuda_stream.h"
#include "tpgm/kernels/gemm.h"
#include "tpgm/kernels/projection.h"
#include "tpgm/nn/one_dnn.h"
#include "tpgm/nn/operands.h"

namespace tpgm {
namespace {

using kernels::Gemm;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

constexpr int64_t kAligned = 8;  // elements, 16 bytes
// From so many multiply-adds on, timing the algorithms is worth it, which runs the GEMM some hundreds of
// times. Smaller GEMMs have little to gain, as their launch dominates (an estimate, not measured).
constexpr int64_t kWorthTiming = int64_t{1} << 28;

bool has_gemm_kernel(const at::Tensor& x) {
  return x.is_cuda() && x.scalar_type() == at::kBFloat16 && kernels::tuned_for(x.get_device());
}

// A matrix as an operand of the kernels; nothing if its strides or alignment do not fit.
std::optional<Gemm::Operand> operand(const at::Tensor& x) {
  for (const bool transposed : {false, true}) {
    const int64_t step = x.stride(transposed ? 0 : 1), stride = x.stride(transposed ? 1 : 0);
    if (step == 1 && stride >= x.size(transposed ? 0 : 1) && stride % kAligned == 0 && is_aligned(x))
      return Gemm::Operand{x.const_data_ptr(), stride, transposed};
  }
  return std::nullopt;
}

// Nothing if ATen has to compute the GEMM, or has to report what is wrong with the operands.
std::optional<Gemm> kernel_gemm(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
  if (!has_gemm_kernel(a) || a.scalar_type() != b.scalar_type() || a.numel() == 0 || b.numel() == 0 ||
      a.size(1) != b.size(0) || out.size(0) != a.size(0) || out.size(1) != b.size(1))
    return std::nullopt;
  const auto left = operand(a), right = operand(b), result = operand(out);
  if (!left || !right || !result || result->transposed) return std::nullopt;
  Gemm call;
  call.rows = a.size(0);
  call.cols = b.size(1);
  call.inner = a.size(1);
  call.a = *left;
  call.b = *right;
  call.out = out.mutable_data_ptr();
  call.stride = result->stride;
  return call;
}

void multiply(const Gemm& call, const at::Tensor& out) {
  const c10::DeviceGuard guard(out.device());
  void* stream = current_stream(out.device());
  // Not a tensor, which LibTorch would fill in deterministic mode.
  const auto workspace = c10::GetAllocator(c10::kCUDA)->allocate(kernels::kGemmWorkspace);
  // As with convolutions: timing may choose another algorithm in the next run, which rounds differently.
  const auto& context = at::globalContext();
  const bool by_timing = context.benchmarkCuDNN() && !context.deterministicAlgorithms() &&
                         call.rows * call.cols * call.inner >= kWorthTiming;
  if (by_timing && !kernels::is_timed(call) && !capturing(out.device())) {
    const at::Tensor scratch = at::empty_strided(out.sizes(), out.strides(), out.options());
    Gemm trial = call;
    trial.out = scratch.mutable_data_ptr();
    kernels::time_algorithms(trial, workspace.get(), stream);
  }
  kernels::multiply(call, by_timing ? kernels::Choice::kFastest : kernels::Choice::kFirst, workspace.get(),
                    stream);
}

std::vector<int64_t> with_last(at::IntArrayRef sizes, int64_t last) {
  auto result = sizes.vec();
  result.back() = last;
  return result;
}

struct LinearGemm : torch::autograd::Function<LinearGemm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias) {
    const auto if_needed = [](const at::Tensor& tensor, bool needed) {
      return needed ? tensor : at::Tensor();
    };
    context->save_for_backward({if_needed(x, weight.requires_grad()), if_needed(weight, x.requires_grad())});
    context->saved_data["bias"] = bias.has_value();
    // Not a view: autograd forbids in-place changes of views that a custom function returns.
    return at::_unsafe_view(gemm(as_rows(x), weight.t(), bias.value_or(at::Tensor())),
                            with_last(x.sizes(), weight.size(0)));
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const at::Tensor dy = as_rows(grads[0]);
    const bool again = at::GradMode::is_enabled();  // ATen's GEMM has a second derivative
    at::Tensor dx, d_weight, d_bias;
    if (context->needs_input_grad(0))
      dx = (again ? at::mm(dy, weight) : gemm(dy, weight)).view(with_last(grads[0].sizes(), weight.size(1)));
    if (context->needs_input_grad(1))
      d_weight = again ? at::mm(dy.t(), as_rows(x)) : weight_gradient(dy, as_rows(x));
    if (context->saved_data["bias"].toBool() && context->needs_input_grad(2)) d_bias = dy.sum(0);
    return {dx, d_weight, d_bias};
  }
};

}  // namespace

at::Tensor gemm(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias) {
  if (has_gemm_kernel(a)) {
    const at::Tensor out = at::empty({a.size(0), b.size(1)}, a.options());
    auto call = kernel_gemm(out, a, b);
    const bool plain = !bias.defined();
    if (call && (plain || (bias.sizes() == at::IntArrayRef{b.size(1)} && bias.is_contiguous() &&
                           bias.scalar_type() == a.scalar_type() && is_aligned(bias)))) {
      if (!plain) call->bias = bias.const_data_ptr();
      multiply(*call, out);
      return out;
    }
  }
  if (auto result = one_dnn_gemm(a, b, bias)) return *result;
  return bias.defined() ? at::addmm(bias, a, b) : at::mm(a, b);
}

void gemm_into(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, bool add) {
  if (auto call = kernel_gemm(out, a, b)) {
    call->add = add;
    multiply(*call, out);
    out.unsafeGetTensorImpl()->bump_version();
  } else if (add) {
    out.addmm_(a, b);
  } else {
    at::mm_out(out, a, b);
  }
}

at::Tensor linear_gemm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  if ((has_gemm_kernel(x) && x.scalar_type() == weight.scalar_type()) || runs_in_one_dnn(x, weight))
    return LinearGemm::apply(x, weight, if_defined(bias));
  return at::linear(x, weight, bias);
}

}  // namespace tpgm
