// Reads the config files of transformers, open_clip and timm, and writes those of transformers.
#include "tpgm/weights/config_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
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
constexpr const char* kViewWayOut =
    "restore it, or remove it and give `mean`, `std`, `crop-pct` and `interpolation`";
constexpr const char* kUnsupported =
    "this is not known here; as TorchScript any model can be tuned: docs/models.md";

Json parse(std::string_view text, const char* way_out = kWayOut) {
  if (text.size() > kMaxBytes)
    throw Malformed{fmt::format("it has {} bytes, and a config at most {}", text.size(), kMaxBytes), way_out};
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) throw Malformed{"it is not a JSON object", way_out};
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

// A member that is there and not null.
const Json* find_member(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found == json.end() || found->is_null() ? nullptr : &*found;
}

void check_value(bool valid, const char* key, const Json& value, const char* expected, const char* way_out) {
  if (valid) return;
  // dump() of nested JSON is recursive, however deep a file nests it.
  const std::string found =
      value.is_structured() ? fmt::format("an {}", value.type_name()) : printable(value.dump(), 40);
  throw Malformed{fmt::format("{} is {}, expected {}", key, found, expected), way_out};
}

int64_t size_of_value(const char* key, const Json& value, int least, const char* way_out) {
  const double number = value.is_number_integer() ? value.get<double>() : -1;
  check_value(number >= least && number < 1 << 24, key, value, "a size", way_out);
  return value.get<int64_t>();
}

// Reads members of one object.
class Reader {
 public:
  explicit Reader(const Json& json, const char* way_out = kWayOut) : json_(json), way_out_(way_out) {}

  void operator()(const char* key, std::optional<int64_t>& into, int least = 1) const {
    if (const Json* value = find_member(json_, key)) into = size_of_value(key, *value, least, way_out_);
  }
  void operator()(const char* key, std::optional<double>& into) const {
    if (const Json* value = find_member(json_, key)) {
      check_value(value->is_number() && value->get<double>() > 0 && value->get<double>() < 1, key, *value,
                  "a number between 0 and 1", way_out_);
      into = value->get<double>();
    }
  }
  void operator()(const char* key, std::optional<Activation>& into) const {
    if (const Json* value = find_member(json_, key)) {
      const bool known = value->is_string() && read_value(value->get<std::string>(), into.emplace());
      check_value(known, key, *value, "gelu or quick_gelu", kUnsupported);
    }
  }

 private:
  const Json& json_;
  const char* way_out_;
};

// Options change what a model computes, so an unknown one is an error, unless it is off.
void check_keys(const Json& json, const std::string& where, std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : json.items()) {
    const bool off = value.is_null() || value == false;
    if (off || std::find(known.begin(), known.end(), key) != known.end()) continue;
    throw Malformed{fmt::format("{} has '{}'", where, printable(key, 40)), kUnsupported};
  }
}

// --- preprocessing of images ---

constexpr double kLeastMean = 0, kLeastStd = 1e-6;

bool has_any(const Json& json, std::initializer_list<const char*> keys) {
  return std::any_of(keys.begin(), keys.end(),
                     [&](const char* key) { return find_member(json, key) != nullptr; });
}

bool read_flag(const Json& json, const char* key, bool otherwise) {
  const Json* value = find_member(json, key);
  if (!value) return otherwise;
  check_value(value->is_boolean(), key, *value, "true or false", kViewWayOut);
  return value->get<bool>();
}

// A mean or std for pixels in 0..1: one number, or one for each of three channels, divided by `unit`.
std::vector<double> read_per_channel(const Json& json, const char* key, double least, double unit) {
  std::vector<double> result;
  const Json* value = find_member(json, key);
  if (!value) return result;
  const auto add = [&](const Json& each) {
    const double number = each.is_number() ? each.get<double>() / unit : -1;
    check_value(number >= least && number <= 1, key, each, "numbers for pixels in 0..1", kViewWayOut);
    result.push_back(number);
  };
  if (value->is_array() && (value->size() == 1 || value->size() == 3)) {
    for (const Json& each : *value) add(each);
  } else {
    check_value(value->is_number(), key, *value, "one number or three", kViewWayOut);
    add(*value);
  }
  return result;
}

// Empty if there is none.
std::string read_keyword(const Json& json, const char* key) {
  const Json* value = find_member(json, key);
  if (!value) return "";
  check_value(value->is_string(), key, *value, "a keyword", kViewWayOut);
  return value->get<std::string>();
}

void set_interpolation(const std::string& name, Preprocessing& into) {
  if (name == "bicubic" || name == "bilinear") {
    into.view.interpolation = name;
  } else if (!name.empty()) {
    into.differences.push_back(
        fmt::format("interpolation '{}' is not known here; it is bicubic", printable(name, 40)));
  }
}

// The crop_pct with which the shorter side becomes `edge` when the crop has `side` pixels.
double share_of(int64_t side, int64_t edge) {
  double share = static_cast<double>(side) / static_cast<double>(edge);
  while (static_cast<int64_t>(static_cast<double>(side) / share) < edge) share = std::nextafter(share, 0.0);
  const bool sane = share >= 0.01 && share <= 8;
  if (!sane) throw Malformed{fmt::format("a crop of {} pixels from {}", side, edge), kViewWayOut};
  return share;
}

// A size of images: a number, two numbers, or an object that says which edges it means.
struct Edges {
  std::optional<int64_t> any, shortest, longest, height, width;

  bool given() const { return any || shortest || longest || height || width; }
  bool both() const { return height || width; }
  /// Nothing for a rectangle.
  std::optional<int64_t> side() const {
    return any ? any : shortest ? shortest : height == width ? height : longest;
  }
};

Edges read_edges(const Json& json, const char* key) {
  Edges edges;
  const Json* value = find_member(json, key);
  if (!value) return edges;
  if (value->is_array()) {
    check_value(value->size() == 2, key, *value, "a size, or two", kViewWayOut);
    edges.height = size_of_value(key, value->front(), 1, kViewWayOut);
    edges.width = size_of_value(key, value->back(), 1, kViewWayOut);
  } else if (value->is_object()) {
    const Reader read(*value, kViewWayOut);
    read("shortest_edge", edges.shortest);
    read("longest_edge", edges.longest);
    read("height", edges.height);
    read("width", edges.width);
  } else {
    Reader(json, kViewWayOut)(key, edges.any);
  }
  return edges;
}

constexpr const char* kHere = "here the shorter side is resized and the center cropped";

void add_rectangle(const Edges& edges, Preprocessing& into) {
  if (edges.height != edges.width) into.differences.emplace_back("its images are not square; they are here");
}

// Resizing and cropping as transformers' image processors do it.
void read_geometry(const Json& json, Preprocessing& into) {
  const Edges size = read_edges(json, "size"), crop = read_edges(json, "crop_size");
  const bool resizes = read_flag(json, "do_resize", true);
  const bool crops = read_flag(json, "do_center_crop", crop.given());
  const auto side = crop.side(), edge = size.side();
  // A number alone is the shorter side for processors that crop, and both sides for others.
  const bool squashes = size.both() || (size.any && !crops);
  if (!resizes) {
    into.differences.push_back(fmt::format("do_resize is false; {}", kHere));
  } else if (squashes) {
    into.differences.push_back(fmt::format("it resizes both sides, without their ratio; {}", kHere));
  } else if (size.longest && !size.shortest) {
    into.differences.push_back(fmt::format("it resizes the longer side; {}", kHere));
  } else if (!crops && size.given()) {
    into.differences.push_back(fmt::format("do_center_crop is false; {}", kHere));
  }
  add_rectangle(crops ? crop : size, into);
  into.image_size = crops ? side : edge;
  if (resizes && crops && side && edge) {
    into.view.crop_pct = share_of(*side, *edge);
  } else if (resizes && !crops && size.given()) {
    into.view.crop_pct = 1;
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

bool read_huggingface_preprocessing(std::string_view file, Preprocessing& into) {
  const Json whole = parse(file, kViewWayOut);
  const Json& json = whole.contains("image_processor") ? child(whole, "image_processor") : whole;
  if (!has_any(json, {"image_mean", "image_std", "size", "crop_size", "resample", "do_normalize"}))
    return false;
  // Its pixels are bytes times rescale_factor, ours bytes / 255.
  double unit = 1;
  if (const Json* factor = find_member(json, "rescale_factor")) {
    const double times = factor->is_number() ? 255 * factor->get<double>() : 0;
    check_value(times > 1 - 1e-6 && times <= 255, "rescale_factor", *factor, "a number from 1/255 to 1",
                kViewWayOut);
    if (times > 1 + 1e-6) unit = times;
  }
  if (!read_flag(json, "do_rescale", true)) {
    unit = 1;
    into.differences.emplace_back("do_rescale is false; pixels are in 0..1 here");
  }
  if (read_flag(json, "rescale_offset", false))
    into.differences.emplace_back("rescale_offset is not known here; pixels are not shifted");
  if (read_flag(json, "do_normalize", true)) {
    into.view.mean = read_per_channel(json, "image_mean", kLeastMean, unit);
    into.view.std = read_per_channel(json, "image_std", kLeastStd, unit);
  } else {
    into.view.mean = {0};
    into.view.std = {1 / unit};
  }
  if (const Json* resample = find_member(json, "resample")) {
    constexpr std::array kPillow{"nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"};
    const double number = resample->is_number_integer() ? resample->get<double>() : -1;
    check_value(number >= 0 && number <= 5, "resample", *resample, "a filter of Pillow, 0 to 5", kViewWayOut);
    set_interpolation(kPillow.at(resample->get<size_t>()), into);
  }
  read_geometry(json, into);
  return true;
}

bool read_open_clip_preprocessing(std::string_view file, Preprocessing& into) {
  const Json whole = parse(file, kViewWayOut);
  const Json& json = child(whole, "preprocess_cfg");
  if (json.empty()) return false;
  into.view.mean = read_per_channel(json, "mean", kLeastMean, 1);
  into.view.std = read_per_channel(json, "std", kLeastStd, 1);
  set_interpolation(read_keyword(json, "interpolation"), into);
  into.view.crop_pct = 1;
  const std::string mode = read_keyword(json, "resize_mode");
  if (!mode.empty() && mode != "shortest")
    into.differences.push_back(fmt::format("resize_mode is '{}'; {}", printable(mode, 40), kHere));
  const Edges size = read_edges(json, "size");
  add_rectangle(size, into);
  into.image_size = size.side();
  return true;
}

bool read_timm_preprocessing(std::string_view file, Preprocessing& into) {
  const Json whole = parse(file, kViewWayOut);
  const Json& nested = child(whole, "pretrained_cfg");
  const Json& json = nested.empty() ? whole : nested;
  const bool is_timms = !nested.empty() || whole.contains("architecture");
  if (!is_timms || !has_any(json, {"mean", "std", "crop_pct", "interpolation"})) return false;
  into.view.mean = read_per_channel(json, "mean", kLeastMean, 1);
  into.view.std = read_per_channel(json, "std", kLeastStd, 1);
  set_interpolation(read_keyword(json, "interpolation"), into);
  if (const Json* crop = find_member(json, "crop_pct")) {
    const bool valid = crop->is_number() && crop->get<double>() >= 0.01 && crop->get<double>() <= 8;
    check_value(valid, "crop_pct", *crop, "a share of the image", kViewWayOut);
    into.view.crop_pct = crop->get<double>();
  }
  const std::string mode = read_keyword(json, "crop_mode");
  if (!mode.empty() && mode != "center")
    into.differences.push_back(fmt::format("crop_mode is '{}'; {}", printable(mode, 40), kHere));
  if (const Json* input = find_member(json, "input_size")) {  // channels, height, width
    check_value(input->is_array() && input->size() == 3, "input_size", *input, "three numbers", kViewWayOut);
    Edges size;
    size.height = size_of_value("input_size", (*input)[1], 1, kViewWayOut);
    size.width = size_of_value("input_size", (*input)[2], 1, kViewWayOut);
    add_rectangle(size, into);
    into.image_size = size.side();
  }
  return true;
}

std::string huggingface_preprocessing(const ImageView& view, int64_t image_size, int64_t channels) {
  const auto per_channel = [&](const std::vector<double>& values) {
    if (channels == 3 && values.size() == 1) return std::vector<double>(3, values.front());
    if (channels == 1 && values.size() == 3) return std::vector{(values[0] + values[1] + values[2]) / 3};
    return values;
  };
  const auto edge = static_cast<int64_t>(static_cast<double>(image_size) / view.crop_pct.value());
  return nlohmann::ordered_json{{"image_processor_type", "CLIPImageProcessor"},
                                {"do_resize", true},
                                {"size", {{"shortest_edge", edge}}},
                                {"resample", view.interpolation.value() == "bilinear" ? 2 : 3},
                                {"do_center_crop", true},
                                {"crop_size", {{"height", image_size}, {"width", image_size}}},
                                {"do_rescale", true},
                                {"rescale_factor", 1.0 / 255},
                                {"do_normalize", true},
                                {"image_mean", per_channel(view.mean)},
                                {"image_std", per_channel(view.std)},
                                {"do_convert_rgb", channels == 3}}
             .dump(2) +
         "\n";
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
