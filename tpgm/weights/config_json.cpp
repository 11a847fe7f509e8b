// Reads the config files of transformers, open_clip and timm, and writes those of transformers.
#include "tpgm/weights/config_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "tpgm/base/untrusted.h"
#include "tpgm/weights/json_members.h"

namespace tpgm {
namespace {

using json_members::child;
using json_members::Json;
using json_members::kUnsupported;
using json_members::parse;
using json_members::Reader;
using json_members::text_of;

// Options change what a model computes, so an unknown one is an error, unless it is off.
void check_keys(const Json& json, const std::string& where, std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : json.items()) {
    const bool off = value.is_null() || value == false;
    if (off || std::find(known.begin(), known.end(), key) != known.end()) continue;
    throw Malformed{fmt::format("{} has '{}'", where, printable(key, 40)), kUnsupported};
  }
}

}  // namespace

bool read_huggingface_config(std::string_view file, ModelConfig& config) {
  const Json json = parse(file);
  const std::string type = text_of(json, "model_type");
  if (!type.starts_with("clip")) return false;
  // The file of CLIPModel has an object for each tower, the file of CLIPVisionModel is that of its only
  // tower.
  const bool vision_only = type == "clip_vision_model" || !json.contains("vision_config");
  const Reader vision(vision_only ? json : child(json, "vision_config"));
  vision("image_size", config.image_size);
  vision("num_channels", config.channels);
  vision("patch_size", config.patch);
  vision("hidden_size", config.width);
  vision("num_hidden_layers", config.depth);
  vision("num_attention_heads", config.heads);
  vision("intermediate_size", config.mlp);
  vision("layer_norm_eps", config.eps);
  vision("hidden_act", config.activation);
  const Reader text(child(json, "text_config"));
  text("hidden_size", config.text_width);
  text("num_hidden_layers", config.text_depth);
  text("num_attention_heads", config.text_heads);
  text("intermediate_size", config.text_mlp);
  text("vocab_size", config.vocab);
  text("max_position_embeddings", config.context);
  text("eos_token_id", config.end_of_text, 0);
  std::optional<Activation> activation;
  std::optional<double> eps;
  text("hidden_act", activation);
  text("layer_norm_eps", eps);
  const bool alike = (!activation || activation == config.activation) && (!eps || eps == config.eps);
  if (!alike) throw Malformed{"hidden_act or layer_norm_eps differs between the two towers", kUnsupported};
  // As in transformers: 2 is the wrong number in old files, whose texts end with their largest token.
  if (config.end_of_text == 2) config.end_of_text = -1;
  return true;
}

bool read_open_clip_resnet_config(std::string_view file, ModelConfig& config) {
  const Json json = parse(file);
  const Json& model = child(json, "model_cfg");
  check_keys(model, "model_cfg",
             {"embed_dim", "vision_cfg", "text_cfg", "quick_gelu", "custom_text", "init_logit_scale"});
  check_keys(child(model, "vision_cfg"), "vision_cfg",
             {"image_size", "layers", "width", "patch_size", "head_width", "mlp_ratio", "patch_dropout"});
  check_keys(child(model, "text_cfg"), "text_cfg",
             {"context_length", "vocab_size", "width", "heads", "layers", "mlp_ratio", "hf_tokenizer_name"});
  const Reader vision(child(model, "vision_cfg")), text(child(model, "text_cfg"));
  vision("image_size", config.image_size);
  vision("width", config.width);
  text("width", config.text_width);
  text("layers", config.text_depth);
  text("heads", config.text_heads);
  text("vocab_size", config.vocab);
  text("context_length", config.context);
  const auto quick = model.find("quick_gelu");
  config.activation = quick != model.end() && *quick == true ? Activation::kQuickGelu : Activation::kGelu;
  return true;
}

bool read_open_clip_vit_config(std::string_view file, ModelConfig& config) {
  read_open_clip_resnet_config(file, config);  // the members that both image towers have, and the text tower
  const Json json = parse(file);
  const Reader vision(child(child(json, "model_cfg"), "vision_cfg"));
  std::optional<int64_t> head_width;
  vision("head_width", head_width);
  vision("layers", config.depth);
  vision("patch_size", config.patch);
  if (config.width) config.heads = *config.width / head_width.value_or(64);
  return true;
}

bool read_timm_config(std::string_view file, ModelConfig& config) {
  const Json json = parse(file);
  if (!json.contains("architecture")) return false;
  const std::string pool = text_of(json, "global_pool");
  if (pool == "avg") config.pool = Pool::kMean;
  if (pool == "token") config.pool = Pool::kClass;
  if (!pool.empty() && !config.pool) throw Malformed{"global_pool is neither token nor avg", kUnsupported};
  config.activation = text_of(json, "architecture").find("quickgelu") == std::string::npos
                          ? Activation::kGelu
                          : Activation::kQuickGelu;
  return true;
}

std::string huggingface_config(const ModelConfig& config, bool with_text) {
  nlohmann::ordered_json vision{{"model_type", "clip_vision_model"},
                                {"image_size", config.image_size.value()},
                                {"num_channels", config.channels.value()},
                                {"patch_size", config.patch.value()},
                                {"hidden_size", config.width.value()},
                                {"num_hidden_layers", config.depth.value()},
                                {"num_attention_heads", config.heads.value()},
                                {"intermediate_size", config.mlp.value()},
                                {"hidden_act", to_text(config.activation.value())},
                                {"layer_norm_eps", config.eps.value()},
                                {"projection_dim", config.embedding.value()}};
  if (!with_text) {
    vision["architectures"] = {config.embedding.value() > 0 ? "CLIPVisionModelWithProjection"
                                                            : "CLIPVisionModel"};
    return vision.dump(2) + "\n";
  }
  // A text of CLIP ends with its largest token, unless a config gives another one.
  const int64_t end = config.end_of_text.value() < 0 ? config.vocab.value() - 1 : config.end_of_text.value();
  const nlohmann::ordered_json text{{"model_type", "clip_text_model"},
                                    {"hidden_size", config.text_width.value()},
                                    {"num_hidden_layers", config.text_depth.value()},
                                    {"num_attention_heads", config.text_heads.value()},
                                    {"intermediate_size", config.text_mlp.value()},
                                    {"hidden_act", to_text(config.activation.value())},
                                    {"layer_norm_eps", config.eps.value()},
                                    {"vocab_size", config.vocab.value()},
                                    {"max_position_embeddings", config.context.value()},
                                    {"bos_token_id", end - 1},
                                    {"eos_token_id", end},
                                    {"pad_token_id", end},
                                    {"projection_dim", config.embedding.value()}};
  return nlohmann::ordered_json{{"architectures", {"CLIPModel"}},
                                {"model_type", "clip"},
                                {"projection_dim", config.embedding.value()},
                                {"vision_config", vision},
                                {"text_config", text}}
             .dump(2) +
         "\n";
}

}  // namespace tpgm
