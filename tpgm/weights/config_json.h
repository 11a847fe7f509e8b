// The config files of other libraries: read for the sizes that weights do not show and for the preprocessing
// of images, and written so that transformers can load what we save. layouts.h says which layout has which
// file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tpgm/io/metadata.h"
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

/// How a config file preprocesses images.
struct Preprocessing {
  ImageView view;
  std::optional<int64_t> image_size;  ///< pixels on a side of the model's input
  /// What the transforms of data/transforms.h cannot do and do otherwise, for the user to read.
  std::vector<std::string> differences;
};

/// Each of these takes the text of a file. They return false if the file says nothing of images, and throw
/// Malformed for a broken file and for values out of range.

/// transformers: preprocessor_config.json of an image processor, or processor_config.json, which has one.
bool read_huggingface_preprocessing(std::string_view file, Preprocessing& into);
/// open_clip: "preprocess_cfg" in open_clip_config.json.
bool read_open_clip_preprocessing(std::string_view file, Preprocessing& into);
/// timm: "pretrained_cfg" in config.json; in older files the same members beside "architecture".
bool read_timm_preprocessing(std::string_view file, Preprocessing& into);

/// transformers' config.json for CLIPModel, or, without a text tower, CLIPVisionModelWithProjection. `config`
/// is a complete config of CLIP with a ViT.
std::string huggingface_config(const ModelConfig& config, bool with_text);
/// transformers' preprocessor_config.json, for CLIPImageProcessor. Nothing in `view` is open.
std::string huggingface_preprocessing(const ImageView& view, int64_t image_size, int64_t channels);

}  // namespace tpgm
