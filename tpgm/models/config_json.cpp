#include "tpgm/models/config_json.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tpgm/io/file.h"
#include "tpgm/io/untrusted.h"

namespace tpgm {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxBytes = 16 << 20;

Json parse(const std::filesystem::path& path) {
  const MappedFile file(path, "read_weights");
  Json json;
  if (file.size() <= kMaxBytes) {
    json = Json::parse(file.bytes(), nullptr, /*allow_exceptions=*/false);
  } else {
    json = Json::value_t::discarded;
  }
  TORCH_CHECK(json.is_object(), "[read_weights] '", path.string(),
              "': it is no JSON object; restore it, or remove it and give the sizes with --model");
  return json;
}

const Json& child(const Json& json, const char* name) {
  static const Json kNothing = Json::object();
  const auto found = json.find(name);
  return found != json.end() && found->is_object() ? *found : kNothing;
}

// Reads members of one object; a wrong type names the file and the key.
class Reader {
 public:
  Reader(const Json& json, const std::filesystem::path& path) : json_(json), path_(path) {}

  void operator()(const char* key, std::optional<int64_t>& into) const {
    if (const Json* value = find(key)) {
      check(value->is_number_integer() && value->get<double>() >= 0 && value->get<double>() < 1 << 24, key,
            "a size");
      into = value->get<int64_t>();
    }
  }
  void operator()(const char* key, std::optional<double>& into) const {
    if (const Json* value = find(key)) {
      check(value->is_number(), key, "a number");
      into = value->get<double>();
    }
  }
  void activation(const char* key, std::optional<std::string>& into) const {
    if (const Json* value = find(key)) {
      check(value->is_string() && (*value == "gelu" || *value == "quick_gelu"), key, "gelu or quick_gelu");
      into = value->get<std::string>();
    }
  }

 private:
  const Json* find(const char* key) const {
    const auto found = json_.find(key);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }
  void check(bool right, const char* key, const char* expected) const {
    TORCH_CHECK(right, "[read_weights] '", path_.string(), "': ", key, " is ",
                printable(json_.at(key).dump(-1, ' ', true), 40), ", expected ", expected);
  }

  const Json& json_;
  const std::filesystem::path& path_;
};

// CLIPModel's file has an object per tower; CLIPVisionModel's is the vision tower's own.
void read_huggingface(const Json& json, const std::filesystem::path& path, ModelConfig& config) {
  const bool vision_only =
      json.value("model_type", "") == "clip_vision_model" || !json.contains("vision_config");
  const Reader vision(vision_only ? json : child(json, "vision_config"), path);
  vision("image_size", config.image_size);
  vision("num_channels", config.channels);
  vision("patch_size", config.patch);
  vision("hidden_size", config.width);
  vision("num_hidden_layers", config.depth);
  vision("num_attention_heads", config.heads);
  vision("intermediate_size", config.mlp);
  vision("layer_norm_eps", config.eps);
  vision.activation("hidden_act", config.activation);
  const Reader text(child(json, "text_config"), path);
  text("hidden_size", config.text_width);
  text("num_hidden_layers", config.text_depth);
  text("num_attention_heads", config.text_heads);
  text("intermediate_size", config.text_mlp);
  text("vocab_size", config.vocab);
  text("max_position_embeddings", config.context);
  text("eos_token_id", config.end_of_text);
  // transformers' own rule: 2 is what old files say, and then it is the largest token of a text.
  if (config.end_of_text == 2) config.end_of_text = -1;
}

void read_open_clip(const Json& json, const std::filesystem::path& path, ModelConfig& config) {
  const Json& model = child(json, "model_cfg");
  const Json &vision_json = child(model, "vision_cfg"), &text_json = child(model, "text_cfg");
  const Reader vision(vision_json, path), text(text_json, path);
  vision("image_size", config.image_size);
  vision("width", config.width);
  if (!is_resnet(config.family)) {
    std::optional<int64_t> head_width;
    vision("head_width", head_width);
    vision("layers", config.depth);
    vision("patch_size", config.patch);
    if (config.width && head_width.value_or(64) > 0) config.heads = *config.width / head_width.value_or(64);
  }
  text("width", config.text_width);
  text("layers", config.text_depth);
  text("heads", config.text_heads);
  text("vocab_size", config.vocab);
  text("context_length", config.context);
  const auto quick = model.find("quick_gelu");
  config.activation = quick != model.end() && *quick == true ? "quick_gelu" : "gelu";
}

}  // namespace

std::optional<ConfigFile> read_config_json(const std::filesystem::path& folder, Family family) {
  if (!is_clip(family)) return std::nullopt;
  std::error_code error;
  ConfigFile result{folder / "open_clip_config.json", {}};
  result.config.family = family;
  if (std::filesystem::is_regular_file(result.path, error)) {
    read_open_clip(parse(result.path), result.path, result.config);
    return result;
  }
  result.path = folder / "config.json";
  if (family != Family::kClipVit || !std::filesystem::is_regular_file(result.path, error))
    return std::nullopt;
  const Json json = parse(result.path);
  const auto type = json.find("model_type");
  if (type == json.end() || !type->is_string() || !type->get<std::string>().starts_with("clip"))
    return std::nullopt;
  read_huggingface(json, result.path, result.config);
  return result;
}

std::string huggingface_config(const ModelConfig& config, bool with_text) {
  TORCH_CHECK(config.family == Family::kClipVit, "[huggingface_config] transformers' CLIP has no ",
              to_text(config.family));
  nlohmann::ordered_json vision{
      {"model_type", "clip_vision_model"},           {"image_size", config.image_size.value()},
      {"num_channels", config.channels.value()},     {"patch_size", config.patch.value()},
      {"hidden_size", config.width.value()},         {"num_hidden_layers", config.depth.value()},
      {"num_attention_heads", config.heads.value()}, {"intermediate_size", config.mlp.value()},
      {"hidden_act", config.activation.value()},     {"layer_norm_eps", config.eps.value()},
      {"projection_dim", config.embedding.value()}};
  if (!with_text) {
    vision["architectures"] = {config.embedding.value() > 0 ? "CLIPVisionModelWithProjection"
                                                            : "CLIPVisionModel"};
    return vision.dump(2) + "\n";
  }
  // CLIP's end is its largest token, unless a config said otherwise.
  const int64_t end = config.end_of_text.value() < 0 ? config.vocab.value() - 1 : config.end_of_text.value();
  const nlohmann::ordered_json text{{"model_type", "clip_text_model"},
                                    {"hidden_size", config.text_width.value()},
                                    {"num_hidden_layers", config.text_depth.value()},
                                    {"num_attention_heads", config.text_heads.value()},
                                    {"intermediate_size", config.text_mlp.value()},
                                    {"hidden_act", config.activation.value()},
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
