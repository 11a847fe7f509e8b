// Reads a checkpoint as weights of one of our models: its layout, its sizes, and its tensors under our names.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tpgm/io/checkpoint.h"
#include "tpgm/io/metadata.h"
#include "tpgm/models/config.h"
#include "tpgm/weights/names.h"

namespace tpgm {

struct ModelWeights {
  ModelConfig config;
  Layout layout = Layout::kTpgm;
  /// Views of the file where that is possible. "visual.*", "text.*" and "logit_scale" of CLIP; the backbone's
  /// own names of others; "head.*" of a classifier.
  NamedTensors tensors{"Tensor"};
  /// The preprocessing of images: our own metadata's, or else that of a config file beside the weights
  /// (preprocessor_config.json, open_clip_config.json, timm's config.json), which a note names. Neither needs
  /// to give all of it; see complete().
  ImageView view;
  /// What was unwrapped, left out, filled in, resized or assumed, for the user to read.
  std::vector<std::string> notes;

  bool has_text() const { return tensors.contains("text.stem.token.weight"); }
  bool has_head() const { return tensors.contains("head.weight"); }
  /// The image tower's, under its own names.
  NamedTensors backbone() const;
  /// Without "text." before the names.
  NamedTensors text() const;
};

/// Recognizes the checkpoint by its names and shapes. Sizes that shapes do not show (heads, the activation)
/// are `wanted`'s, what the user asked for; or else our own metadata's; or else those of the config.json or
/// open_clip_config.json beside the file; or else the family's usual ones. Another family, or other sizes
/// than the shapes show, are an error that says both, save for image_size, to which position embeddings are
/// resized.
///
/// Throws if no model is recognized, if a tensor is unknown, missing or of another shape, and for a family
/// whose models keep their own names (a script: see load_classifier()). Errors name the file.
ModelWeights read_weights(const Checkpoint& checkpoint,
                          const std::optional<ModelConfig>& wanted = std::nullopt);

/// The family that names and metadata show, and the tensors under our names as in ModelWeights::tensors.
/// Sizes are not looked at. Throws like read_weights().
struct RenamedWeights {
  const Family* family = nullptr;
  Layout layout = Layout::kTpgm;
  NamedTensors tensors{"Tensor"};
};
RenamedWeights rename_weights(const Checkpoint& checkpoint);

/// Sets what is open in `view` to what `other` has.
void fill(ImageView& view, const ImageView& other);
/// `view`, and the usual values of the family where it is open.
ImageView complete(ImageView view, const Family& family);

/// What the metadata of a checkpoint of ours says of its model ("tpgm.model"); nothing if it says nothing.
std::optional<ModelConfig> model_of(const Checkpoint& checkpoint);
/// Whether that is a script.
bool names_script(const Checkpoint& checkpoint);

}  // namespace tpgm
