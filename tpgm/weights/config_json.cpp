// Reads the config files of transformers, open_clip and timm, and writes that of transformers.
#include "tpgm/weights/config_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>

#include "tpgm/base/untrusted.h"

namespace tpgm {
namespace {

using Json = nlohmann::json;

// Real files have a few kB. The parsed JSON takes up to eighty times the bytes of its text.
constexpr size_t kMaxBytes = 1 << 19;
constexpr const char* kWayOut = "restore it, or remove it and give the sizes with `model`";
constexpr const char* kUnsupported =
    "this is not known here; as TorchScript any model can be tuned: docs/models.md";

Json parse(std::string_view text) {
  if (text.size() > kMaxBytes)
    throw Malformed{fmt::format("it has {} bytes, and a config at most {}", text.size(), kMaxBytes), kWayOut};
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) throw Malformed{"it is no JSON object", kWayOut};
  return json;
}

// A member that is text; empty if it is missing or something else.
std::string text_of(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

const Json& child(const Json& json, const char* name) {
  static const Json kNothing = Json::object();
  const auto found = json.find(name);
  return found != json.end() && found->is_object() ? *found : kNothing;
}

// Reads members of one object.
class Reader {
 public:
  explicit Reader(const Json& json) : json_(json) {}

  void operator()(const char* key, std::optional<int64_t>& into, int least = 1) const {
    if (const Json* value = find(key)) {
      const double number = value->is_number_integer() ? value->get<double>() : -1;
      check(number >= least && number < 1 << 24, key, *value, "a size");
      into = value->get<int64_t>();
    }
  }
  void operator()(const char* key, std::optional<double>& into) const {
    if (const Json* value = find(key)) {
      check(value->is_number() && value->get<double>() > 0 && value->get<double>() < 1, key, *value,
            "a number between 0 and 1");
      into = value->get<double>();
    }
  }
  void operator()(const char* key, std::optional<Activation>& into) const {
    if (const Json* value = find(key)) {
      const bool known = value->is_string() && read_value(value->get<std::string>(), into.emplace());
      check(known, key, *value, "gelu or quick_gelu", kUnsupported);
    }
  }

 private:
  const Json* find(const char* key) const {
    const auto found = json_.find(key);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }
  static void check(bool valid, const char* key, const Json& value, const char* expected,
                    const char* way_out = kWayOut) {
    if (valid) return;
    // dump() of nested JSON is recursive, however deep a file nests it.
    const std::string found =
        value.is_structured() ? fmt::format("an {}", value.type_name()) : printable(value.dump(), 40);
    throw Malformed{fmt::format("{} is {}, expected {}", key, found, expected), way_out};
  }

  const Json& json_;
};

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
