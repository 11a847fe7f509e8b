// Activation checkpointing: memory for time.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace tpgm {

/// run(x), keeping nothing of it but x: the backward pass runs it again to get its gradients. `parameters`
/// are all tensors inside `run` that need a gradient. `run` must give the same result twice (no dropout),
/// and be callable as long as the graph lives. Without a gradient to compute it is run(x) alone.
///
/// Autocast is as it was, at the second time too. It cannot be differentiated twice.
at::Tensor recomputed(const std::function<at::Tensor(const at::Tensor&)>& run, const at::Tensor& x,
                      const std::vector<at::Tensor>& parameters);

}  // namespace tpgm
