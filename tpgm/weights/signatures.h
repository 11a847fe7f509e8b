// Tells what model a checkpoint is by the names of its tensors, without LibTorch, for programs that must
// start at once. names.h has the whole: recognise() knows families that were added, and read_weights() checks
// every name.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tpgm {

/// Two names that every model of a family has in a layout, below a common prefix. The first is that of the
/// tables by which recognise() decides; the second leaves out other architectures that have the first, too.
struct Signature {
  std::string_view family, layout, name, other;
};

/// In the order in which recognise() tries them.
inline constexpr Signature kSignatures[] = {
    {"clip-resnet", "tpgm", "visual.stem.conv1.weight", "visual.layer1.0.conv1.weight"},
    {"clip-vit", "tpgm", "visual.stem.patch.weight", "visual.blocks.0.attn.qkv.weight"},
    {"resnet", "tpgm", "stem.conv1.weight", "layer1.0.conv1.weight"},
    {"vit", "tpgm", "stem.patch.weight", "blocks.0.attn.qkv.weight"},
    {"clip-vit", "openai", "visual.class_embedding", "visual.transformer.resblocks.0.attn.in_proj_weight"},
    {"clip-resnet", "openai", "visual.layer1.0.conv1.weight", "visual.attnpool.c_proj.weight"},
    {"clip-vit", "hf", "vision_model.embeddings.patch_embedding.weight",
     "vision_model.embeddings.class_embedding"},
    {"clip-vit", "hf", "embeddings.patch_embedding.weight", "embeddings.class_embedding"},
    {"resnet", "torchvision", "layer1.0.conv1.weight", "layer1.0.bn1.weight"},
    {"vit", "torchvision", "conv_proj.weight",
     "encoder.layers.encoder_layer_0.self_attention.in_proj_weight"},
    {"vit", "timm", "patch_embed.proj.weight", "blocks.0.attn.qkv.weight"},
};

/// The first that the names have; nothing if none fits.
inline std::optional<Signature> find_signature(const std::vector<std::string>& names) {
  const auto has = [&](const std::string& wanted) {
    return std::find(names.begin(), names.end(), wanted) != names.end();
  };
  for (const auto& signature : kSignatures) {
    for (const auto& name : names) {
      if (!name.ends_with(signature.name)) continue;
      const std::string prefix = name.substr(0, name.size() - signature.name.size());
      if ((prefix.empty() || prefix.ends_with('.')) && has(prefix + std::string(signature.other)))
        return signature;
    }
  }
  return std::nullopt;
}

}  // namespace tpgm
