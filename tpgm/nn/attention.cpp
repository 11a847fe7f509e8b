// Self-attention with a packed projection, and CLIP's attention pooling.
#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tpgm/nn/gemm.h"
#include "tpgm/nn/layers.h"
#include "tpgm/nn/one_dnn.h"
#include "tpgm/nn/operands.h"
#include "tpgm/nn/precision.h"
#include "tpgm/nn/residual.h"

namespace tpgm {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// Up to so many rows the three gradients are stacked into one matrix: the GEMMs of each third would be too
// small to fill a GPU. On an H200 with a width of 768, the backward pass of 12,608 rows takes 170 µs with
// stacking and 213 µs without. For 50,432 rows the GEMMs take as long either way (550 and 560 µs), and
// stacking costs a pass.
constexpr int64_t kFewRows = 16384;

bool fuses(at::TensorList parts) { return fuses_columns(parts[0], parts[0].scalar_type(), parts[0].size(1)); }

// The sums over rows of three matrices, one after the other.
at::Tensor sums_over_rows(at::TensorList parts, at::ScalarType type) {
  const int64_t width = parts[0].size(1);
  if (fuses(parts)) return column_sums(parts).to(type);
  const at::Tensor sums = at::empty({3 * width}, parts[0].options().dtype(type));
  for (int64_t i = 0; i < 3; ++i) {
    at::Tensor part = sums.narrow(0, i * width, width);
    at::sum_out(part, parts[i], 0, /*keepdim=*/false, type);
  }
  return sums;
}

// x [batch, tokens, width] → queries, keys and values, each [batch, tokens, width] and a view of the output
// of one GEMM. Autograd would stack the three gradients into one tensor first. Here each gradient has its own
// GEMMs, which saves a pass over the activations. Two cases stack them: few rows on a GPU, in the pass that
// sums them for the bias, and GEMMs in oneDNN.
struct PackedProjection : torch::autograd::Function<PackedProjection> {
  static tensor_list forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                             const at::Tensor& bias) {
    context->save_for_backward({x, weight});
    context->saved_data["bias"] = bias.scalar_type();
    return gemm(as_rows(x), weight.t(), value_in(x.scalar_type(), bias))
        .view({x.size(0), x.size(1), weight.size(0)})
        .chunk(3, -1);
  }

  static tensor_list backward(AutogradContext* context, tensor_list grads) {
    check_first_derivative("the packed projection of attention");
    const auto saved = context->get_saved_variables();
    const at::Tensor rows = as_rows(saved[0]), &weight = saved[1];
    const auto bias_type = context->saved_data["bias"].toScalarType();
    for (auto& each : grads) each = as_rows(each);
    at::Tensor grad_x, grad_weight, grad_bias;
    const bool needs_gemms = context->needs_input_grad(0) || context->needs_input_grad(1);
    at::Tensor stacked;
    if (context->needs_input_grad(2) && needs_gemms && rows.size(0) <= kFewRows && fuses(grads)) {
      stacked = at::empty({rows.size(0), weight.size(0)}, grads[0].options());
      grad_bias = column_sums(grads, stacked).to(bias_type);
    } else if (context->needs_input_grad(0) && runs_in_one_dnn(rows, weight)) {
      stacked = at::cat(grads, 1);  // as fast as three GEMMs that add
      if (context->needs_input_grad(2)) grad_bias = sums_over_rows(grads, bias_type);
    }
    if (stacked.defined()) {
      if (context->needs_input_grad(0)) grad_x = gemm(stacked, weight).view_as(saved[0]);
      if (context->needs_input_grad(1)) grad_weight = gemm(stacked.t(), rows);
      return {grad_x, grad_weight, grad_bias};
    }
    if (context->needs_input_grad(0)) grad_x = at::empty_like(rows);
    if (context->needs_input_grad(1)) grad_weight = at::empty_like(weight);
    const int64_t width = weight.size(0) / 3;
    for (int64_t i = 0; i < 3; ++i) {
      const auto third = [&](const at::Tensor& all) { return all.narrow(0, i * width, width); };
      if (grad_x.defined()) gemm_into(grad_x, grads[i], third(weight), /*add=*/i > 0);
      if (grad_weight.defined()) {
        at::Tensor part = third(grad_weight);
        gemm_into(part, grads[i].t(), rows);
      }
    }
    if (context->needs_input_grad(2)) grad_bias = sums_over_rows(grads, bias_type);
    return {grad_x.defined() ? grad_x.view_as(saved[0]) : grad_x, grad_weight, grad_bias};
  }
};

// [batch, tokens, width] → [batch, heads, tokens, width / heads], a view.
at::Tensor split_heads(const at::Tensor& x, int64_t heads) {
  return x.unflatten(-1, {heads, x.size(-1) / heads}).transpose(1, 2);
}

at::Tensor join_heads(const at::Tensor& x) { return x.transpose(1, 2).flatten(2); }

}  // namespace

AttentionImpl::AttentionImpl(int64_t width, int64_t heads) : heads_(heads) {
  TORCH_CHECK(heads > 0 && width % heads == 0, "[Attention] a width of ", width, " cannot be split into ",
              heads, " heads; choose a divisor");
  qkv = register_module("qkv", Linear(width, 3 * width));
  proj = register_module("proj", Linear(width, width));
}

at::Tensor AttentionImpl::attend(const at::Tensor& x, bool causal) {
  const auto parts = PackedProjection::apply(autocasted(x), autocasted(qkv->weight), qkv->bias);
  const at::Tensor attended =
      at::scaled_dot_product_attention(split_heads(parts[0], heads_), split_heads(parts[1], heads_),
                                       split_heads(parts[2], heads_), {}, 0, causal);
  return join_heads(attended);
}

AttentionPoolImpl::AttentionPoolImpl(int64_t pixels, int64_t width, int64_t heads, int64_t embedding)
    : position(register_parameter("position", allocate({pixels + 1, width}))), heads_(heads) {
  TORCH_CHECK(heads > 0 && width % heads == 0, "[AttentionPool] a width of ", width, " cannot be split into ",
              heads, " heads; choose a divisor");
  q_proj = register_module("q_proj", Linear(width, width));
  k_proj = register_module("k_proj", Linear(width, width));
  v_proj = register_module("v_proj", Linear(width, width));
  c_proj = register_module("c_proj", Linear(width, embedding));
}

at::Tensor AttentionPoolImpl::forward(const at::Tensor& x) {
  const at::Tensor pixels = x.flatten(2).transpose(1, 2);
  const at::Tensor tokens = at::cat({pixels.mean(1, /*keepdim=*/true), pixels}, 1) + position;
  const at::Tensor attended = at::scaled_dot_product_attention(
      split_heads(q_proj->forward(tokens.narrow(1, 0, 1)), heads_),
      split_heads(k_proj->forward(tokens), heads_), split_heads(v_proj->forward(tokens), heads_));
  return c_proj->forward(join_heads(attended)).squeeze(1);
}

int64_t AttentionPoolImpl::multiply_adds() const {
  const int64_t tokens = position.size(0), width = position.size(1);
  const int64_t projections = (1 + 2 * tokens) * width * width + c_proj->weight.numel();
  return projections + 2 * tokens * width;
}

}  // namespace tpgm
