// The interface of image models: images in, features out, and parameters in blocks.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tpgm {

class Backbone : public torch::nn::Module {
 public:
  /// images [batch, channels(), height, width], normalized, to features [batch, num_features()].
  at::Tensor forward(const at::Tensor& images) { return features(images, ""); }
  /// The output of one of blocks(), pooled to [batch, num_features(layer)]: for a ViT the class token, for a
  /// ResNet the mean over pixels. The empty layer is the output of the model. Throws for an unknown name, and
  /// suggests the nearest.
  virtual at::Tensor features(const at::Tensor& images, const std::string& layer) = 0;
  virtual int64_t num_features(const std::string& layer = "") const = 0;

  /// Groups of parameters from input to output: the stem, the residual or transformer blocks, and the layers
  /// after them. A block is a prefix of names ("layer1.0" has "layer1.0.conv1.weight"), and every parameter
  /// is in exactly one block. In a TorchScript module, a parameter outside all blocks is a block itself.
  virtual std::vector<std::string> blocks() const = 0;

  virtual int64_t image_size() const = 0;
  virtual int64_t channels() const = 0;
  /// The multiply-adds of convolutions and GEMMs for one image, counted as torchvision and timm do. Throws
  /// for a TorchScript module, whose operations are unknown.
  virtual int64_t multiply_adds() const = 0;

  /// Initializes every parameter as the authors of the model do. Before this call, or before weights are
  /// loaded, the parameters are uninitialized memory.
  virtual void reset_parameters() = 0;

 protected:
  /// Throws unless images are [n, channels(), size, size]; `any_size` asks for the channels only.
  void check_images(const at::Tensor& images, bool any_size) const;
  /// The index of `layer` in blocks(); throws if it is not there.
  size_t index_of(const std::string& layer) const;
};

/// A glob for each of blocks(), below `prefix` ("backbone." in a Classifier). TpgmOptions().groups(...) takes
/// them, to smooth radii within each block.
std::vector<std::string> block_globs(const Backbone& backbone, const std::string& prefix = "");

}  // namespace tpgm
