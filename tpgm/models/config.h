// The description of a model: a family and its sizes, some of which may still be open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tpgm/base/text.h"
#include "tpgm/nn/activation.h"

namespace tpgm {

struct Family;

/// The residual block of a ResNet.
enum class BlockType {
  kBasic,       // two 3×3 convolutions
  kBottleneck,  // 1×1, 3×3 and 1×1 convolutions, the last with 4 times as many output channels
};
template <>
struct Keywords<BlockType> {
  static constexpr std::pair<BlockType, const char*> all[] = {{BlockType::kBasic, "basic"},
                                                              {BlockType::kBottleneck, "bottleneck"}};
};

/// The layers of a ResNet before its first residual block.
enum class Stem {
  kImageNet,  // 7×7, stride 2, then a max-pool of stride 2
  kSmall,     // 3×3, stride 1: for images of 32 or 64 pixels
  kThree,  // CLIP: three 3×3, the first of stride 2, then an average-pool of stride 2; not a user's choice
};
template <>
struct Keywords<Stem> {
  static constexpr std::pair<Stem, const char*> all[] = {{Stem::kImageNet, "imagenet"},
                                                         {Stem::kSmall, "small"}};
};

/// How a ViT makes features of its tokens.
enum class Pool {
  kClass,  // the class token, normalized
  kMean,   // the mean over the patches, normalized
};
template <>
struct Keywords<Pool> {
  static constexpr std::pair<Pool, const char*> all[] = {{Pool::kClass, "class"}, {Pool::kMean, "mean"}};
};

/// The sizes of all families. The row of a family (families.h) says which of them it has and what they mean.
/// Open sizes are set later: from the shapes of a checkpoint, its config file, or the defaults of the family.
struct ModelConfig {
  const Family* family = nullptr;  // one of families(); parse_model() always sets it
  std::string file;                // the FILE of "script:FILE", for a family whose models are files
  std::optional<int64_t> image_size, channels;
  std::optional<std::string> layers;
  std::optional<BlockType> block;
  std::optional<Stem> stem;
  std::optional<int64_t> width, depth, patch, mlp, heads;
  std::optional<Activation> activation;
  std::optional<Pool> pool;
  std::optional<bool> pre_norm, patch_bias;
  std::optional<double> eps;
  std::optional<int64_t> embedding;
  std::optional<int64_t> text_width, text_depth, text_heads, text_mlp, vocab, context, end_of_text;
  std::optional<bool> recompute;
};

/// Sets a size by name from text. Throws for wrong values and for names that the family does not have, and
/// suggests the nearest.
void set_size(ModelConfig& config, const std::string& name, const std::string& value);

/// Sets the open sizes of `config` to those of `other`. Both must have the same family.
void fill(ModelConfig& config, const ModelConfig& other);

/// A size that is set in both configs to different values.
struct Conflict {
  std::string size, ours, theirs;
};
std::vector<Conflict> conflicts(const ModelConfig& ours, const ModelConfig& theirs);

/// Writes the text that parse_model() (named_models.h) reads: "clip-vit:image_size=32,patch=8",
/// "script:model.pt:channels=1".
std::string to_text(const ModelConfig& config);

/// "3-4-6-3" → {3, 4, 6, 3}; throws for anything else, and for more stages than kMaxStages.
inline constexpr size_t kMaxStages = 16;
std::vector<int64_t> parse_layers(const std::string& text);

}  // namespace tpgm
