// Other libraries' config.json: read for the sizes that weights do not show, written for them to go on with.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "tpgm/models/config.h"

namespace tpgm {

/// What the config.json (transformers', of ViTs timm's) or open_clip_config.json in the folder of a
/// checkpoint says of a model of this family; nothing if there is none, or one of another kind. Throws for
/// one that is broken, and for what our models cannot be.
struct ConfigFile {
  std::filesystem::path path;
  ModelConfig config;
};
std::optional<ConfigFile> read_config_json(const std::filesystem::path& folder, const Family& family);

/// The same of a file's text; `name` is the file's ("config.json"). Nothing too if the family has no file of
/// that name. Throws Malformed.
std::optional<ModelConfig> parse_config_json(std::string_view text, std::string_view name,
                                             const Family& family);

/// transformers' config.json for CLIPModel, or, without a text tower, CLIPVisionModelWithProjection. The
/// family must be clip-vit and the config complete.
std::string huggingface_config(const ModelConfig& config, bool with_text);

}  // namespace tpgm
