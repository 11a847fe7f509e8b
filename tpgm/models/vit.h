// The vision transformer (Dosovitskiy et al. 2021), with the variants of timm, torchvision, MAE and CLIP.
#pragma once

#include <torch/arg.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tpgm/models/backbone.h"
#include "tpgm/models/config.h"
#include "tpgm/nn/layers.h"

namespace tpgm {

struct VitOptions {
  TORCH_ARG(int64_t, image_size) = 224;
  TORCH_ARG(int64_t, channels) = 3;
  TORCH_ARG(int64_t, patch) = 16;
  TORCH_ARG(int64_t, width) = 768;
  TORCH_ARG(int64_t, depth) = 12;
  TORCH_ARG(int64_t, heads) = 12;
  /// Hidden width of the MLPs; 0: four times the width.
  TORCH_ARG(int64_t, mlp) = 0;
  TORCH_ARG(Activation, activation) = Activation::kGelu;
  TORCH_ARG(double, eps) = 1e-6;
  TORCH_ARG(Pool, pool) = Pool::kClass;
  /// CLIP has no bias in the patch embedding, and a LayerNorm before the first block.
  TORCH_ARG(bool, patch_bias) = true;
  TORCH_ARG(bool, pre_norm) = false;
  /// CLIP: a projection of the pooled token to so many features. 0: none.
  TORCH_ARG(int64_t, embedding) = 0;
  /// Activation checkpointing: keeps only the inputs of blocks for the backward pass. A step of ViT-L then
  /// takes a third longer and less than a third of the memory.
  TORCH_ARG(bool, recompute) = false;
};

/// Parameters: stem.patch.weight [width, channels, patch, patch], stem.class_token [width],
/// stem.position [1 + patches, width], stem.norm; blocks.0.norm1, .attn.qkv, .attn.proj, .norm2, .mlp.fc1,
/// .mlp.fc2; norm; projection.weight [embedding, width].
class VisionTransformer : public Backbone {
 public:
  explicit VisionTransformer(const VitOptions& options);

  at::Tensor features(const at::Tensor& images, const std::string& layer) override;
  int64_t num_features(const std::string& layer) const override;
  std::vector<std::string> blocks() const override;
  int64_t image_size() const override { return options_.image_size(); }
  int64_t channels() const override { return options_.channels(); }
  void reset_parameters() override;
  int64_t multiply_adds() const override;

 private:
  at::Tensor embed(const at::Tensor& images);
  at::Tensor pooled(const at::Tensor& tokens) const;

  VitOptions options_;
  at::Tensor patch_weight_, patch_bias_, class_token_, position_;
  LayerNorm pre_norm_{nullptr}, norm_{nullptr};
  std::vector<TransformerBlock> blocks_;
  Linear projection_{nullptr};
};

/// Resizes position embeddings [extra + side², width] to [extra + to², width]: bicubic with antialiasing, as
/// timm and open_clip do. The `extra` rows before the patches do not change.
at::Tensor resize_position(const at::Tensor& position, int64_t to, int64_t extra = 1);

}  // namespace tpgm
