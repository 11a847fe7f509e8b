// The models by name, and how to make one.
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
  std::string name;                  // "clip-vit-b-32"
  std::vector<std::string> aliases;  // as timm, torchvision, open_clip, OpenAI and Hugging Face call it
  std::string sizes;                 // "clip-vit:image_size=224,..."
};
const std::vector<ModelInfo>& models();

/// "resnet50", "ViT-B/32", a family for sizes of one's own, and changes behind a colon:
/// "clip-vit-b-16:image_size=288", "vit:width=192,depth=6,heads=3,patch=4,image_size=32,channels=1". Of a
/// family whose models are files the file comes first: "script:model.pt:image_size=32"; it need not be there
/// yet. A wrong name or size is an error with the nearest one.
ModelConfig parse_model(const std::string& text);

/// True for "script:...", a model that brings its weights and is run from its file.
bool is_script(const std::string& model);

/// Sets what is still unknown to the family's usual values. Throws for what has none, such as the heads of a
/// width that is no multiple of 64.
void set_defaults(ModelConfig& config);

/// The image tower; parameters are not initialised, save those of a file. What the config leaves open is
/// set_defaults'.
std::shared_ptr<Backbone> make_backbone(ModelConfig config);
/// The text tower; throws unless the family has one.
std::shared_ptr<ClipText> make_clip_text(ModelConfig config);
std::shared_ptr<Clip> make_clip(const ModelConfig& config);

/// Parameters of the image tower, and of the text tower (0 if none); multiply-adds of one image, in the
/// convolutions and matrix products, as torchvision and timm count them. Made on kMeta: takes milliseconds.
/// Throws for a script.
struct ModelCost {
  int64_t parameters = 0, text_parameters = 0;
  double gflops = 0;
};
ModelCost cost_of(const ModelConfig& config);

}  // namespace tpgm
