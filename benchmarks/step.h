// One training step and one inference batch of a model, compared with the same model of the Python library
// that it comes from, with the same weights on the same images; and a step of each method, compared with
// both.
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

/// torch.optim.AdamW's defaults, except for the learning rate: with 1e-3, rounding errors show in the losses
/// after a few steps on random labels.
struct AdamW {
  static constexpr double kRate = 1e-4, kBeta1 = 0.9, kBeta2 = 0.999, kDecay = 0.01, kEps = 1e-8;
};

struct StepOptions {
  ModelConfig model;
  c10::Device device = c10::kCPU;
  int64_t batch_size = 16;
  int64_t classes = 1000;
  bool amp = false;                   ///< bf16 autocast
  bool cuda_graph = true;             ///< as in `tpgm train`
  std::optional<bool> channels_last;  ///< by default as for the family
  std::optional<int64_t>
      warmup;  ///< steps that are not timed; by default 2, on CUDA 10 and 2 s more, and at least 6
  std::optional<int64_t> repeats;  ///< by default 5, on CUDA and in measure_methods() 20
  std::string python;              ///< an interpreter to run the rival; empty: no rival
  std::filesystem::path rival;     ///< rivals/step.py
  bool compile = false;            ///< time torch.compile too
  std::filesystem::path folder;    ///< for temporary files: the input of the rival, a run
  StartProgress progress;          ///< of our steps
  std::function<void(const std::string&)> say = [](const std::string&) {};  ///< called before long waits
};

/// The options with every default filled in, the same for every row.
struct StepSetting {
  ModelConfig config;
  int64_t parameters = 0;
  int64_t image_size = 0, channels = 0;
  bool channels_last = false;
  int64_t warmup = 0, repeats = 0;
  double warmup_s = 0;  ///< at least this long, and again when rows take turns
};

struct StepBatch {
  at::Tensor images, labels;
};

/// Medians. A step is forward, cross-entropy, backward and AdamW, on images that are on the device; ours runs
/// in TrainingStep, as in `tpgm train`. Inference is the forward pass in evaluation, without gradients.
struct StepTimes {
  std::string name;  ///< "torchvision 0.28.0, eager"
  std::string torch;
  std::string error;      ///< why there are no times, in one line
  bool captured = false;  ///< ours: replayed from a CUDA graph
  double training_ms = 0, inference_ms = 0;
  std::optional<double> plain_ms;  ///< plain fine-tuning's steps, timed between this row's
  PeakMemory training_peak, inference_peak;
  double radius_data_mib = 0;  ///< the part of it for the radius batch and its copy for the CUDA graph
  /// The loss of every training step, including the warm-up.
  std::vector<double> losses;
  /// The loss in evaluation, after all steps.
  double inference_loss = 0;
};

struct StepReport {
  StepSetting setting;
  StepTimes ours;
  std::vector<StepTimes> rivals;  ///< eager, and compile if requested; none without a Python
};

/// Throws with the rival's message if it fails. On the CPU both take turns, step by step, because the speed
/// of a machine may drift by more than they differ. On CUDA, where steps queue up, the rival runs first and
/// then frees the device.
StepReport measure_step(const StepOptions& options);

/// A row of ours: a method, and the number of images that it learns radii from in each step.
struct MethodRow {
  std::string method;  ///< "ft" is plain fine-tuning
  int64_t radius_batch = 0;
  StepTimes times;  ///< of training steps; inference is not measured
};

struct MethodsReport {
  StepSetting setting;
  std::vector<StepTimes> rivals;
  std::vector<MethodRow> ours;  ///< plain first
};

/// Plain fine-tuning and each of `methods`, all from the same weights on the same images and in one run;
/// tpgm, which learns its radii in every step, with a radius batch of a quarter of the images and one of all.
/// On the CPU all rows take turns. On CUDA the rival runs first, and each row takes turns with plain
/// fine-tuning if the device has memory for both. A row that cannot run has an error.
MethodsReport measure_methods(const StepOptions& options, const std::vector<std::string>& methods);

/// Runs the warm-up steps of a method, and one more step that a profiler sees (ProfilerRange).
StepSetting profile_step(const StepOptions& options, const std::string& method);

}  // namespace tpgm::benchmarks
