#include "benchmarks/our_step.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "tpgm/methods/registry.h"
#include "tpgm/models/families.h"
#include "tpgm/models/named_models.h"
#include "tpgm/nn/precision.h"

namespace tpgm::benchmarks {
namespace {

std::unique_ptr<Method> make(const std::string& name, Classifier& model) {
  std::map<std::string, std::string> options;
  for (const auto& method : methods()) {
    if (method.name != name) continue;
    for (const auto& option : method.options) {  // a fresh head has no anchor
      if (option.name == "exclude")
        options["exclude"] = fmt::format("{}", fmt::join(model.unanchored(), ","));
    }
  }
  return make_method(name, model, named_tensors(model), options);
}

}  // namespace

StepSetting make_setting(const StepOptions& options, int64_t repeats) {
  const bool cuda = options.device.is_cuda();
  // As in training scripts and in the rival.
  at::globalContext().setBenchmarkCuDNN(true);
  StepSetting setting;
  setting.config = options.model;
  set_defaults(setting.config);
  setting.channels_last = options.channels_last.value_or(setting.config.family->channels_last);
  constexpr int64_t kUntilCaptured = 6;  // steps with TPGM; before, memory has not reached its final size
  setting.warmup = std::max(options.warmup.value_or(cuda ? 10 : 2), cuda ? kUntilCaptured : 0);
  setting.warmup_s = cuda && !options.warmup ? 2 : 0;
  setting.repeats = options.repeats.value_or(repeats);
  const auto model = make_model(setting, options);
  setting.image_size = model->backbone->image_size();
  setting.channels = model->backbone->channels();
  for (const auto& parameter : model->parameters()) setting.parameters += parameter.numel();
  return setting;
}

std::shared_ptr<Classifier> make_model(const StepSetting& setting, const StepOptions& options) {
  at::manual_seed(1);
  auto backbone = make_backbone(setting.config);
  backbone->reset_parameters();
  return std::make_shared<Classifier>(std::move(backbone), ClassifierOptions().num_classes(options.classes));
}

StepBatch make_batch(const StepSetting& setting, const StepOptions& options, int64_t size, uint64_t seed) {
  at::manual_seed(seed);
  return {at::randn({size, setting.channels, setting.image_size, setting.image_size}),
          at::randint(options.classes, {size}, at::kLong)};
}

StepBatch placed(StepBatch batch, const StepSetting& setting, const StepOptions& options) {
  batch.images = batch.images.to(options.device);
  batch.labels = batch.labels.to(options.device);
  if (setting.channels_last) batch.images = batch.images.contiguous(at::MemoryFormat::ChannelsLast);
  return batch;
}

void place(Classifier& model, const StepSetting& setting, const StepOptions& options) {
  model.to(options.device);
  if (setting.channels_last) to_channels_last(model);
}

OurStep::OurStep(const StepOptions& options, const StepSetting& setting, const std::string& method,
                 int64_t radius_batch)
    : model_(make_model(setting, options)),
      batch_(placed(make_batch(setting, options, options.batch_size), setting, options)) {
  place(*model_, setting, options);
  if (radius_batch > 0)
    radius_ = placed(make_batch(setting, options, radius_batch, /*seed=*/3), setting, options);
  method_ = make(method, *model_);
  optimizer_ =
      std::make_unique<Optimizer>(std::vector<ParameterGroup>{{model_->named_parameters(), 1, AdamW::kDecay}},
                                  OptimOptions().betas({AdamW::kBeta1, AdamW::kBeta2}).eps(AdamW::kEps));
  training_step_ = std::make_unique<TrainingStep>(
      *model_, *method_, *optimizer_, tpgm::StepOptions().amp(options.amp).cuda_graph(options.cuda_graph));
}

void OurStep::step() {
  losses_.push_back(training_step_
                        ->step(batch_.images, batch_.labels, batch_.labels, AdamW::kRate,
                               [this] { return TrainingStep::RadiusBatch{radius_.images, radius_.labels}; })
                        .loss);
}

double OurStep::radius_data_mib() const {
  const double bytes = radius_.images.defined() ? static_cast<double>(radius_.images.nbytes()) : 0;
  return (captured() ? 2 : 1) * bytes / (1 << 20);
}

std::vector<double> OurStep::losses() const {
  std::vector<double> losses;
  for (const auto& loss : losses_) losses.push_back(loss.item<double>());
  return losses;
}

}  // namespace tpgm::benchmarks
