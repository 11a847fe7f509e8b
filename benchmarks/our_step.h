// A model and a training step, set up as in `tpgm train`.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "benchmarks/step.h"
#include "tpgm/methods/method.h"
#include "tpgm/models/classifier.h"
#include "tpgm/train/optimizer.h"
#include "tpgm/train/step.h"

namespace tpgm::benchmarks {

/// `repeats`: the default.
StepSetting make_setting(const StepOptions& options, int64_t repeats);

/// The same weights in every call, on the CPU.
std::shared_ptr<Classifier> make_model(const StepSetting& setting, const StepOptions& options);
/// The same images for the same `seed`, on the CPU.
StepBatch make_batch(const StepSetting& setting, const StepOptions& options, int64_t size, uint64_t seed = 2);
/// To the device and into the memory format of the setting.
StepBatch placed(StepBatch batch, const StepSetting& setting, const StepOptions& options);
void place(Classifier& model, const StepSetting& setting, const StepOptions& options);

class OurStep {
 public:
  /// The method's anchor is the initial weights, without the head, which is fresh. It learns radii from
  /// `radius_batch` of the images; 0: it learns none.
  OurStep(const StepOptions& options, const StepSetting& setting, const std::string& method,
          int64_t radius_batch);

  void step();
  /// Waits for the device.
  std::vector<double> losses() const;

  /// The radius batch, and the copy of it that a CUDA graph reads.
  double radius_data_mib() const;

  /// Whether steps are replayed from a CUDA graph.
  bool captured() const { return training_step_->captured() > 0; }

  std::shared_ptr<Classifier> model() const { return model_; }
  const StepBatch& batch() const { return batch_; }

 private:
  std::shared_ptr<Classifier> model_;
  StepBatch batch_, radius_;
  std::unique_ptr<Method> method_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<TrainingStep> training_step_;
  std::vector<at::Tensor> losses_;  // on the device, until someone asks
};

}  // namespace tpgm::benchmarks
