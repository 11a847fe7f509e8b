// What every image model is to the rest: images in, features out, parameters in blocks.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tpgm {

class Backbone : public torch::nn::Module {
 public:
  /// images [batch, channels(), height, width], normalised, to features [batch, num_features()].
  at::Tensor forward(const at::Tensor& images) { return features(images, ""); }
  /// The output of one of blocks(), pooled to [batch, num_features(layer)]: the class token of a ViT, the
  /// mean over pixels of a ResNet. The empty layer is the model's own output. Throws for unknown names, with
  /// the nearest.
  virtual at::Tensor features(const at::Tensor& images, const std::string& layer) = 0;
  virtual int64_t num_features(const std::string& layer = "") const = 0;

  /// The parameters in groups, input to output: the stem, residual or transformer blocks, what comes behind
  /// them. Each is the prefix of its parameters' names ("layer1.0" has "layer1.0.conv1.weight"), and every
  /// parameter is in exactly one. A script may have parameters outside of any; those are blocks by
  /// themselves.
  virtual std::vector<std::string> blocks() const = 0;

  virtual int64_t image_size() const = 0;
  virtual int64_t channels() const = 0;
  /// For one image, in convolutions and matrix products, as torchvision and timm count them. Throws where
  /// they cannot be counted (a script).
  virtual int64_t multiply_adds() const = 0;

  /// Draws every parameter anew, as the model's authors do. Until this or until weights are loaded, they are
  /// what the memory held.
  virtual void reset_parameters() = 0;

 protected:
  /// Throws unless images are [n, channels(), size, size]; `any_size` asks for the channels only.
  void check_images(const at::Tensor& images, bool any_size) const;
  /// The place of `layer` in blocks(); throws if it is none.
  size_t index_of(const std::string& layer) const;
};

/// A glob for each of blocks(), below `prefix` ("backbone." in a Classifier): TpgmOptions().groups(...)
/// smooths radii within each.
std::vector<std::string> block_globs(const Backbone& backbone, const std::string& prefix = "");

}  // namespace tpgm
