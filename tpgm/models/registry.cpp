// The models by name, made from their sizes.
#include "tpgm/models/registry.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tpgm/base/names.h"
#include "tpgm/models/resnet.h"
#include "tpgm/models/script.h"
#include "tpgm/models/vit.h"

namespace tpgm {
namespace {

constexpr std::array kFamilies{Family::kResNet, Family::kVit, Family::kClipResNet, Family::kClipVit};

// CLIP's convention, and the ViT paper's.
constexpr int64_t kHeadWidth = 64;

int64_t usual_heads(const char* size, int64_t width) {
  // ViT-H, -g and -G have sixteen of 80, 88 and 104.
  const bool tower = std::string_view(size) == "heads";
  if (tower && (width == 1280 || width == 1408 || width == 1664)) return 16;
  TORCH_CHECK(width % kHeadWidth == 0,
              "[set_defaults] neither weights nor sizes say how many heads there are, and a width of ", width,
              " is no multiple of the usual ", kHeadWidth, "; give ", size, "=N");
  return width / kHeadWidth;
}

template <typename Value, typename Default>
void set_default(std::optional<Value>& value, Default usual) {
  if (!value) value = usual;
}

ResNetOptions resnet_options(const ModelConfig& config) {
  ResNetOptions options;
  options.layers(parse_layers(*config.layers))
      .width(*config.width)
      .channels(*config.channels)
      .image_size(*config.image_size);
  if (config.family == Family::kResNet) {
    return options.bottleneck(config.block == "bottleneck")
        .stem(config.stem == "small" ? Stem::kSmall : Stem::kImageNet);
  }
  return options.stem(Stem::kThree).antialias(true).pool_heads(*config.heads).embedding(*config.embedding);
}

VitOptions vit_options(const ModelConfig& config) {
  const bool clip = config.family == Family::kClipVit;
  return VitOptions()
      .image_size(*config.image_size)
      .channels(*config.channels)
      .patch(*config.patch)
      .width(*config.width)
      .depth(*config.depth)
      .heads(*config.heads)
      .mlp(*config.mlp)
      .activation(parse_activation(*config.activation))
      .eps(*config.eps)
      .pool(config.pool == "mean" ? Pool::kMean : Pool::kClass)
      .patch_bias(!clip && *config.patch_bias)
      .pre_norm(clip || *config.pre_norm)
      .embedding(clip ? *config.embedding : 0)
      .recompute(*config.recompute);
}

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

ModelConfig parse_model(const std::string& text) {
  TORCH_CHECK(!is_script(text), "[parse_model] '", text,
              "' is a TorchScript module, which has no sizes to choose; this takes a model of ours, see "
              "'tpgm list models'");
  const size_t colon = std::min(text.find(':'), text.size());
  const std::string name = text.substr(0, colon);
  std::optional<ModelConfig> config;
  std::vector<std::string> known;
  for (const auto family : kFamilies) {
    known.push_back(to_text(family));
    if (name == known.back()) config.emplace().family = family;
  }
  for (const auto& model : models()) {
    known.push_back(model.name);
    known.insert(known.end(), model.aliases.begin(), model.aliases.end());
    const bool alias = std::find(model.aliases.begin(), model.aliases.end(), name) != model.aliases.end();
    if (name == model.name || alias) config = parse_model(model.sizes);
  }
  TORCH_CHECK(config, "[parse_model] no model '", name, "'; did you mean '", nearest(name, known),
              "'? 'tpgm list models' shows all");
  for (size_t begin = colon + 1; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string item = text.substr(begin, end - begin);
    const size_t equals = item.find('=');
    TORCH_CHECK(equals != std::string::npos, "[parse_model] '", text, "': '", item,
                "' is no size; expected name=value after the colon, with commas between");
    set_size(*config, item.substr(0, equals), item.substr(equals + 1));
    begin = end + 1;
  }
  return *config;
}

void set_defaults(ModelConfig& config) {
  const bool clip = is_clip(config.family), resnet = is_resnet(config.family);
  set_default(config.image_size, 224);
  set_default(config.channels, 3);
  if (resnet) {
    set_default(config.layers, "3-4-6-3");
    set_default(config.width, 64);
    set_default(config.block, "bottleneck");
    set_default(config.stem, "imagenet");
    // Attention pooling sees the last stage: 4 times as wide as its blocks, which double with each stage.
    if (clip && !config.heads) {
      config.heads = usual_heads("heads", *config.width << (parse_layers(*config.layers).size() + 1));
    }
  } else {
    set_default(config.patch, 16);
    set_default(config.width, 768);
    set_default(config.depth, 12);
    if (!config.heads) config.heads = usual_heads("heads", *config.width);
    set_default(config.mlp, 4 * *config.width);
    set_default(config.pool, "class");
    set_default(config.pre_norm, false);
    set_default(config.patch_bias, true);
    set_default(config.recompute, false);
  }
  // timm's ViTs in CLIP's style have CLIP's eps too.
  set_default(config.eps, clip || config.pre_norm.value_or(false) ? 1e-5 : 1e-6);
  set_default(config.activation, clip ? "quick_gelu" : "gelu");
  if (!clip) return;
  set_default(config.embedding, 512);
  set_default(config.text_width, 512);
  set_default(config.text_depth, 12);
  if (!config.text_heads) config.text_heads = usual_heads("text_heads", *config.text_width);
  set_default(config.text_mlp, 4 * *config.text_width);
  set_default(config.vocab, 49408);
  set_default(config.context, 77);
  set_default(config.end_of_text, -1);
}

std::shared_ptr<Backbone> make_backbone(ModelConfig config) {
  set_defaults(config);
  if (is_resnet(config.family)) return std::make_shared<ResNet>(resnet_options(config));
  return std::make_shared<VisionTransformer>(vit_options(config));
}

std::shared_ptr<ClipText> make_clip_text(ModelConfig config) {
  TORCH_CHECK(is_clip(config.family), "[make_clip_text] a ", to_text(config.family),
              " has no text tower; choose a model of CLIP's, see 'tpgm list models'");
  set_defaults(config);
  return std::make_shared<ClipText>(ClipTextOptions()
                                        .context(*config.context)
                                        .vocab(*config.vocab)
                                        .width(*config.text_width)
                                        .depth(*config.text_depth)
                                        .heads(*config.text_heads)
                                        .mlp(*config.text_mlp)
                                        .embedding(*config.embedding)
                                        .activation(parse_activation(*config.activation))
                                        .eps(*config.eps)
                                        .end_of_text(*config.end_of_text));
}

std::shared_ptr<Clip> make_clip(const ModelConfig& config) {
  auto text = make_clip_text(config);
  return std::make_shared<Clip>(make_backbone(config), std::move(text));
}

Normalization normalization(Family family) {
  if (is_clip(family)) {
    return {{0.48145466, 0.4578275, 0.40821073}, {0.26862954, 0.26130258, 0.27577711}};
  }
  return {{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};
}

ModelCost cost_of(ModelConfig config) {
  const OnDevice meta(at::kMeta);
  set_defaults(config);
  ModelCost cost;
  const auto measure = [&](const auto& backbone) {
    cost.parameters = count_parameters(backbone);
    cost.gflops = 1e-9 * static_cast<double>(backbone.multiply_adds());
  };
  is_resnet(config.family) ? measure(ResNet(resnet_options(config)))
                           : measure(VisionTransformer(vit_options(config)));
  if (is_clip(config.family))
    cost.text_parameters = count_parameters(*make_clip_text(config)) + 1;  // logit_scale
  return cost;
}

}  // namespace tpgm
