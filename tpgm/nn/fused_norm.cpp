// The kernels for feature maps as autograd functions.
#include "tpgm/nn/fused_norm.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>

#include <limits>
#include <utility>

#include "tpgm/core/cuda_stream.h"
#include "tpgm/core/dtype.h"
#include "tpgm/kernels/projection.h"
#include "tpgm/nn/operands.h"

namespace tpgm {
namespace {

using kernels::BatchNormBackend;
using kernels::Pool;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

constexpr auto kChannelsLast = at::MemoryFormat::ChannelsLast;

const BatchNormBackend& batch_norm_backend(const at::Tensor& x) {
  return x.is_cuda() ? kernels::batch_norm_cuda() : kernels::batch_norm_cpu();
}

kernels::FeatureMap map_of(const at::Tensor& x) {
  return {dtype_of(x.scalar_type()), x.size(0), x.size(2), x.size(3), x.size(1)};
}

at::Tensor bytes(int64_t count, const at::Tensor& like) {
  return at::empty({count}, like.options().dtype(at::kByte));
}

uint8_t* bytes_of(const at::Tensor& tensor) {
  return tensor.numel() == 0 ? nullptr : tensor.mutable_data_ptr<uint8_t>();
}

at::Tensor map_like(const at::Tensor& x, int64_t height, int64_t width) {
  return at::empty({x.size(0), x.size(1), height, width}, x.options().memory_format(kChannelsLast));
}

at::Tensor result_of(const at::Tensor& x, Pool pool) {
  const int64_t height = x.size(2), width = x.size(3);
  switch (pool) {
    case Pool::kMax:
      return map_like(x, (height + 1) / 2, (width + 1) / 2);
    case Pool::kMean:
      return map_like(x, height / 2, width / 2);
    case Pool::kNone:
      break;
  }
  return map_like(x, height, width);
}

kernels::BatchNormParameters norm_of(const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& mean,
                                     const at::Tensor& variance, double eps) {
  if (!weight.defined()) return {.bias = bias.const_data_ptr()};
  return {weight.const_data_ptr(), bias.const_data_ptr(), mean.const_data_ptr(), variance.const_data_ptr(),
          eps};
}

struct FusedNorm : torch::autograd::Function<FusedNorm> {
  static tensor_list forward(AutogradContext* context, const at::Tensor& x,
                             const std::optional<at::Tensor>& scales, const at::Tensor& bias,
                             const std::optional<at::Tensor>& residual, const NormTensors& norm,
                             const AfterNorm& after, const NormOptions& options) {
    const at::Tensor weight = scales.value_or(at::Tensor());
    const c10::DeviceGuard guard(x.device());
    const auto& backend = batch_norm_backend(x);
    const auto map = map_of(x);
    void* stream = current_stream(x.device());
    at::Tensor mean = norm.running_mean, variance = norm.running_var;
    if (options.training) {
      mean = at::empty_like(weight, weight.options().requires_grad(false));
      variance = at::empty_like(mean);
      const at::Tensor scratch = bytes(backend.scratch_bytes(map), x);
      backend.statistics(map, x.const_data_ptr(), mean.mutable_data_ptr(), variance.mutable_data_ptr(),
                         {norm.running_mean.mutable_data_ptr(), norm.running_var.mutable_data_ptr(),
                          norm.num_batches_tracked.mutable_data_ptr<int64_t>(), options.momentum},
                         scratch.mutable_data_ptr(), stream);
      for (const auto& buffer : {norm.running_mean, norm.running_var, norm.num_batches_tracked})
        buffer.unsafeGetTensorImpl()->bump_version();
    }
    const at::Tensor y = result_of(x, after.pool);
    const at::Tensor trace = bytes(backend.trace_bytes(map, residual.has_value(), after.pool), x);
    backend.forward(map, norm_of(weight, bias, mean, variance, options.eps),
                    {x.const_data_ptr(), residual ? residual->const_data_ptr() : nullptr, after.relu,
                     after.pool, y.mutable_data_ptr(), bytes_of(trace)},
                    stream);
    context->set_materialize_grads(false);
    // Without a scale, x is read in the backward pass only for its sign.
    const bool reads_x =
        weight.defined() || (after.relu && !residual.has_value() && after.pool != Pool::kMax);
    context->save_for_backward({reads_x ? x : at::Tensor(), weight, bias, mean, variance, trace});
    context->saved_data["sizes"] = x.sizes();
    context->saved_data["eps"] = options.eps;
    context->saved_data["training"] = options.training;
    context->saved_data["residual"] = residual.has_value();
    context->saved_data["relu"] = after.relu;
    context->saved_data["pool"] = static_cast<int64_t>(after.pool);
    return {y, y.view_as(y)};
  }

  static tensor_list backward(AutogradContext* context, tensor_list grads) {
    check_first_derivative("the fused BatchNorm");
    tensor_list result(7);
    if (!grads[0].defined()) std::swap(grads[0], grads[1]);
    if (!grads[0].defined()) return result;
    const auto saved = context->get_saved_variables();
    const auto& [x, weight, bias, mean, variance, trace] =
        std::tie(saved[0], saved[1], saved[2], saved[3], saved[4], saved[5]);
    const c10::DeviceGuard guard(bias.device());
    const auto& backend = batch_norm_backend(bias);
    const bool residual = context->saved_data["residual"].toBool();
    for (auto& grad : grads) {
      if (grad.defined()) grad = dense(grad, kChannelsLast);
    }
    const bool relu = context->saved_data["relu"].toBool(), shift = !weight.defined();
    const auto empty_map = [&] {
      return at::empty(context->saved_data["sizes"].toIntVector(),
                       grads[0].options().memory_format(kChannelsLast));
    };
    const at::Tensor dx = shift && !relu && !grads[1].defined() ? grads[0] : empty_map();
    const auto map = map_of(dx);
    const at::Tensor dresidual = shift || !residual ? at::Tensor() : empty_map();
    const at::Tensor dweight = shift ? at::Tensor() : at::empty_like(mean), dbias = at::empty_like(bias);
    const at::Tensor scratch = bytes(backend.scratch_bytes(map), bias);
    kernels::NormBackward call;
    call.x = x.defined() ? x.const_data_ptr() : nullptr;
    call.dy = grads[0].const_data_ptr();
    call.dy_second = grads[1].defined() ? grads[1].const_data_ptr() : nullptr;
    call.residual = residual;
    call.relu = relu;
    call.pool = static_cast<Pool>(context->saved_data["pool"].toInt());
    call.batch_statistics = context->saved_data["training"].toBool();
    call.trace = bytes_of(trace);
    call.dx = dx.is_same(grads[0]) ? nullptr : dx.mutable_data_ptr();
    call.dresidual = dresidual.defined() ? dresidual.mutable_data_ptr() : nullptr;
    call.dweight = dweight.defined() ? dweight.mutable_data_ptr() : nullptr;
    call.dbias = dbias.mutable_data_ptr();
    backend.backward(map, norm_of(weight, bias, mean, variance, context->saved_data["eps"].toDouble()), call,
                     scratch.mutable_data_ptr(), current_stream(bias.device()));
    result[0] = dx;
    result[1] = dweight;
    result[2] = dbias;
    result[3] = shift && residual ? dx : dresidual;
    return result;
  }
};

struct MeanPool : torch::autograd::Function<MeanPool> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    const c10::DeviceGuard guard(x.device());
    context->saved_data["sizes"] = x.sizes();
    const at::Tensor y = result_of(x, Pool::kMean);
    kernels::batch_norm_cuda().mean_pool(map_of(x), x.const_data_ptr(), y.mutable_data_ptr(),
                                         current_stream(x.device()));
    return y;
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& grads) {
    check_first_derivative("the fused mean pooling");
    const at::Tensor dy = dense(grads[0], kChannelsLast);
    const c10::DeviceGuard guard(dy.device());
    const at::Tensor dx =
        at::empty(context->saved_data["sizes"].toIntVector(), dy.options().memory_format(kChannelsLast));
    kernels::batch_norm_cuda().mean_pool_backward(map_of(dx), dy.const_data_ptr(), dx.mutable_data_ptr(),
                                                  current_stream(dx.device()));
    return {dx};
  }
};

// Whether the kernels take this feature map.
bool fits_kernels(const at::Tensor& x) {
  if (!x.is_cuda() || !kernels::tuned_for(x.get_device()) || x.dim() != 4 || x.numel() == 0) return false;
  if (x.numel() / x.size(1) > std::numeric_limits<int32_t>::max() / 2)
    return false;  // the kernels count pixels in int
  const bool known = x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kFloat;
  return known && x.size(1) % kernels::batch_norm_cuda().vector(map_of(x).dtype) == 0 &&
         x.is_contiguous(kChannelsLast) && is_aligned(x);
}

}  // namespace

bool fuses_norm(const at::Tensor& x, const NormTensors& norm, const AfterNorm& after) {
  if (norm.bias.scalar_type() != at::kFloat || !fits_kernels(x)) return false;
  if (after.pool == Pool::kMean && (x.size(2) < 2 || x.size(3) < 2)) return false;
  return !after.residual.defined() ||
         (fits_kernels(after.residual) && after.residual.scalar_type() == x.scalar_type());
}

bool uses_space_to_depth(const at::Tensor& x, const at::Tensor& weight, int64_t stride) {
  const int64_t side = weight.size(2);
  return stride == 2 && (side == 3 || side == 7) && weight.size(1) <= 4 && x.size(1) == weight.size(1) &&
         x.is_cuda() && kernels::tuned_for(x.get_device()) &&
         !(x.requires_grad() && at::GradMode::is_enabled()) && weight.scalar_type() == at::kBFloat16 &&
         (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16) && x.numel() > 0 &&
         x.size(2) % 2 == 0 && x.size(3) % 2 == 0 && x.is_contiguous(kChannelsLast);
}

at::Tensor space_to_depth_conv2d(const at::Tensor& x, const at::Tensor& weight) {
  // With a row and a column of zeros in front, the kernel has an even size and starts at an even pixel.
  const c10::DeviceGuard guard(x.device());
  const int64_t cells = (weight.size(2) + 1) / 2, channels = weight.size(1);
  kernels::SpaceToDepth call;
  call.images = x.size(0);
  call.height = x.size(2);
  call.width = x.size(3);
  call.channels = channels;
  call.front = cells / 2;
  call.back = cells - 1 - call.front;
  call.from = map_of(x).dtype;
  call.to = kernels::DType::kBFloat16;
  const at::Tensor feature_maps =
      at::empty({call.images, kernels::SpaceToDepth::kChannels, call.lines(), call.columns()},
                x.options().dtype(at::kBFloat16).requires_grad(false).memory_format(kChannelsLast));
  call.x = x.const_data_ptr();
  call.y = feature_maps.mutable_data_ptr();
  kernels::batch_norm_cuda().space_to_depth(call, current_stream(x.device()));
  const at::Tensor folded = at::constant_pad_nd(weight, {1, 0, 1, 0})
                                .reshape({weight.size(0), channels, cells, 2, cells, 2})
                                .permute({0, 3, 5, 1, 2, 4})
                                .reshape({weight.size(0), 4 * channels, cells, cells});
  const int64_t missing = kernels::SpaceToDepth::kChannels - 4 * channels;
  return at::conv2d(feature_maps,
                    at::constant_pad_nd(folded, {0, 0, 0, 0, 0, missing}).contiguous(kChannelsLast));
}

at::Tensor mean_pool(const at::Tensor& x) {
  return fits_kernels(x) && x.size(2) > 1 && x.size(3) > 1 ? MeanPool::apply(x) : at::avg_pool2d(x, 2);
}

void check_values_per_channel(const at::Tensor& x) {
  TORCH_CHECK(x.numel() / x.size(1) > 1,
              "[BatchNorm] expected more than 1 value per channel when training, got input size ", x.sizes(),
              "; take more images a batch, or larger ones");
}

SharedOutput fused_norm(const at::Tensor& x, const NormTensors& norm, const AfterNorm& after,
                        const NormOptions& options) {
  if (options.training) check_values_per_channel(x);
  TORCH_CHECK(after.relu || (after.pool == Pool::kNone && !after.residual.defined()),
              "[fused_norm] what is pooled or added to goes through the ReLU");
  auto result = FusedNorm::apply(x, if_defined(norm.weight), norm.bias, if_defined(after.residual), norm,
                                 after, options);
  return {result[0], result[1]};
}

}  // namespace tpgm
