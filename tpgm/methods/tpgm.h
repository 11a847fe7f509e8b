// TPGM: projections with radii that are learned on held-out data (Tian et al., CVPR 2023).
#pragma once

#include <torch/arg.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tpgm/core/held_out_loss.h"
#include "tpgm/core/radii.h"
#include "tpgm/methods/anchored_method.h"

namespace tpgm {

/// When to project on steps that do not learn radii.
enum class ProjectWhen {
  kAlways,    ///< Every step, with the radii as they are.
  kOnUpdate,  ///< Only when radii were learned (Algorithm 1, literally).
};
template <>
struct Keywords<ProjectWhen> {
  static constexpr std::pair<ProjectWhen, const char*> all[] = {{ProjectWhen::kAlways, "always"},
                                                                {ProjectWhen::kOnUpdate, "on-update"}};
};

struct TpgmOptions : AnchoredOptions<TpgmOptions> {
  /// Default: kMars while training, kL2 with every = end.
  TORCH_ARG(std::optional<Norm>, norm);
  /// Learn radii every so many optimizer steps, or once, in finish() (kEnd). Default: 1. `tpgm train` decides
  /// by the model: see decide_every() in tpgm/train/radius_loss.h.
  TORCH_ARG(std::optional<Every>, every);
  /// Radius steps each time radii are learned, each on a fresh batch. Default: see radius_steps_or_default().
  TORCH_ARG(std::optional<int64_t>, radius_steps);
  TORCH_ARG(double, radius_lr) = 1e-2;
  TORCH_ARG(RadiusInit, init) = RadiusInit::kHalf;
  TORCH_ARG(double, eps) = 1e-8;
  TORCH_ARG(RadiusScale, scale) = RadiusScale::kAbsolute;
  TORCH_ARG(ProjectWhen, project) = ProjectWhen::kAlways;
  /// TPGM-C: weight of Σ γ² in the radius loss. Larger values keep the model nearer to the anchor.
  TORCH_ARG(double, mu) = 0;
  /// Weight of the total variation of the ratios within a group. Helps when learning at every step underfits.
  TORCH_ARG(double, tv) = 0;
  /// Globs, one per group of `tv`. Default: a group per residual or transformer block (block_name()).
  TORCH_ARG(std::vector<std::string>, groups);
  /// An optimizer for the radii in place of Adam; see RadiiOptions::optimizer.
  TORCH_ARG(OptimizerFactory, radius_optimizer) = nullptr;

 public:
  Every every_or_default() const { return every().value_or(1); }
  /// 1 while training, 200 with every = end, unless `radius_steps` says otherwise.
  int64_t radius_steps_or_default() const {
    return radius_steps().value_or(every_or_default().at_end() ? 200 : 1);
  }

  RadiusUpdates radius_updates() const { return {every_or_default(), radius_steps_or_default()}; }

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("norm", self.norm(),
          "norm of the distance from the anchor; auto: mars while training, l2 with every = end");
    visit("every", self.every(),
          "learn radii every so many steps, or once at the end; auto: 1 for networks with BatchNorm, end for "
          "other networks and for heads that are made from text");
    visit("radius_steps", self.radius_steps(),
          "radius steps per update; auto: 1 while training, 200 at the end");
    visit("radius_lr", self.radius_lr(), "learning rate of the radii (Adam)");
    visit("init", self.init(), "initial radius: half of the distance, or eps");
    visit("eps", self.eps(), "initial radius with init = eps; for Adam's epsilon see `opt-eps`");
    visit("scale", self.scale(), "learn the radius itself, or its ratio to the distance");
    visit("project", self.project(),
          "project also on steps that learn no radii, or only when radii are updated");
    visit("mu", self.mu(), "TPGM-C: weight of the squared radii in the radius loss");
    visit("tv", self.tv(), "weight of the total variation of the ratios within a block");
    visit("groups", self.groups(), "groups of tensors for `tv`, one glob each; default: blocks");
    visit_anchored(self, visit);
  }
};

/// Keeps every tensor within a learned radius around its anchor: after the unconstrained step of the
/// optimizer it learns the radii on held-out data and projects the weights.
///
///     tpgm::Tpgm tpgm(*model, tpgm::TpgmOptions().exclude({"head.*"}));   // the anchor is taken here
///     ...
///     optimizer.step();
///     tpgm.step([&] { return loss(model, held_out.next()); });
///
/// Each radius step is one ordinary forward and backward pass in eval() mode, without side effects (see
/// HeldOutLoss). On NaN or Inf, weights, radii and the state of their optimizer are as before the call.
///
/// Memory: the anchor; while radii are learned also a copy of the weights and one of their gradients (half of
/// each with read_in_bfloat16()).
class Tpgm final : public AnchoredMethod, public HasDiagnosis {
 public:
  using Options = TpgmOptions;

  /// The anchor is a copy of the model's present weights.
  explicit Tpgm(const ModuleView& model, TpgmOptions options = {});
  /// The anchor is given by name, for example from load_state_dict(file). It is copied.
  Tpgm(const ModuleView& model, const NamedTensors& anchor, TpgmOptions options = {});

  /// One step of the loop, the same as after_step(): learns radii on every `every`-th step, then projects.
  /// With every = kEnd only finish() does anything.
  void step(const Closure& radius_loss) { after_step(radius_loss); }

  /// Learns radii for the present weights, which it does not change. Returns the last loss (undefined with
  /// radius_steps = 0).
  at::Tensor update_radii(const Closure& radius_loss);
  /// Projects with the present radii; initializes them if none were learned.
  void project();

  /// γ by name; empty before the first call. Waits for the device.
  NamedNumbers radii() const override;
  /// γ / max n by name: the factor on the displacement at the last projection or update (for Norm::kMars that
  /// of the farthest row). 1 for a tensor that has not moved. Empty before the first call.
  NamedNumbers ratios() const override;

  void after_step(const Closure& radius_loss) override;
  void finish(const Closure& radius_loss) override;
  bool needs_radius_data() const override { return radius_steps_ > 0; }
  void read_in_bfloat16(const std::vector<at::Tensor>& parameters) override { in_bfloat16_ = parameters; }
  /// A step learns and projects, only projects, or does neither. The first two cannot be captured before the
  /// radii are initialized, or with an optimizer of the user.
  std::optional<StepPlan> next_step() const override;
  void replayed() override;
  /// Finding::kHeld if most tensors are projected back to the anchor and most radii learn to shrink, which also
  /// a radius loss that is not the training loss does. None with every = kEnd, with an optimizer of the user,
  /// and before radii were learned.
  std::optional<Diagnosis> diagnosis() override;
  NamedTensors state_dict() const override;
  void load_state_dict(const NamedTensors& state) override;

 private:
  enum Kind { kNothing, kProject, kLearn };  // of a step
  Kind kind() const;
  // Whether the radii change only after check(). On CUDA this is not needed if they roll back by themselves.
  bool waits() const { return displacements_.device().is_cpu() || radii_.must_wait(); }
  void learn_and_project(const Closure& radius_loss);
  at::Tensor learn(const Closure& radius_loss);

  TpgmOptions options_;
  int64_t radius_steps_;
  Radii radii_;
  HeldOutLoss held_out_loss_;
  std::vector<at::Tensor> in_bfloat16_;  // see read_in_bfloat16()
  int64_t step_ = 0;
};

}  // namespace tpgm
