// Writes weights in the layouts of other libraries.
#pragma once

#include <torch/arg.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tpgm/weights/names.h"
#include "tpgm/weights/read.h"

namespace tpgm {

struct SaveOptions {
  TORCH_ARG(Layout, layout) = Layout::kTpgm;
  /// For floating-point tensors; by default each keeps its own.
  TORCH_ARG(std::optional<at::ScalarType>, dtype) = std::nullopt;
  /// Bytes of data per file, 0 for one file; see SafetensorsWriter.
  TORCH_ARG(int64_t, shard_size) = 0;
  /// To be written beside what is needed to know the model again ("tpgm.model", "format").
  TORCH_ARG(Metadata, metadata);
};

struct SavedModel {
  std::vector<std::filesystem::path> files;
  std::vector<std::string> notes;
  size_t tensors = 0, bytes = 0;
};

/// Writes the weights as safetensors in the names and shapes of another library. A folder becomes
/// model.safetensors in it; of CLIP for Hugging Face also config.json and preprocessor_config.json, with the
/// family's usual values where the preprocessing of the weights is open. Nothing appears before all of it is
/// on the disk.
SavedModel save_as(const ModelWeights& weights, const std::filesystem::path& output,
                   const SaveOptions& options);

}  // namespace tpgm
