// Folding as an autograd function, and which norms are folded.
#include "tpgm/nn/folded_norm.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tpgm/core/cuda_stream.h"
#include "tpgm/core/dtype.h"
#include "tpgm/core/memory_order.h"
#include "tpgm/kernels/fold_norm.h"
#include "tpgm/kernels/projection.h"
#include "tpgm/nn/layers.h"
#include "tpgm/nn/operands.h"
#include "tpgm/nn/precision.h"

namespace tpgm {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

thread_local const FoldedNorms* folded_norms = nullptr;

// Whether the rows are dense and follow each other, in whatever order their elements lie.
bool has_dense_rows(const at::Tensor& weights) {
  return weights.is_non_overlapping_and_dense() &&
         (weights.size(0) == 1 || weights.stride(0) == weights.numel() / weights.size(0));
}

kernels::Fold call_for(const NormToFold& each, double eps) {
  kernels::Fold call;
  call.dtype = dtype_of(each.weights.scalar_type());
  call.rows = each.weights.size(0);
  call.cols = each.weights.numel() / call.rows;
  call.weights = each.weights.const_data_ptr();
  call.norm = {each.weight.const_data_ptr(), each.bias.const_data_ptr(), each.running_mean.const_data_ptr(),
               each.running_var.const_data_ptr(), eps};
  return call;
}

const kernels::FoldNormBackend& fold_backend(const at::Tensor& tensor) {
  return tensor.is_cuda() ? kernels::fold_norm_cuda() : kernels::fold_norm_cpu();
}

const kernels::ParallelFor kParallelFor = [](int64_t n, const auto& body) {
  at::parallel_for(0, n, /*grain_size=*/8, body);
};

constexpr size_t kTensors = 5;  // of a NormToFold

NormToFold each_of(at::TensorList all, size_t i) {
  return {all[kTensors * i], all[kTensors * i + 1], all[kTensors * i + 2], all[kTensors * i + 3],
          all[kTensors * i + 4]};
}

struct FoldTogether : torch::autograd::Function<FoldTogether> {
  // Returns weights and shifts in turns.
  static tensor_list forward(AutogradContext* context, at::TensorList all, double eps) {
    const c10::DeviceGuard guard(all[0].device());
    tensor_list results;
    std::vector<kernels::Fold> calls;
    for (size_t i = 0; i < all.size() / kTensors; ++i) {
      const NormToFold each = each_of(all, i);
      auto call = call_for(each, eps);
      call.folded = results.emplace_back(at::empty_like(each.weights)).mutable_data_ptr();
      call.shift = results.emplace_back(at::empty_like(each.bias)).mutable_data_ptr();
      calls.push_back(call);
    }
    fold_backend(all[0]).forward(calls, kParallelFor, current_stream(all[0].device()));
    context->set_materialize_grads(false);
    context->save_for_backward(all.vec());
    context->saved_data["eps"] = eps;
    return results;
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& grads) {
    check_first_derivative("a BatchNorm in evaluation");
    const auto all = context->get_saved_variables();
    const c10::DeviceGuard guard(all[0].device());
    tensor_list result(all.size() + 1), kept;
    std::vector<kernels::Fold> calls;
    for (size_t i = 0; i < all.size() / kTensors; ++i) {
      const NormToFold each = each_of(all, i);
      const at::Tensor &dfolded = grads[2 * i], &dshift = grads[2 * i + 1];
      if (!dfolded.defined() && !dshift.defined()) continue;
      auto call = call_for(each, context->saved_data["eps"].toDouble());
      if (dfolded.defined()) {
        call.dfolded = kept.emplace_back(in_order_of(dfolded, each.weights, each.weights.scalar_type()))
                           .const_data_ptr();
        call.dweights = (result[kTensors * i] = at::empty_like(each.weights)).mutable_data_ptr();
      }
      call.dscale = (result[kTensors * i + 1] = at::empty_like(each.weight)).mutable_data_ptr();
      if (dshift.defined()) {
        call.dshift = kept.emplace_back(dshift.contiguous()).const_data_ptr();
        result[kTensors * i + 2] = kept.back();
      }
      calls.push_back(call);
    }
    if (!calls.empty()) fold_backend(all[0]).backward(calls, kParallelFor, current_stream(all[0].device()));
    return result;
  }
};

bool needs_gradients(const NormToFold& each) {
  return at::GradMode::is_enabled() &&
         (each.weights.requires_grad() || each.weight.requires_grad() || each.bias.requires_grad());
}

// Whether folding pays off, and the kernels take these tensors.
bool can_fold(const NormToFold& each) {
  const auto& weights = each.weights;
  if (weights.numel() == 0 || !has_dense_rows(weights) || each.weight.scalar_type() != at::kFloat)
    return false;
  if (weights.is_cpu()) return weights.scalar_type() == at::kFloat;
  return weights.is_cuda() && kernels::tuned_for(weights.get_device()) && needs_gradients(each) &&
         (weights.scalar_type() == at::kFloat || weights.scalar_type() == at::kBFloat16);
}

}  // namespace

std::vector<FoldedNorms::Folded> fold(const std::vector<NormToFold>& norms, double eps) {
  tensor_list all;
  for (const auto& each : norms) {
    all.insert(all.end(), {each.weights, each.weight, each.bias, each.running_mean, each.running_var});
  }
  std::vector<FoldedNorms::Folded> result;
  if (all.empty()) return result;
  const auto made = FoldTogether::apply(at::TensorList(all), eps);
  for (size_t i = 0; i < norms.size(); ++i) result.push_back({made[2 * i], made[2 * i + 1]});
  return result;
}

FoldedNorms::FoldedNorms(const Pairs& pairs) : before_(folded_norms) {
  // Apart: autograd computes the gradients of a function for all of its arguments if one needs them.
  for (const bool with_gradients : {true, false}) {
    std::vector<const Conv2dImpl*> convs;
    std::vector<NormToFold> norms;
    for (const auto& [conv, norm] : pairs) {
      if (norm->is_training() || conv->bias.defined()) continue;
      // On the CPU autocast casts the weights when the convolution runs.
      const NormToFold each{conv->weight.is_cuda() ? autocasted(conv->weight) : conv->weight, norm->weight,
                            norm->bias, norm->running_mean, norm->running_var};
      if (needs_gradients(each) != with_gradients || !can_fold(each)) continue;
      convs.push_back(conv);
      norms.push_back(each);
    }
    const auto folded = fold(norms, BatchNorm2dImpl::kEps);
    for (size_t i = 0; i < convs.size(); ++i) folded_.emplace(convs[i], folded[i]);
  }
  folded_norms = this;
}

FoldedNorms::~FoldedNorms() { folded_norms = before_; }

const FoldedNorms::Folded* FoldedNorms::of(const Conv2dImpl& conv) {
  if (folded_norms == nullptr) return nullptr;
  const auto place = folded_norms->folded_.find(&conv);
  return place == folded_norms->folded_.end() ? nullptr : &place->second;
}

}  // namespace tpgm
