#include "tpgm/models/named_models.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "tpgm/base/untrusted.h"
#include "tpgm/models/families.h"
#include "tpgm/models/model_hint.h"
#include "tpgm/nn/layers.h"

namespace tpgm {
namespace {

int64_t count_parameters(const torch::nn::Module& module) {
  int64_t count = 0;
  for (const auto& parameter : module.parameters()) count += parameter.numel();
  return count;
}

}  // namespace

const std::vector<ModelInfo>& models() {
  static const std::vector<ModelInfo> kModels{
      {"clip-rn50",
       {"RN50"},
       "clip-resnet:image_size=224,layers=3-4-6-3,width=64,embedding=1024,text_width=512"},
      {"clip-rn101",
       {"RN101"},
       "clip-resnet:image_size=224,layers=3-4-23-3,width=64,embedding=512,text_width=512"},
      {"clip-vit-b-32",
       {"ViT-B/32", "ViT-B-32", "openai/clip-vit-base-patch32"},
       "clip-vit:image_size=224,patch=32,width=768,depth=12,embedding=512,text_width=512"},
      {"clip-vit-b-16",
       {"ViT-B/16", "ViT-B-16", "openai/clip-vit-base-patch16"},
       "clip-vit:image_size=224,patch=16,width=768,depth=12,embedding=512,text_width=512"},
      {"clip-vit-l-14",
       {"ViT-L/14", "ViT-L-14", "openai/clip-vit-large-patch14"},
       "clip-vit:image_size=224,patch=14,width=1024,depth=24,embedding=768,text_width=768"},
      {"clip-vit-l-14-336",
       {"ViT-L/14@336px", "ViT-L-14-336", "openai/clip-vit-large-patch14-336"},
       "clip-vit:image_size=336,patch=14,width=1024,depth=24,embedding=768,text_width=768"},
      {"resnet18", {}, "resnet:layers=2-2-2-2,block=basic"},
      {"resnet34", {}, "resnet:layers=3-4-6-3,block=basic"},
      {"resnet50", {"moco-v3-resnet50"}, "resnet:layers=3-4-6-3,block=bottleneck"},
      {"resnet101", {}, "resnet:layers=3-4-23-3,block=bottleneck"},
      {"vit-s-16", {"vit_small_patch16_224"}, "vit:image_size=224,patch=16,width=384,depth=12"},
      {"vit-b-16",
       {"vit_base_patch16_224", "vit_b_16", "mae_vit_base_patch16"},
       "vit:image_size=224,patch=16,width=768,depth=12"},
      {"vit-l-16",
       {"vit_large_patch16_224", "vit_l_16", "mae_vit_large_patch16"},
       "vit:image_size=224,patch=16,width=1024,depth=24"},
  };
  return kModels;
}

bool is_script(const std::string& model) {
  const size_t colon = model.find(':');
  return colon != std::string::npos &&
         std::any_of(families().begin(), families().end(), [&](const Family& family) {
           return family.is_file() && family.name == std::string_view(model).substr(0, colon);
         });
}

ModelConfig parse_model(const std::string& text) {
  const size_t colon = std::min(text.find(':'), text.size());
  const std::string name = text.substr(0, colon);
  ModelConfig config;
  std::vector<std::string> names, aliases;
  for (const Family& family : families()) {
    names.push_back(family.name);
    if (name == family.name) config.family = &family;
  }
  for (const auto& model : models()) {
    names.push_back(model.name);
    aliases.insert(aliases.end(), model.aliases.begin(), model.aliases.end());
    const bool alias = std::find(model.aliases.begin(), model.aliases.end(), name) != model.aliases.end();
    if (name == model.name || alias) config = parse_model(model.sizes);
  }
  std::vector<std::string> known = names;
  known.insert(known.end(), aliases.begin(), aliases.end());
  if (config.family == nullptr) {
    const auto hint = model_hint(name, known);
    TORCH_CHECK(false, "[parse_model] no model '", printable(name), "'", hint,
                hint.starts_with(':') ? ""
                                      : fmt::format("{} {}", hint.empty() ? "; there are" : " There are",
                                                    fmt::join(names, ", ")));
  }
  size_t begin = colon + 1;  // of the sizes
  if (config.family->is_file()) {
    // A colon may be part of the path. The colon before sizes is followed by an equals sign.
    const size_t last = text.rfind(':');
    const bool sizes = last != std::string::npos && last > colon && text.find('=', last) != std::string::npos;
    const size_t end = sizes ? last : text.size();
    config.file = text.substr(std::min(begin, end), end - std::min(begin, end));
    TORCH_CHECK(!config.file.empty(), "[parse_model] '", text, "' names no file; expected ", name, ":FILE, ",
                *config.family->file);
    begin = end + 1;
  }
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string item = text.substr(begin, end - begin);
    const size_t equals = item.find('=');
    TORCH_CHECK(equals != std::string::npos, "[parse_model] '", text, "': '", item,
                "' is not a size; expected name=value after the colon, with commas between");
    set_size(config, item.substr(0, equals), item.substr(equals + 1));
    begin = end + 1;
  }
  return config;
}

void set_defaults(ModelConfig& config) {
  const Family& family = *config.family;
  family.set_defaults(config);
  visit_sizes(
      family,
      [&](const char* name, const char*, const auto& value) {
        TORCH_CHECK(value, "[set_defaults] the family '", family.name, "' gives its '", name, "' no default");
      },
      config);
}

std::shared_ptr<Backbone> make_backbone(ModelConfig config) {
  set_defaults(config);
  return config.family->make_backbone(config);
}

std::shared_ptr<ClipText> make_clip_text(ModelConfig config) {
  if (!config.family->has_text()) {
    std::vector<std::string> with_text;
    for (const Family& family : families()) {
      if (family.has_text()) with_text.push_back(family.name);
    }
    TORCH_CHECK(false, "[make_clip_text] a ", config.family->name, " has no text tower; choose a ",
                fmt::format("{}", fmt::join(with_text, " or a ")));
  }
  set_defaults(config);
  return config.family->make_text(config);
}

std::shared_ptr<Clip> make_clip(const ModelConfig& config) {
  auto text = make_clip_text(config);
  return std::make_shared<Clip>(make_backbone(config), std::move(text));
}

ModelCost cost_of(const ModelConfig& config) {
  const OnDevice meta(at::kMeta);
  const auto backbone = make_backbone(config);
  ModelCost cost;
  cost.parameters = count_parameters(*backbone);
  cost.gflops = 1e-9 * static_cast<double>(backbone->multiply_adds());
  if (config.family->has_text())
    cost.text_parameters = count_parameters(*make_clip_text(config)) + 1;  // logit_scale
  return cost;
}

}  // namespace tpgm
