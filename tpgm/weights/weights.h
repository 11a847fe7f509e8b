// A checkpoint as weights of one of our models: whose it is, what sizes it has, its tensors under our names.
#pragma once

#include <torch/arg.h>

#include <optional>
#include <string>
#include <vector>

#include "tpgm/io/checkpoint.h"
#include "tpgm/models/config.h"
#include "tpgm/weights/names.h"

namespace tpgm {

struct ModelWeights {
  ModelConfig config;
  Layout layout = Layout::kTpgm;
  /// Views of the file where that is possible. "visual.*", "text.*" and "logit_scale" of CLIP; the backbone's
  /// own names of others; "head.*" of a classifier.
  NamedTensors tensors{"Tensor"};
  /// What was unwrapped, left out, filled in, resized or assumed, for the user to read.
  std::vector<std::string> notes;

  bool has_text() const { return tensors.contains("text.stem.token.weight"); }
  bool has_head() const { return tensors.contains("head.weight"); }
  /// The image tower's, under its own names.
  NamedTensors backbone() const;
  /// Without "text." before the names.
  NamedTensors text() const;
};

/// Recognises the checkpoint by its names and shapes. Sizes that shapes do not show (heads, the activation)
/// are `wanted`'s, what the user asked for; or else our own metadata's; or else those of the config.json or
/// open_clip_config.json beside the file; or else the family's usual ones. Another family, or other sizes
/// than the shapes show, are an error that says both, save for image_size, to which position embeddings are
/// resized.
///
/// Throws if no model is recognised, if a tensor is unknown, missing or of another shape. Errors name the
/// file.
ModelWeights read_weights(const Checkpoint& checkpoint,
                          const std::optional<ModelConfig>& wanted = std::nullopt);

struct SaveOptions {
  TORCH_ARG(Layout, layout) = Layout::kTpgm;
  /// For floating-point tensors; by default each keeps its own.
  TORCH_ARG(std::optional<at::ScalarType>, dtype) = std::nullopt;
  /// Bytes of data per file, 0 for one file; see SafetensorsWriter.
  TORCH_ARG(int64_t, shard_size) = 0;
  /// To be written beside what is needed to know the model again (keys::kModel, keys::kFormat).
  TORCH_ARG(Metadata, metadata);
};

struct SavedModel {
  std::vector<std::filesystem::path> files;
  std::vector<std::string> notes;
  size_t tensors = 0, bytes = 0;
};

/// Writes the weights as safetensors in the names and shapes of another library. A folder becomes
/// model.safetensors in it; of CLIP for Hugging Face also config.json. Nothing appears before all of it is on
/// the disk.
SavedModel save_as(const ModelWeights& weights, const std::filesystem::path& output,
                   const SaveOptions& options);

/// The sizes that the shapes of our tensors show.
ModelConfig sizes_of(Family family, const NamedTensors& tensors);

}  // namespace tpgm
