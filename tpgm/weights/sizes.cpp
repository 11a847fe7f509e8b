// What the shapes of a model's tensors show of its sizes.
#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <utility>

#include "tpgm/weights/weights.h"

namespace tpgm {
namespace {

constexpr const char* kCall = "read_weights";
constexpr size_t kMaxStages = 16;  // of a ResNet, as parse_layers has it

// Shapes by name, with an error for what is missing or has too few dimensions.
class Shapes {
 public:
  Shapes(const NamedTensors& tensors, std::string prefix) : tensors_(tensors), prefix_(std::move(prefix)) {}

  bool has(const std::string& name) const { return tensors_.contains(prefix_ + name); }
  int64_t size(const std::string& name, int64_t dimension, int64_t dimensions) const {
    const at::Tensor* tensor = tensors_.find(prefix_ + name);
    TORCH_CHECK(tensor != nullptr, "[", kCall, "] the tensor for our '", prefix_, name,
                "' is missing: is the checkpoint complete?");
    TORCH_CHECK(tensor->dim() == dimensions && tensor->numel() > 0, "[", kCall, "] the tensor for our '",
                prefix_, name, "' is ", fmt::format("[{}]", fmt::join(tensor->sizes(), ",")), ", expected ",
                dimensions, " dimensions and elements");
    return tensor->size(dimension);
  }
  /// Of the square of positions, before which the class token's comes.
  int64_t side(const std::string& name) const {
    const int64_t positions = size(name, 0, 2);
    const auto side = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(positions - 1))));
    TORCH_CHECK(side > 0 && side * side == positions - 1, "[", kCall, "] the tensor for our '", prefix_, name,
                "' has ", positions, " rows, expected one and a square");
    return side;
  }
  /// How many blocks there are: before + "0" + after, before + "1" + after, ...
  int64_t count(const std::string& before, const std::string& after) const {
    constexpr size_t kTensors = 10;  // that every block has at least
    size_t count = 0;
    while (has(fmt::format("{}{}{}", before, count, after))) ++count;
    TORCH_CHECK(count > 0, "[", kCall, "] the tensor for our '", prefix_, before, "0", after,
                "' is missing: is the checkpoint complete?");
    // Modules take memory, whatever their tensors, so that one name must not make a block.
    TORCH_CHECK(count <= tensors_.size() / kTensors, "[", kCall, "] there are ", count, " tensors '", prefix_,
                before, "*", after, "', but with ", tensors_.size(),
                " in all not the rest of as many blocks: is the checkpoint complete?");
    return static_cast<int64_t>(count);
  }

 private:
  const NamedTensors& tensors_;
  std::string prefix_;
};

void read_resnet(const Shapes& shapes, ModelConfig& config) {
  const bool clip = config.family == Family::kClipResNet;
  config.channels = shapes.size("stem.conv1.weight", 1, 4);
  config.width = shapes.size(clip ? "stem.conv3.weight" : "stem.conv1.weight", 0, 4);
  std::vector<int64_t> layers;
  do {
    layers.push_back(shapes.count(fmt::format("layer{}.", layers.size() + 1), ".conv1.weight"));
  } while (layers.size() < kMaxStages &&
           shapes.has(fmt::format("layer{}.0.conv1.weight", layers.size() + 1)));
  config.layers = fmt::format("{}", fmt::join(layers, "-"));
  if (clip) {
    config.image_size = shapes.side("pool.position") << (layers.size() + 1);
    config.embedding = shapes.size("pool.c_proj.weight", 0, 2);
  } else {
    config.block = shapes.has("layer1.0.conv3.weight") ? "bottleneck" : "basic";
    config.stem = shapes.size("stem.conv1.weight", 2, 4) == 3 ? "small" : "imagenet";
  }
}

void read_vit(const Shapes& shapes, ModelConfig& config) {
  config.width = shapes.size("stem.patch.weight", 0, 4);
  config.channels = shapes.size("stem.patch.weight", 1, 4);
  config.patch = shapes.size("stem.patch.weight", 2, 4);
  config.image_size = shapes.side("stem.position") * *config.patch;
  config.depth = shapes.count("blocks.", ".norm1.weight");
  config.mlp = shapes.size("blocks.0.mlp.fc1.weight", 0, 2);
  if (config.family == Family::kVit) {
    config.pre_norm = shapes.has("stem.norm.weight");
    config.patch_bias = shapes.has("stem.patch.bias");
  } else {
    config.embedding = shapes.has("projection.weight") ? shapes.size("projection.weight", 0, 2) : 0;
  }
}

void read_text(const Shapes& shapes, ModelConfig& config) {
  config.vocab = shapes.size("stem.token.weight", 0, 2);
  config.text_width = shapes.size("stem.token.weight", 1, 2);
  config.context = shapes.size("stem.position", 0, 2);
  config.text_depth = shapes.count("blocks.", ".norm1.weight");
  config.text_mlp = shapes.size("blocks.0.mlp.fc1.weight", 0, 2);
}

}  // namespace

ModelConfig sizes_of(Family family, const NamedTensors& tensors) {
  ModelConfig config;
  config.family = family;
  const Shapes visual(tensors, is_clip(family) ? "visual." : "");
  is_resnet(family) ? read_resnet(visual, config) : read_vit(visual, config);
  const Shapes text(tensors, "text.");
  if (is_clip(family) && text.has("stem.token.weight")) read_text(text, config);
  return config;
}

}  // namespace tpgm
