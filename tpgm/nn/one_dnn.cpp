#include "tpgm/nn/one_dnn.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <string_view>
#include <tuple>

#include "tpgm/nn/gemm.h"
#include "tpgm/nn/operands.h"
#include "tpgm/nn/testing.h"

namespace tpgm {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// From so many multiply-adds on, oneDNN pays off despite its higher overhead per call (measured on an EPYC
// with one and two threads).
constexpr int64_t kWorthOneDnn = int64_t{1} << 25;

// Up to so many pixels of the result in the whole batch, a GEMM is faster than a convolution: for 1×1
// kernels, and for larger ones, whose windows have to be written out first (measured on an EPYC in training
// steps of a ResNet-50).
constexpr int64_t kFewPixels = 512, kFewWindows = 128;

thread_local int always_one_dnn = 0;

using InnerProduct = at::Tensor(const at::Tensor& x, const at::Tensor& weight,
                                const std::optional<at::Tensor>& bias, std::string_view unit,
                                c10::List<std::optional<at::Scalar>> scalars,
                                std::optional<std::string_view> algorithm);

// LibTorch's operator for x weightᵀ + bias in oneDNN, which torch.compile uses; nothing if this LibTorch has
// none, or one with other arguments.
const std::optional<c10::TypedOperatorHandle<InnerProduct>>& inner_product() {
  static const auto found = []() -> std::optional<c10::TypedOperatorHandle<InnerProduct>> {
    const auto schema = c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""});
    if (!schema || !at::hasMKLDNN()) return std::nullopt;
    try {
      return schema->typed<InnerProduct>();
    } catch (const c10::Error&) {
      return std::nullopt;
    }
  }();
  return found;
}

// Whether oneDNN is faster than MKL on this CPU. MKL has slower kernels for CPUs of other vendors than
// Intel; without AVX-512, oneDNN is slower for some shapes.
bool one_dnn_is_faster() {
#if defined(__x86_64__)
  static const bool faster = at::hasMKL() && !__builtin_cpu_is("intel") && __builtin_cpu_supports("avx512f");
  return faster;
#else
  return false;
#endif
}

// The number of output pixels along a side of `pixels`, for kernels of odd size.
int64_t after(int64_t pixels, int64_t stride) { return (pixels - 1) / stride + 1; }

at::Tensor channels_last(const at::Tensor& x) { return x.permute({0, 2, 3, 1}); }
at::Tensor channels_first(const at::Tensor& x) { return x.permute({0, 3, 1, 2}); }

at::Tensor weight_rows(const at::Tensor& weight) { return channels_last(weight).flatten(1); }

// im2col: the window of x for each pixel of the result, as rows.
at::Tensor windows(const at::Tensor& x, int64_t side, int64_t stride) {
  const int64_t pad = side / 2;
  at::Tensor padded = channels_last(x);
  if (pad > 0) padded = at::constant_pad_nd(padded, {0, 0, pad, pad, pad, pad});
  return padded.unfold(1, side, stride)
      .unfold(2, side, stride)
      .permute({0, 1, 2, 4, 5, 3})
      .reshape({-1, side * side * x.size(1)});
}

// col2im, the transpose of windows(): adds up the rows into a feature map of the shape of x.
at::Tensor sum_of_windows(const at::Tensor& rows, const at::Tensor& x, int64_t side, int64_t stride) {
  const int64_t pad = side / 2, height = x.size(2), width = x.size(3);
  const int64_t down = after(height, stride), along = after(width, stride);
  const at::Tensor parts = rows.view({x.size(0), down, along, side, side, x.size(1)});
  const at::Tensor sums = at::zeros({x.size(0), height + 2 * pad, width + 2 * pad, x.size(1)}, x.options());
  for (int64_t i = 0; i < side; ++i) {
    for (int64_t j = 0; j < side; ++j) {
      sums.slice(1, i, i + stride * (down - 1) + 1, stride)
          .slice(2, j, j + stride * (along - 1) + 1, stride)
          .add_(parts.select(3, i).select(3, j));
    }
  }
  return channels_first(sums.narrow(1, pad, height).narrow(2, pad, width).contiguous());
}

struct ConvGemm : torch::autograd::Function<ConvGemm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, int64_t stride) {
    context->save_for_backward({x, weight});
    context->saved_data["stride"] = stride;
    context->saved_data["bias"] = bias.has_value();
    const at::Tensor rows =
        gemm(windows(x, weight.size(2), stride), weight_rows(weight).t(), bias.value_or(at::Tensor()));
    // Detached: autograd forbids in-place changes of views that a custom function returns.
    return channels_first(
               rows.view({x.size(0), after(x.size(2), stride), after(x.size(3), stride), rows.size(1)}))
        .detach();
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &dy = grads[0];
    const int64_t side = weight.size(2), stride = context->saved_data["stride"].toInt();
    const bool for_x = context->needs_input_grad(0), for_weight = context->needs_input_grad(1);
    at::Tensor dx, d_weight, d_bias;
    if (context->saved_data["bias"].toBool() && context->needs_input_grad(2)) d_bias = dy.sum({0, 2, 3});
    if (at::GradMode::is_enabled()) {  // ATen's convolution has a second derivative
      std::tie(dx, d_weight, std::ignore) = at::convolution_backward(
          dy, x, weight, std::nullopt, {stride, stride}, {side / 2, side / 2}, {1, 1}, /*transposed=*/false,
          {0, 0}, /*groups=*/1, {for_x, for_weight, false});
      return {dx, d_weight, d_bias, {}};
    }
    const at::Tensor rows = as_rows(channels_last(dy));
    if (for_weight) {
      const at::Tensor gradient = weight_gradient(rows, windows(x, side, stride));
      d_weight = channels_first(gradient.view({weight.size(0), side, side, weight.size(1)}));
    }
    if (for_x) {
      const at::Tensor gradient = gemm(rows, weight_rows(weight));
      dx = side == 1 && stride == 1 ? channels_first(gradient.view_as(channels_last(x)))
                                    : sum_of_windows(gradient, x, side, stride);
    }
    return {dx, d_weight, d_bias, {}};
  }
};

}  // namespace

AlwaysOneDnn::AlwaysOneDnn() { ++always_one_dnn; }
AlwaysOneDnn::~AlwaysOneDnn() { --always_one_dnn; }

bool runs_in_one_dnn(const at::Tensor& a, at::ScalarType other, int64_t rows, int64_t cols, int64_t inner) {
  if (!a.is_cpu() || a.scalar_type() != at::kFloat || other != at::kFloat ||
      at::autocast::is_autocast_enabled(at::kCPU) || rows * cols * inner == 0)
    return false;
  const bool worth = always_one_dnn > 0 || (one_dnn_is_faster() && rows * cols * inner >= kWorthOneDnn);
  return worth && at::globalContext().userEnabledMkldnn() && inner_product();
}

bool runs_in_one_dnn(const at::Tensor& x, const at::Tensor& weight) {
  return runs_in_one_dnn(x, weight.scalar_type(), x.numel() / std::max<int64_t>(1, weight.size(1)),
                         weight.size(0), weight.size(1));
}

std::optional<at::Tensor> one_dnn_gemm(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias) {
  if (!runs_in_one_dnn(a, b.scalar_type(), a.size(0), b.size(1), a.size(1)) || a.size(1) != b.size(0) ||
      !a.is_contiguous() || !(b.is_contiguous() || b.t().is_contiguous()))
    return std::nullopt;
  if (bias.defined() && (bias.scalar_type() != at::kFloat || bias.sizes() != at::IntArrayRef{b.size(1)} ||
                         !bias.is_contiguous()))  // the operator ignores its strides
    return std::nullopt;
  return inner_product()->call(a, b.t(), if_defined(bias), "none", c10::List<std::optional<at::Scalar>>(),
                               "");
}

at::Tensor weight_gradient(const at::Tensor& dy, const at::Tensor& x) {
  // MKL is slow if the result has more columns than rows. oneDNN is not, but needs a copy of dyᵀ.
  const int64_t rows = dy.size(0), high = dy.size(1), wide = x.size(1);
  const bool copies = wide > high && runs_in_one_dnn(dy, x.scalar_type(), high, wide, rows);
  return gemm(copies ? dy.t().contiguous() : dy.t(), x);
}

bool conv_runs_as_gemm(const at::Tensor& x, const at::Tensor& weight, int64_t stride) {
  const int64_t side = weight.size(2), channels = weight.size(1);
  if (!x.is_cpu() || !x.is_contiguous(at::MemoryFormat::ChannelsLast) ||
      !weight.is_contiguous(at::MemoryFormat::ChannelsLast) || x.size(1) != channels ||
      weight.size(3) != side || side % 2 == 0)
    return false;
  const int64_t pixels = x.size(0) * after(x.size(2), stride) * after(x.size(3), stride);
  return pixels <= (side == 1 ? kFewPixels : kFewWindows) &&
         runs_in_one_dnn(x, weight.scalar_type(), pixels, weight.size(0), side * side * channels);
}

at::Tensor conv_gemm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, int64_t stride) {
  return ConvGemm::apply(x, weight, if_defined(bias), stride);
}

}  // namespace tpgm
