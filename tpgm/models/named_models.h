// The named models (sizes of families), and functions that make models from their description.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tpgm/models/backbone.h"
#include "tpgm/models/clip.h"
#include "tpgm/models/config.h"

namespace tpgm {

struct ModelInfo {
  std::string name;  // "clip-vit-b-32"
  std::vector<std::string>
      aliases;        // its names in timm, torchvision, open_clip, OpenAI's CLIP and on Hugging Face
  std::string sizes;  // "clip-vit:image_size=224,..."
};
const std::vector<ModelInfo>& models();

/// Reads the description of a model: a name or alias ("resnet50", "ViT-B/32"), or a family, and sizes after a
/// colon: "clip-vit-b-16:image_size=288", "vit:width=192,depth=6,heads=3,patch=4,image_size=32,channels=1".
/// In a family whose models are files the file comes first: "script:model.pt:image_size=32"; it need not
/// exist yet. Throws for an unknown name or size, and suggests the nearest.
ModelConfig parse_model(const std::string& text);

/// Whether `model` is a TorchScript file with its own weights: "script:...".
bool is_script(const std::string& model);

/// Sets all open sizes to the defaults of the family. Throws for a size without a default, such as the heads
/// of a width that is not a multiple of 64.
void set_defaults(ModelConfig& config);

/// Makes the image tower, after set_defaults(). Parameters are not initialized, except those of a TorchScript
/// file.
std::shared_ptr<Backbone> make_backbone(ModelConfig config);
/// Makes the text tower. Throws unless the family has one.
std::shared_ptr<ClipText> make_clip_text(ModelConfig config);
std::shared_ptr<Clip> make_clip(const ModelConfig& config);

/// The parameters of the image tower and of the text tower (0: no text tower), and the multiply-adds for one
/// image, as torchvision and timm count them. The model is made on kMeta, which takes milliseconds. Throws
/// for a TorchScript file.
struct ModelCost {
  int64_t parameters = 0, text_parameters = 0;
  double gflops = 0;
};
ModelCost cost_of(const ModelConfig& config);

}  // namespace tpgm
