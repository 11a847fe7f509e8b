// What a model is, in words: a family and its sizes, of which some may be unknown yet.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tpgm {

enum class Family { kResNet, kVit, kClipResNet, kClipVit };
/// "resnet", "vit", "clip-resnet", "clip-vit".
std::string to_text(Family family);
inline bool is_clip(Family family) { return family == Family::kClipResNet || family == Family::kClipVit; }
inline bool is_resnet(Family family) { return family == Family::kResNet || family == Family::kClipResNet; }

/// What is not set is taken from elsewhere: a checkpoint's shapes, its config.json, the family's defaults.
struct ModelConfig {
  Family family = Family::kVit;
  std::optional<int64_t> image_size, channels;
  std::optional<std::string> layers;         // ResNet: blocks in each stage, "3-4-6-3"
  std::optional<std::string> block;          // ResNet: "basic" or "bottleneck"
  std::optional<std::string> stem;           // ResNet: "imagenet" or "small"
  std::optional<int64_t> width;              // ViT: of a token; ResNet: channels of the first stage
  std::optional<int64_t> depth, patch, mlp;  // ViT
  std::optional<int64_t> heads;              // ViT, and CLIP's ResNet in its pooling
  std::optional<std::string> activation;     // "gelu" or "quick_gelu"
  std::optional<std::string> pool;           // ViT: "class" or "mean"
  std::optional<bool> pre_norm, patch_bias;  // ViT; see VitOptions
  std::optional<double> eps;                 // of the LayerNorms
  std::optional<int64_t> embedding;          // CLIP: of both towers; 0: no projection
  std::optional<int64_t> text_width, text_depth, text_heads, text_mlp, vocab, context, end_of_text;
  std::optional<bool> recompute;  // see VitOptions
};

/// Calls visit(name, help, member of each config...) for each size that models of the family have.
template <typename Visit, typename... Configs>
void visit_sizes(Family family, Visit&& visit, Configs&... configs) {
  visit("image_size", "pixels on a side", configs.image_size...);
  visit("channels", "of an image", configs.channels...);
  if (is_resnet(family)) {
    visit("layers", "blocks in each stage, such as 3-4-6-3", configs.layers...);
    visit("width", "channels of the first stage", configs.width...);
    if (family == Family::kResNet) {
      visit("block", "basic (two 3×3 convolutions) or bottleneck", configs.block...);
      visit("stem", "imagenet (7×7, stride 2, max-pool) or small (3×3)", configs.stem...);
    } else {
      visit("heads", "of the attention pooling", configs.heads...);
    }
  } else {
    visit("patch", "pixels on a side of a patch", configs.patch...);
    visit("width", "of a token", configs.width...);
    visit("depth", "transformer blocks", configs.depth...);
    visit("heads", "of the attention", configs.heads...);
    visit("mlp", "hidden width of the perceptrons", configs.mlp...);
    visit("activation", "gelu or quick_gelu", configs.activation...);
    visit("eps", "of the LayerNorms", configs.eps...);
    if (family == Family::kVit) {
      visit("pool", "class (token) or mean (of the patches)", configs.pool...);
      visit("pre_norm", "a LayerNorm before the first block", configs.pre_norm...);
      visit("patch_bias", "a bias of the patches' projection", configs.patch_bias...);
    }
    visit("recompute", "keep less for the backward pass and compute it again", configs.recompute...);
  }
  if (is_clip(family)) {
    visit("embedding", "features of both towers; 0: no projection", configs.embedding...);
    visit("text_width", "of a token of the text tower", configs.text_width...);
    visit("text_depth", "transformer blocks of the text tower", configs.text_depth...);
    visit("text_heads", "of its attention", configs.text_heads...);
    visit("text_mlp", "hidden width of its perceptrons", configs.text_mlp...);
    if (family == Family::kClipResNet)
      visit("activation", "of the text tower: gelu or quick_gelu", configs.activation...);
    visit("vocab", "tokens of the vocabulary", configs.vocab...);
    visit("context", "tokens of a text", configs.context...);
    visit("end_of_text", "the token that ends a text; -1: the largest", configs.end_of_text...);
  }
}

/// Sets a size by name, from text; throws for unknown names, with the nearest, and for wrong values.
void set_size(ModelConfig& config, const std::string& name, const std::string& value);

/// Takes from `other` what `config` does not say. The families must agree.
void fill(ModelConfig& config, const ModelConfig& other);

/// The sizes that both say, and differently: "depth is 12 in ..., 2 in ...".
struct Conflict {
  std::string size, ours, theirs;
};
std::vector<Conflict> conflicts(const ModelConfig& ours, const ModelConfig& theirs);

/// "clip-vit:image_size=32,patch=8": what set_size made of it, and parse_model (registry.h) reads.
std::string to_text(const ModelConfig& config);

/// "3-4-6-3" → {3, 4, 6, 3}; throws for anything else.
std::vector<int64_t> parse_layers(const std::string& text);

}  // namespace tpgm
