// WISE on two checkpoints: θ₀ + ratio · (θ − θ₀), streamed from file to file without a model.
#pragma once

#include <torch/arg.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tpgm/checkpoints/chunks.h"
#include "tpgm/io/checkpoint.h"

namespace tpgm {

struct MergeOptions {
  /// One output per ratio. 0 is the pre-trained model, 1 the fine-tuned one; others extrapolate beyond [0,
  /// 1].
  TORCH_ARG(std::vector<double>, ratios) = { 0.5 };
  /// Pairs of (glob, ratio): other ratios for the names that a glob matches, in all outputs. The last match
  /// counts.
 public:
  using Filters = std::vector<std::pair<std::string, double>>;
  TORCH_ARG(Filters, filters);
  /// Globs of tensors to copy from the fine-tuned checkpoint. Excluded tensors that it does not have are
  /// dropped.
  TORCH_ARG(std::vector<std::string>, exclude);
  /// Bytes of data per file, 0 for one file; see SafetensorsWriter.
  TORCH_ARG(int64_t, shard_size) = 0;
  /// Returns the value of keys::kCommand in the output of a ratio; null: none.
  TORCH_ARG(std::function<std::string(double ratio)>, command);
};

/// Writes a safetensors checkpoint for every ratio, all from one read of the inputs, and returns the files of
/// each.
///
/// Parameters and buffers are both interpolated, in fp32 or better, and written in the type of the fine-tuned
/// checkpoint; integers and bools are copied from it. Both checkpoints must have the same names and shapes
/// after `exclude`; otherwise this throws with the first ten that differ. The bytes of an output depend only
/// on the inputs, its ratio and the options: not on the other ratios, on paths or on the number of threads.
///
/// Nothing appears at `outputs` before all of it is on the disk. Memory: a few megabytes per thread, and the
/// pages of the mapped inputs, which the system reclaims when it needs them.
std::vector<std::vector<std::filesystem::path>> merge_checkpoints(
    Checkpoint pretrained, Checkpoint finetuned, const std::vector<std::filesystem::path>& outputs,
    const MergeOptions& options, const Progress& progress = {});

}  // namespace tpgm
