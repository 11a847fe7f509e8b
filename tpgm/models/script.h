// Anybody's model: a TorchScript module as a backbone.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tpgm/models/backbone.h"

namespace tpgm {

/// A module saved with torch.jit.save that maps images [batch, channels, size, size] to features or logits
/// [batch, n]. Its parameters and buffers are this module's, by name and by identity: optimizers, anchors and
/// checkpoints treat it as any other.
///
/// A TorchScript file is a program and is run: take one only from where you would take code. train() and
/// eval() reach modules that were scripted; tracing keeps the mode it was traced in.
class ScriptBackbone : public Backbone {
 public:
  /// Runs `file` once on a black image of these sizes; throws for what is no TorchScript, has no parameters
  /// or gives anything but one tensor [batch, n].
  explicit ScriptBackbone(const std::filesystem::path& file, int64_t image_size = 224, int64_t channels = 3);

  /// `layer` must be empty: a script has no inside.
  at::Tensor features(const at::Tensor& images, const std::string& layer) override;
  int64_t num_features(const std::string& layer) const override;
  /// By their names; see block_name() in core/names.h.
  std::vector<std::string> blocks() const override { return blocks_; }
  int64_t image_size() const override { return image_size_; }
  int64_t channels() const override { return channels_; }
  /// Throws: what a script computes is its own.
  int64_t multiply_adds() const override;
  /// Throws: a script's weights are in its file.
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
