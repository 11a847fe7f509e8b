// ResNets (He et al. 2015, with the stride in the 3×3 convolution as in torchvision), and those of CLIP
// (Radford et al. 2021).
#pragma once

#include <torch/arg.h>
#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tpgm/models/backbone.h"
#include "tpgm/models/config.h"
#include "tpgm/nn/layers.h"

namespace tpgm {

struct ResNetOptions {
  /// Blocks in each stage. Each stage halves the feature map and doubles the channels of the stage before.
  TORCH_ARG(std::vector<int64_t>, layers) = { 3, 4, 6, 3 };
  /// Bottleneck blocks (1×1, 3×3 and 1×1 convolutions, with 4 times as many output channels); else two 3×3.
  TORCH_ARG(bool, bottleneck) = true;
  /// Channels of the first stage.
  TORCH_ARG(int64_t, width) = 64;
  TORCH_ARG(int64_t, channels) = 3;
  TORCH_ARG(int64_t, image_size) = 224;
  TORCH_ARG(Stem, stem) = Stem::kImageNet;
  /// CLIP: strided blocks use an average-pool before a convolution instead.
  TORCH_ARG(bool, antialias) = false;
  /// CLIP: attention pooling with so many heads, and its number of features (`embedding`). 0: the mean over
  /// pixels.
  TORCH_ARG(int64_t, pool_heads) = 0;
  TORCH_ARG(int64_t, embedding) = 0;
};

class ResidualBlock;

/// Parameters: stem.conv1, stem.bn1 (…3), layer1.0.conv1, layer1.0.bn1, layer1.0.downsample.0, …, pool.*.
class ResNet : public Backbone {
 public:
  explicit ResNet(const ResNetOptions& options);

  at::Tensor features(const at::Tensor& images, const std::string& layer) override;
  int64_t num_features(const std::string& layer) const override;
  std::vector<std::string> blocks() const override { return names_; }
  int64_t image_size() const override { return options_.image_size(); }
  int64_t channels() const override { return options_.channels(); }
  void reset_parameters() override;
  int64_t multiply_adds() const override;

 private:
  SharedOutput stem(const at::Tensor& images);

  ResNetOptions options_;
  std::vector<Conv2d> stem_convs_;
  std::vector<BatchNorm2d> stem_norms_;
  std::vector<std::shared_ptr<ResidualBlock>> residual_blocks_;
  std::vector<int64_t> widths_;  // the features of each of names_
  std::vector<std::string> names_;
  AttentionPool pool_{nullptr};
};

}  // namespace tpgm
