// One training step and one inference batch of a model, beside the same model of the Python library it comes
// from, with the same weights on the same images.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tpgm/models/config.h"

namespace tpgm::benchmarks {

struct StepOptions {
  ModelConfig model;
  c10::Device device = c10::kCPU;
  std::int64_t batch_size = 16;
  std::int64_t classes = 1000;
  bool amp = false;                     ///< bf16 autocast
  std::optional<bool> channels_last;    ///< by default for ResNets, as those are faster with it
  std::optional<std::int64_t> warmup;   ///< steps that do not count; by default 2, on CUDA 10
  std::optional<std::int64_t> repeats;  ///< by default 5, on CUDA 20
  std::string python;                   ///< an interpreter to run the rival; empty: ours alone
  std::filesystem::path rival;          ///< rivals/step.py
  bool compile = false;                 ///< time torch.compile too
  std::filesystem::path folder;         ///< for what the rival reads; removed in the end
};

/// Medians. A step is forward, cross-entropy, backward and AdamW (fused) from images that are on the device;
/// inference is the forward pass in evaluation, without gradients.
struct StepTimes {
  std::string name;  ///< "torchvision 0.28.0, eager"
  std::string torch;
  double training_ms = 0, inference_ms = 0;
  /// Of the device's allocator, while the medians were taken; 0 on the CPU.
  double training_peak_mib = 0, inference_peak_mib = 0;
  /// Of every training step, those of the warm-up included.
  std::vector<double> losses;
  /// In evaluation, after all of them.
  double inference_loss = 0;
};

struct StepReport {
  std::string model;  ///< all its sizes, as parse_model reads them
  std::int64_t parameters = 0;
  std::int64_t image_size = 0, channels = 0;
  bool channels_last = false;
  std::int64_t warmup = 0, repeats = 0;
  StepTimes ours;
  std::vector<StepTimes> rivals;  ///< eager, and compile if asked for; none without a Python
};

/// Throws if the device or the rival's script is not there, or the rival fails, with its own words. On the
/// CPU the two take turns, step by step, as its speed may drift by more than they differ. On CUDA, where
/// steps queue up, the rival goes first, and leaves the device empty.
StepReport measure_step(const StepOptions& options);

}  // namespace tpgm::benchmarks
