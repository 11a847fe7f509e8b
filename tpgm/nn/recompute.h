// Activation checkpointing: trades time for memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace tpgm {

/// Returns run(x) and keeps only x for the backward pass, which calls `run` again to compute gradients.
/// `parameters` are all tensors inside `run` that need a gradient. `run` must give the same result twice (no
/// dropout), and must stay callable as long as the graph lives. Without gradients this is just run(x).
///
/// The second call runs with the autocast state of the first. The result has no second derivative.
at::Tensor recomputed(const std::function<at::Tensor(const at::Tensor&)>& run, const at::Tensor& x,
                      const std::vector<at::Tensor>& parameters);

}  // namespace tpgm
