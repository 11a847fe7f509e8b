// The preprocessing of images in the files of other libraries: read from them, and written so that transformers
// sees the images that we see. layouts.h says which library has which file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tpgm/io/metadata.h"

namespace tpgm {

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

/// transformers' preprocessor_config.json, for CLIPImageProcessor. Nothing in `view` is open.
std::string huggingface_preprocessing(const ImageView& view, int64_t image_size, int64_t channels);

}  // namespace tpgm
