#include "tpgm/train/from_options.h"

#include <ATen/Context.h>

#include <algorithm>
#include <string>

#include "tpgm/methods/registry.h"
#include "tpgm/train/parameter_groups.h"

namespace tpgm {
namespace {

// The factor on the learning rate of the head.
double head_scale(const TrainOptions& options) {
  return options.lr > 0 ? options.head_lr.value(options.lr) / options.lr : 1;
}

}  // namespace

std::vector<Phase> phases_of(const TrainOptions& options) {
  const int64_t probing = options.lp_epochs.value_or(0);
  std::vector<Phase> phases;
  // `lp_lr` is the head's learning rate itself: head_scale() must not change it.
  if (options.lp_epochs)
    phases.push_back(
        {"lp", probing, options.lp_lr.value_or(options.head_lr.value(options.lr)) / head_scale(options), 0});
  phases.push_back({options.lp_epochs ? "ft" : options.method, options.epochs - probing, options.lr,
                    std::min(options.warmup_epochs, options.epochs - probing)});
  return phases;
}

ScheduleOptions schedule_of(const TrainOptions& options) {
  return ScheduleOptions()
      .sched(options.sched)
      .on_updates(options.sched_on_updates)
      .min_lr(options.min_lr)
      .warmup_lr(options.warmup_lr)
      .decay_epochs(options.decay_epochs)
      .decay_rate(options.decay_rate);
}

OptimOptions optim_of(const TrainOptions& options) {
  return OptimOptions()
      .opt(options.opt)
      .momentum(options.momentum)
      .nesterov(options.nesterov)
      .betas({options.opt_betas[0], options.opt_betas[1]})
      .eps(options.opt_eps);
}

Optimizer optimizer_of(const TrainOptions& options, const Classifier& model) {
  std::vector<std::string> blocks;
  for (const auto& block : model.backbone->blocks()) {
    if (const auto name = "backbone." + block; name != model.head_module()) blocks.push_back(name);
  }
  auto groups = parameter_groups(model.named_parameters(), blocks,
                                 GroupOptions()
                                     .weight_decay(options.weight_decay)
                                     .decay_all(options.decay_all)
                                     .layer_decay(options.layer_decay)
                                     .head_scale(head_scale(options))
                                     .head(model.head_module()));
  return {std::move(groups), optim_of(options)};
}

MixOptions mix_of(const TrainOptions& options) {
  return MixOptions()
      .mixup(options.mixup)
      .cutmix(options.cutmix)
      .prob(options.mixup_prob)
      .switch_prob(options.mixup_switch_prob)
      .smoothing(options.smoothing);
}

StepOptions step_of(const TrainOptions& options) {
  return StepOptions()
      .amp(options.amp)
      .cuda_graph(options.cuda_graph)
      .batches(options.grad_accum_steps)
      .clip_grad(options.clip_grad)
      .smoothing(options.smoothing)
      .radius_smoothing(options.radius_smoothing.value_or(0))
      .contrastive(options.head.is(HeadSource::Kind::kText));
}

std::optional<RadiusUpdates> radius_updates_of(const TrainOptions& options) {
  const auto* method = find_method(options.method);
  if (!method || !method->radius_updates) return std::nullopt;
  return method->radius_updates(options.method_options);
}

int64_t final_radius_steps(const TrainOptions& options) {
  const auto updates = radius_updates_of(options);
  return updates && updates->every.at_end() ? updates->radius_steps : 0;
}

KernelFlags::KernelFlags(bool deterministic) {
  auto& context = at::globalContext();
  benchmark_ = context.benchmarkCuDNN();
  deterministic_ = context.deterministicCuDNN();
  algorithms_ = context.deterministicAlgorithms();
  warn_only_ = context.deterministicAlgorithmsWarnOnly();
  context.setBenchmarkCuDNN(!deterministic);
  context.setDeterministicCuDNN(deterministic);
  context.setDeterministicAlgorithms(deterministic, /*warn_only=*/true);
}

KernelFlags::~KernelFlags() {
  auto& context = at::globalContext();
  context.setBenchmarkCuDNN(benchmark_);
  context.setDeterministicCuDNN(deterministic_);
  context.setDeterministicAlgorithms(algorithms_, warn_only_);
}

}  // namespace tpgm
