// The rows of the table of families.
#include "tpgm/models/families.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tpgm/base/names.h"
#include "tpgm/models/resnet.h"
#include "tpgm/models/script.h"
#include "tpgm/models/text_sizes.h"
#include "tpgm/models/vit.h"

namespace tpgm {
namespace {

constexpr Normalization kImageNet{{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};
constexpr Normalization kClip{{0.48145466, 0.4578275, 0.40821073}, {0.26862954, 0.26130258, 0.27577711}};

std::vector<Size> with_images(std::vector<Size> sizes, int64_t most = Size{}.most) {
  std::vector<Size> all{
      {.name = "image_size", .help = "pixels on a side", .member = &ModelConfig::image_size, .most = most},
      {.name = "channels", .help = "image channels", .member = &ModelConfig::channels, .most = most}};
  all.insert(all.end(), sizes.begin(), sizes.end());
  return all;
}

void default_images(ModelConfig& config) {
  set_default(config.image_size, 224);
  set_default(config.channels, 3);
}

// --- ResNets ---

std::vector<Size> resnet_sizes(const std::vector<Size>& more) {
  auto sizes = with_images({{.name = "layers",
                             .help = "blocks in each stage, such as 3-4-6-3",
                             .member = &ModelConfig::layers,
                             .check = [](const std::string& text) { parse_layers(text); }},
                            {"width", "channels of the first stage", &ModelConfig::width}});
  sizes.insert(sizes.end(), more.begin(), more.end());
  return sizes;
}

void default_resnet(ModelConfig& config) {
  default_images(config);
  set_default(config.layers, "3-4-6-3");
  set_default(config.width, 64);
}

ResNetOptions resnet_options(const ModelConfig& config) {
  return ResNetOptions()
      .layers(parse_layers(*config.layers))
      .width(*config.width)
      .channels(*config.channels)
      .image_size(*config.image_size);
}

void read_resnet(const Shapes& shapes, const char* last_of_stem, ModelConfig& config) {
  config.channels = shapes.size("stem.conv1.weight", 1, 4);
  config.width = shapes.size(last_of_stem, 0, 4);
  std::vector<int64_t> layers;
  do {
    layers.push_back(shapes.count(fmt::format("layer{}.", layers.size() + 1), ".conv1.weight",
                                  /*tensors_of_block=*/10));  // two convolutions and two BatchNorms
  } while (layers.size() < kMaxStages &&
           shapes.has(fmt::format("layer{}.0.conv1.weight", layers.size() + 1)));
  config.layers = fmt::format("{}", fmt::join(layers, "-"));
}

Family resnet() {
  return {
      .name = "resnet",
      .sizes =
          resnet_sizes({{"block", "basic (two 3×3 convolutions) or bottleneck", &ModelConfig::block},
                        {"stem", "imagenet (7×7, stride 2, max-pool) or small (3×3)", &ModelConfig::stem}}),
      .set_defaults =
          [](ModelConfig& config) {
            default_resnet(config);
            set_default(config.block, BlockType::kBottleneck);
            set_default(config.stem, Stem::kImageNet);
          },
      .make_backbone = [](const ModelConfig& config) -> std::shared_ptr<Backbone> {
        return std::make_shared<ResNet>(
            resnet_options(config).bottleneck(config.block == BlockType::kBottleneck).stem(*config.stem));
      },
      .make_text = nullptr,
      .recognition = Recognition{"stem.conv1.weight",
                                 [](const Shapes& shapes, ModelConfig& config) {
                                   read_resnet(shapes, "stem.conv1.weight", config);
                                   config.block = shapes.has("layer1.0.conv3.weight") ? BlockType::kBottleneck
                                                                                      : BlockType::kBasic;
                                   config.stem = shapes.size("stem.conv1.weight", 2, 4) == 3
                                                     ? Stem::kSmall
                                                     : Stem::kImageNet;
                                 }},
      .positions = std::nullopt,
      .normalization = kImageNet,
      .crop_pct = 0.875,
      .channels_last = true,
      .library = Library{"torchvision", "torchvision"},
      .file = ""};
}

// How many pixels of the image on a side one pixel of the last stage covers.
int64_t clip_resnet_pixels(const ModelConfig& config) {
  return int64_t{2} << parse_layers(*config.layers).size();
}

Family clip_resnet() {
  return {.name = "clip-resnet",
          .sizes = with_text_sizes(
              resnet_sizes({{"heads", "attention heads of the pooling", &ModelConfig::heads}}),
              {activation_size("activation of the text tower: gelu or quick_gelu")}),
          .set_defaults =
              [](ModelConfig& config) {
                default_resnet(config);
                // Attention pooling is as wide as the last stage: 4 times the width of its blocks, which
                // doubles with each stage.
                if (!config.heads) {
                  const size_t stages = parse_layers(*config.layers).size();
                  config.heads = usual_heads("heads", *config.width << (stages + 1));
                }
                default_text_sizes(config);
              },
          .make_backbone = [](const ModelConfig& config) -> std::shared_ptr<Backbone> {
            return std::make_shared<ResNet>(resnet_options(config)
                                                .stem(Stem::kThree)
                                                .antialias(true)
                                                .pool_heads(*config.heads)
                                                .embedding(*config.embedding));
          },
          .make_text = make_text_tower,
          .recognition = Recognition{"stem.conv1.weight",
                                     [](const Shapes& shapes, ModelConfig& config) {
                                       read_resnet(shapes, "stem.conv3.weight", config);
                                       config.image_size =
                                           shapes.side("pool.position") * clip_resnet_pixels(config);
                                       config.embedding = shapes.size("pool.c_proj.weight", 0, 2);
                                     }},
          .positions = Positions{"pool.position", clip_resnet_pixels},
          .normalization = kClip,
          .crop_pct = 1,
          .channels_last = true,
          .library = Library{"open_clip", "openai"},
          .file = ""};
}

// --- Vision transformers ---

Size recompute() {
  return {"recompute", "keep less for the backward pass and compute it again", &ModelConfig::recompute};
}

std::vector<Size> vit_sizes(const std::vector<Size>& more) {
  auto sizes = with_images({{"patch", "pixels on a side of a patch", &ModelConfig::patch},
                            {"width", "token width", &ModelConfig::width},
                            {"depth", "transformer blocks", &ModelConfig::depth},
                            {"heads", "attention heads", &ModelConfig::heads},
                            {"mlp", "hidden width of the MLPs", &ModelConfig::mlp},
                            activation_size("gelu or quick_gelu"),
                            {"eps", "LayerNorm epsilon", &ModelConfig::eps}});
  sizes.insert(sizes.end(), more.begin(), more.end());
  return sizes;
}

void default_vit(ModelConfig& config) {
  default_images(config);
  set_default(config.patch, 16);
  set_default(config.width, 768);
  set_default(config.depth, 12);
  if (!config.heads) config.heads = usual_heads("heads", *config.width);
  set_default(config.mlp, 4 * *config.width);
  set_default(config.recompute, false);
}

VitOptions vit_options(const ModelConfig& config) {
  return VitOptions()
      .image_size(*config.image_size)
      .channels(*config.channels)
      .patch(*config.patch)
      .width(*config.width)
      .depth(*config.depth)
      .heads(*config.heads)
      .mlp(*config.mlp)
      .activation(*config.activation)
      .eps(*config.eps)
      .recompute(*config.recompute);
}

void read_vit(const Shapes& shapes, ModelConfig& config) {
  config.width = shapes.size("stem.patch.weight", 0, 4);
  config.channels = shapes.size("stem.patch.weight", 1, 4);
  config.patch = shapes.size("stem.patch.weight", 2, 4);
  config.image_size = shapes.side("stem.position") * *config.patch;
  config.depth = shapes.count("blocks.", ".norm1.weight", kTensorsOfTransformerBlock);
  config.mlp = shapes.size("blocks.0.mlp.fc1.weight", 0, 2);
}

int64_t vit_pixels(const ModelConfig& config) { return *config.patch; }

Family vit() {
  return {
      .name = "vit",
      .sizes = vit_sizes({{"pool", "class (token) or mean (of the patches)", &ModelConfig::pool},
                          {"pre_norm", "a LayerNorm before the first block", &ModelConfig::pre_norm},
                          {"patch_bias", "a bias of the patches' projection", &ModelConfig::patch_bias},
                          recompute()}),
      .set_defaults =
          [](ModelConfig& config) {
            default_vit(config);
            set_default(config.pool, Pool::kClass);
            set_default(config.pre_norm, false);
            set_default(config.patch_bias, true);
            set_default(config.activation, Activation::kGelu);
            set_default(config.eps,
                        *config.pre_norm ? 1e-5 : 1e-6);  // as in timm, also for its CLIP-like ViTs
          },
      .make_backbone = [](const ModelConfig& config) -> std::shared_ptr<Backbone> {
        return std::make_shared<VisionTransformer>(
            vit_options(config).pool(*config.pool).patch_bias(*config.patch_bias).pre_norm(*config.pre_norm));
      },
      .make_text = nullptr,
      .recognition = Recognition{"stem.patch.weight",
                                 [](const Shapes& shapes, ModelConfig& config) {
                                   read_vit(shapes, config);
                                   config.pre_norm = shapes.has("stem.norm.weight");
                                   config.patch_bias = shapes.has("stem.patch.bias");
                                 }},
      .positions = Positions{"stem.position", vit_pixels},
      .normalization = kImageNet,
      .crop_pct = 0.875,
      .channels_last = false,
      .library = Library{"timm", "timm"},
      .file = ""};
}

Family clip_vit() {
  return {.name = "clip-vit",
          .sizes = with_text_sizes(vit_sizes({recompute()})),
          .set_defaults =
              [](ModelConfig& config) {
                default_vit(config);
                default_text_sizes(config);
              },
          .make_backbone = [](const ModelConfig& config) -> std::shared_ptr<Backbone> {
            return std::make_shared<VisionTransformer>(
                vit_options(config).patch_bias(false).pre_norm(true).embedding(*config.embedding));
          },
          .make_text = make_text_tower,
          .recognition = Recognition{"stem.patch.weight",
                                     [](const Shapes& shapes, ModelConfig& config) {
                                       read_vit(shapes, config);
                                       config.embedding = shapes.has("projection.weight")
                                                              ? shapes.size("projection.weight", 0, 2)
                                                              : 0;
                                     }},
          .positions = Positions{"stem.position", vit_pixels},
          .normalization = kClip,
          .crop_pct = 1,
          .channels_last = false,
          .library = Library{"open_clip", "openai"},
          .file = ""};
}

// --- TorchScript ---

Family script() {
  return {.name = "script",
          .sizes = with_images({}, /*most=*/1 << 14),
          .set_defaults = default_images,
          .make_backbone = [](const ModelConfig& config) -> std::shared_ptr<Backbone> {
            return std::make_shared<ScriptBackbone>(config.file, *config.image_size, *config.channels);
          },
          .make_text = nullptr,
          .recognition = std::nullopt,
          .positions = std::nullopt,
          .normalization = kImageNet,
          .crop_pct = 0.875,
          .channels_last = false,  // its layers are unknown
          .library = std::nullopt,
          .file = "any TorchScript module from images to features or logits"};
}

void check(const Family& family, const std::deque<Family>& others) {
  TORCH_CHECK(!family.name.empty() && family.name.find(':') == std::string::npos,
              "[add_family] a family needs a name, without a colon");
  const auto has = [&](const std::string& name) {
    return std::any_of(family.sizes.begin(), family.sizes.end(),
                       [&](const Size& size) { return size.name == name; });
  };
  const auto needs = [&](bool there, const char* what) {
    TORCH_CHECK(there, "[add_family] the family '", family.name, "' has no ", what);
  };
  needs(has("image_size"), "size 'image_size'");
  needs(has("channels"), "size 'channels'");
  needs(*family.set_defaults != nullptr, "set_defaults");
  needs(*family.make_backbone != nullptr, "make_backbone");
  const auto& recognition = *family.recognition;
  needs(recognition || family.is_file(), "recognition, by which its checkpoints are known again");
  needs(!recognition || !recognition->signature.empty(), "recognition.signature");
  needs(!recognition || recognition->read_sizes != nullptr, "recognition.read_sizes");
  const auto& positions = *family.positions;
  needs(!positions || (!positions->tensor.empty() && positions->pixels != nullptr),
        "positions.tensor or positions.pixels");
  for (const Family& other : others)
    TORCH_CHECK(other.name != family.name, "[add_family] there is a family '", family.name, "' already");
}

std::deque<Family>& table() {
  static std::deque<Family> rows = [] {
    std::deque<Family> built_in;
    for (const auto& family : {resnet(), vit(), clip_resnet(), clip_vit(), script()}) {
      check(family, built_in);
      built_in.push_back(family);
    }
    return built_in;
  }();
  return rows;
}

}  // namespace

const std::deque<Family>& families() { return table(); }

const Family& find_family(const std::string& name) {
  std::vector<std::string> known;
  for (const Family& family : families()) {
    if (family.name == name) return family;
    known.push_back(family.name);
  }
  TORCH_CHECK(false, "[find_family] no family '", name, "'", did_you_mean(name, known));
}

const Family& add_family(Family family) {
  check(family, table());
  return table().emplace_back(std::move(family));
}

ModelConfig sizes_of(const Family& family, const NamedTensors& tensors) {
  TORCH_CHECK(*family.recognition, "[sizes_of] the tensors of a ", family.name, " do not show its sizes");
  ModelConfig config;
  config.family = &family;
  (*family.recognition)->read_sizes(Shapes(tensors, family.image_prefix()), config);
  const Shapes text(tensors, "text.");
  if (family.has_text() && text.has("stem.token.weight")) read_text_sizes(text, config);
  return config;
}

}  // namespace tpgm
