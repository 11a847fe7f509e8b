// A TorchScript module as a backbone, for models of any architecture.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tpgm/models/backbone.h"

namespace tpgm {

/// A module saved with torch.jit.save that maps images [batch, channels, size, size] to features or logits
/// [batch, n]. Its parameters and buffers are registered in this module under their names, so optimizers,
/// anchors and checkpoints treat it like any other model.
///
/// A TorchScript file is a program that is run: use only files that you trust as you trust code. train() and
/// eval() affect scripted modules; a traced module keeps the mode in which it was traced.
class ScriptBackbone : public Backbone {
 public:
  /// Loads `file`, with weights in fp32, and runs it once on a black image of this size. Throws if it is not
  /// TorchScript, has no parameters, was traced with BatchNorm in training mode, or returns anything but one
  /// tensor [batch, n].
  explicit ScriptBackbone(const std::filesystem::path& file, int64_t image_size = 224, int64_t channels = 3);

  /// `layer` must be empty: the layers of a script are not accessible.
  at::Tensor features(const at::Tensor& images, const std::string& layer) override;
  int64_t num_features(const std::string& layer) const override;
  /// Derived from the names of parameters by block_name() (base/names.h).
  std::vector<std::string> blocks() const override { return blocks_; }
  int64_t image_size() const override { return image_size_; }
  int64_t channels() const override { return channels_; }
  /// Throws: the operations of a script are unknown.
  int64_t multiply_adds() const override;
  /// Throws: how to initialize a script is unknown; its weights are in the file.
  void reset_parameters() override;

  void train(bool on = true) override;
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Device device, bool non_blocking = false) override;

 private:
  at::Tensor run(const at::Tensor& images);

  std::filesystem::path path_;
  int64_t image_size_, channels_, num_features_ = 0;
  torch::jit::Module script_;
  std::vector<std::string> blocks_;
};

}  // namespace tpgm
