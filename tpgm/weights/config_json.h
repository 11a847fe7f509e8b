// The config files of other libraries: read for the sizes that weights do not show, and written so that
// transformers can load what we save. layouts.h says which layout has which file.
#pragma once

#include <string>
#include <string_view>

#include "tpgm/models/config.h"

namespace tpgm {

/// Each of these takes the text of a file and sets the sizes in `config` that it gives. They return false if
/// the file describes another model, and throw Malformed for a broken file and for what our models cannot
/// compute.

/// transformers: config.json of CLIPModel, CLIPVisionModel and CLIPVisionModelWithProjection.
bool read_huggingface_config(std::string_view file, ModelConfig& config);
/// open_clip: open_clip_config.json of models whose image tower is a ResNet.
bool read_open_clip_resnet_config(std::string_view file, ModelConfig& config);
/// open_clip: the same of models whose image tower is a ViT.
bool read_open_clip_vit_config(std::string_view file, ModelConfig& config);
/// timm: config.json of ViTs on the Hugging Face hub.
bool read_timm_config(std::string_view file, ModelConfig& config);

/// transformers' config.json for CLIPModel, or, without a text tower, CLIPVisionModelWithProjection. `config`
/// is a complete config of CLIP with a ViT.
std::string huggingface_config(const ModelConfig& config, bool with_text);

}  // namespace tpgm
