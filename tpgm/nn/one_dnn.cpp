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

// Multiply-adds of a product that is worth oneDNN's longer way there (on an EPYC, one thread and two).
constexpr int64_t kWorthOneDnn = int64_t{1} << 25;

// Pixels of the result in all of the batch up to which products are faster, for weights of one pixel and for
// windows of several, which have to be written out first (on an EPYC, in ResNet-50's steps).
constexpr int64_t kFewPixels = 512, kFewWindows = 128;

thread_local int always_one_dnn = 0;

using InnerProduct = at::Tensor(const at::Tensor& x, const at::Tensor& weight,
                                const std::optional<at::Tensor>& bias, std::string_view unit,
                                c10::List<std::optional<at::Scalar>> scalars,
                                std::optional<std::string_view> algorithm);

/// x weightᵀ + bias by oneDNN, as torch.compile calls it; nothing if LibTorch has none, or another one.
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

/// Whether this is a CPU where oneDNN was seen to be faster than MKL, whose kernels for others than Intel's
/// are slower. Without AVX-512 oneDNN's were slower in places.
bool one_dnn_is_faster() {
#if defined(__x86_64__)
  static const bool faster = at::hasMKL() && !__builtin_cpu_is("intel") && __builtin_cpu_supports("avx512f");
  return faster;
#else
  return false;
#endif
}

/// Pixels of a line of the result; sides are odd.
int64_t after(int64_t pixels, int64_t stride) { return (pixels - 1) / stride + 1; }

at::Tensor channels_behind(const at::Tensor& maps) { return maps.permute({0, 2, 3, 1}); }
at::Tensor channels_before(const at::Tensor& maps) { return maps.permute({0, 3, 1, 2}); }

at::Tensor weight_rows(const at::Tensor& weight) { return channels_behind(weight).flatten(1); }

/// What each pixel of the result sees of x, a row for each.
at::Tensor windows(const at::Tensor& x, int64_t side, int64_t stride) {
  const int64_t pad = side / 2;
  at::Tensor seen = channels_behind(x);
  if (pad > 0) seen = at::constant_pad_nd(seen, {0, 0, pad, pad, pad, pad});
  return seen.unfold(1, side, stride)
      .unfold(2, side, stride)
      .permute({0, 1, 2, 4, 5, 3})
      .reshape({-1, side * side * x.size(1)});
}

/// The way back: maps like x, each pixel the sum of what the windows have of it.
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
  return channels_before(sums.narrow(1, pad, height).narrow(2, pad, width).contiguous());
}

struct ConvGemm : torch::autograd::Function<ConvGemm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, int64_t stride) {
    context->save_for_backward({x, weight});
    context->saved_data["stride"] = stride;
    context->saved_data["bias"] = bias.has_value();
    const at::Tensor rows =
        product(windows(x, weight.size(2), stride), weight_rows(weight).t(), bias.value_or(at::Tensor()));
    // Detached, as nobody could change a view in place.
    return channels_before(
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
    if (at::GradMode::is_enabled()) {  // the convolution's can be differentiated once more
      std::tie(dx, d_weight, std::ignore) = at::convolution_backward(
          dy, x, weight, std::nullopt, {stride, stride}, {side / 2, side / 2}, {1, 1}, /*transposed=*/false,
          {0, 0}, /*groups=*/1, {for_x, for_weight, false});
      return {dx, d_weight, d_bias, {}};
    }
    const at::Tensor rows = as_rows(channels_behind(dy));
    if (for_weight) {
      const at::Tensor gradient = weight_gradient(rows, windows(x, side, stride));
      d_weight = channels_before(gradient.view({weight.size(0), side, side, weight.size(1)}));
    }
    if (for_x) {
      const at::Tensor gradient = product(rows, weight_rows(weight));
      dx = side == 1 && stride == 1 ? channels_before(gradient.view_as(channels_behind(x)))
                                    : sum_of_windows(gradient, x, side, stride);
    }
    return {dx, d_weight, d_bias, {}};
  }
};

}  // namespace

AlwaysOneDnn::AlwaysOneDnn() { ++always_one_dnn; }
AlwaysOneDnn::~AlwaysOneDnn() { --always_one_dnn; }

bool one_dnn_multiplies(const at::Tensor& a, at::ScalarType other, int64_t rows, int64_t cols,
                        int64_t inner) {
  if (!a.is_cpu() || a.scalar_type() != at::kFloat || other != at::kFloat ||
      at::autocast::is_autocast_enabled(at::kCPU) || rows * cols * inner == 0)
    return false;
  const bool worth = always_one_dnn > 0 || (one_dnn_is_faster() && rows * cols * inner >= kWorthOneDnn);
  return worth && at::globalContext().userEnabledMkldnn() && inner_product();
}

bool one_dnn_multiplies(const at::Tensor& x, const at::Tensor& weight) {
  return one_dnn_multiplies(x, weight.scalar_type(), x.numel() / std::max<int64_t>(1, weight.size(1)),
                            weight.size(0), weight.size(1));
}

// It would copy an `a` that is not dense.
std::optional<at::Tensor> one_dnn_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias) {
  if (!one_dnn_multiplies(a, b.scalar_type(), a.size(0), b.size(1), a.size(1)) || a.size(1) != b.size(0) ||
      !a.is_contiguous() || !(b.is_contiguous() || b.t().is_contiguous()))
    return std::nullopt;
  if (bias.defined() && (bias.scalar_type() != at::kFloat || bias.sizes() != at::IntArrayRef{b.size(1)} ||
                         !bias.is_contiguous()))  // its strides would not be looked at
    return std::nullopt;
  return inner_product()->call(a, b.t(), if_defined(bias), "none", c10::List<std::optional<at::Scalar>>(),
                               "");
}

at::Tensor weight_gradient(const at::Tensor& dy, const at::Tensor& x) {
  // MKL is slow where the result is wider than high. oneDNN is not, but takes dyᵀ only as a copy.
  const int64_t rows = dy.size(0), high = dy.size(1), wide = x.size(1);
  const bool copies = wide > high && one_dnn_multiplies(dy, x.scalar_type(), high, wide, rows);
  return product(copies ? dy.t().contiguous() : dy.t(), x);
}

bool multiplies_pixels(const at::Tensor& x, const at::Tensor& weight, int64_t stride) {
  const int64_t side = weight.size(2), channels = weight.size(1);
  if (!x.is_cpu() || !x.is_contiguous(at::MemoryFormat::ChannelsLast) ||
      !weight.is_contiguous(at::MemoryFormat::ChannelsLast) || x.size(1) != channels ||
      weight.size(3) != side || side % 2 == 0)
    return false;
  const int64_t pixels = x.size(0) * after(x.size(2), stride) * after(x.size(3), stride);
  return pixels <= (side == 1 ? kFewPixels : kFewWindows) &&
         one_dnn_multiplies(x, weight.scalar_type(), pixels, weight.size(0), side * side * channels);
}

at::Tensor conv_gemm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, int64_t stride) {
  return ConvGemm::apply(x, weight, if_defined(bias), stride);
}

}  // namespace tpgm
