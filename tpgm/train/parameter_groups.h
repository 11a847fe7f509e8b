// The parameter groups of a classifier: which learning rate and weight decay each parameter has.
#pragma once

#include <torch/arg.h>

#include <string>
#include <vector>

#include "tpgm/train/optimizer.h"

namespace tpgm {

struct GroupOptions {
  TORCH_ARG(double, weight_decay) = 0;
  /// Apply weight decay to biases and norms, too: to parameters of one dimension or with the name "bias".
  TORCH_ARG(bool, decay_all) = false;
  /// Factor on the learning rate from each block to the one before it.
  TORCH_ARG(double, layer_decay) = 1;
  /// Factor on the learning rate of the head.
  TORCH_ARG(double, head_scale) = 1;
  /// The head's module.
  TORCH_ARG(std::string, head) = "head";
};

/// Sorts the parameters of a classifier (models/classifier.h) into one group for each pair of learning rate
/// and weight decay, in their order. A tensor under two names is there once, under the first. A parameter
/// below options.head() belongs to the head; another one to the block of `blocks` (from input to
/// output, "backbone.layer1.0") that its name begins with, or else to the first block. With layer_decay, the
/// factor of the last block is layer_decay, that of the one before it layer_decay², and so on; the head has
/// factor head_scale alone.
std::vector<ParameterGroup> parameter_groups(const NamedTensors& parameters,
                                             const std::vector<std::string>& blocks,
                                             const GroupOptions& options);

}  // namespace tpgm
