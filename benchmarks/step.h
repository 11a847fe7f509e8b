// One training step and one inference batch of a model, beside the same model of the Python library it comes
// from, with the same weights on the same images; and a step of each method beside both.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/progress.h"
#include "benchmarks/timing.h"
#include "tpgm/models/config.h"

namespace tpgm::benchmarks {

/// torch.optim.AdamW's defaults, but for the rate: with 1e-3 random labels are learned so wildly that
/// rounding errors show in the losses after a few steps.
struct AdamW {
  static constexpr double kRate = 1e-4, kBeta1 = 0.9, kBeta2 = 0.999, kDecay = 0.01, kEps = 1e-8;
};

struct StepOptions {
  ModelConfig model;
  c10::Device device = c10::kCPU;
  int64_t batch_size = 16;
  int64_t classes = 1000;
  bool amp = false;                   ///< bf16 autocast
  bool cuda_graph = true;             ///< as `tpgm train` has it
  std::optional<bool> channels_last;  ///< by default as the family has it
  std::optional<int64_t>
      warmup;  ///< steps that do not count; by default 2, on CUDA 10 and 2 s, and 6 at least
  std::optional<int64_t> repeats;  ///< by default 5, on CUDA and in measure_methods() 20
  std::string python;              ///< an interpreter to run the rival; empty: ours alone
  std::filesystem::path rival;     ///< rivals/step.py
  bool compile = false;            ///< time torch.compile too
  std::filesystem::path folder;    ///< for files: what the rival reads, a run
  StartProgress progress;          ///< of our steps
  std::function<void(const std::string&)> say = [](const std::string&) {};  ///< what takes long
};

/// The options with all that they leave open decided, the same for every row.
struct StepSetting {
  ModelConfig config;
  int64_t parameters = 0;
  int64_t image_size = 0, channels = 0;
  bool channels_last = false;
  int64_t warmup = 0, repeats = 0;
  double warmup_s = 0;  ///< at least so long, and again where rows take turns
};

struct StepBatch {
  at::Tensor images, labels;
};

/// Medians. A step is forward, cross-entropy, backward and AdamW from images that are on the device, ours
/// through TrainingStep as `tpgm train` makes it; inference is the forward pass in evaluation, without
/// gradients.
struct StepTimes {
  std::string name;  ///< "torchvision 0.28.0, eager"
  std::string torch;
  std::string error;      ///< why there are none, in one line
  bool captured = false;  ///< in a CUDA graph, of ours
  double training_ms = 0, inference_ms = 0;
  std::optional<double> plain_ms;  ///< of plain fine-tuning's training steps between this row's
  PeakMemory training_peak, inference_peak;
  double radius_data_mib = 0;  ///< of it, the radius batch and its copy for the CUDA graph
  /// Of every training step, those of the warm-up included.
  std::vector<double> losses;
  /// In evaluation, after all of them.
  double inference_loss = 0;
};

struct StepReport {
  StepSetting setting;
  StepTimes ours;
  std::vector<StepTimes> rivals;  ///< eager, and compile if asked for; none without a Python
};

/// Throws if the rival fails, with its own words. On the CPU the two take turns, step by step, as its speed
/// may drift by more than they differ. On CUDA, where steps queue up, the rival goes first, and leaves the
/// device empty.
StepReport measure_step(const StepOptions& options);

/// A row of ours: a method and how many images it learns radii from in each step.
struct MethodRow {
  std::string method;  ///< "ft" is plain fine-tuning
  int64_t radius_batch = 0;
  StepTimes times;  ///< of training alone
};

struct MethodsReport {
  StepSetting setting;
  std::vector<StepTimes> rivals;
  std::vector<MethodRow> ours;  ///< plain first
};

/// Plain fine-tuning and each of `methods`, all from the same weights on the same images and in one run;
/// tpgm, which learns its radii in every step, with a radius batch of a quarter of the images and one of all.
/// On the CPU all rows take turns. On CUDA the rival goes first, and each row takes turns with plain
/// fine-tuning where the device has memory for both. A row that cannot run has an error.
MethodsReport measure_methods(const StepOptions& options, const std::vector<std::string>& methods);

/// The steps of the warm-up with a method, and one more that a profiler sees (ProfilerRange).
StepSetting profile_step(const StepOptions& options, const std::string& method);

}  // namespace tpgm::benchmarks
