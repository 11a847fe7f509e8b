// What makes one optimizer different from another: the tensors that it keeps per parameter, and its step.
// `Optimizer` (optimizer.h) does the rest for all of them: groups, batches, memory formats, learning rates on the
// device, state dicts.
#pragma once

#include <ATen/core/Tensor.h>

#include <variant>
#include <vector>

#include "tpgm/train/optimizer.h"

namespace tpgm {

/// A tensor that an optimizer keeps for each parameter. It is 0 before the parameter's first step.
struct StateTensor {
  const char* name;  ///< in state dicts: "PARAMETER.name"
  bool is_step_count =
      false;  ///< a float32 scalar; otherwise of the parameter's shape, type and memory format
};

/// The parameters that one call updates: of one type, on one device, and all or none of them in their first
/// step.
struct ParameterBatch {
  bool first_step = false;  ///< of parameters that have a state
  std::vector<at::Tensor> parameters, gradients;
  std::vector<std::vector<at::Tensor>> state;  ///< for each StateTensor, the tensors of the parameters
};

/// A number on the CPU, and a float32 scalar on the parameters' device on CUDA.
using LearningRate = std::variant<double, at::Tensor>;

struct OptimizerAlgorithm {
  std::vector<StateTensor> (*state)(const OptimOptions& options);
  /// Updates parameters and state in place. Must not synchronize with the device: the step may be captured.
  void (*step)(ParameterBatch& batch, const OptimOptions& options, double weight_decay,
               const LearningRate& lr);
};

const OptimizerAlgorithm& algorithm_of(Opt opt);

// sgd.cpp
extern const OptimizerAlgorithm kSgdAlgorithm;
// adam.cpp
extern const OptimizerAlgorithm kAdamAlgorithm, kAdamWAlgorithm;

}  // namespace tpgm
