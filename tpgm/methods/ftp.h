// FTP, fast trainable projection: radii learned from the training gradient (Tian et al., NeurIPS 2023).
#pragma once

#include <torch/arg.h>

#include <optional>
#include <string>
#include <vector>

#include "tpgm/core/held_copy.h"
#include "tpgm/core/radii.h"
#include "tpgm/methods/anchored_method.h"

namespace tpgm {

struct FtpOptions : AnchoredOptions<FtpOptions> {
  TORCH_ARG(Norm, norm) = Norm::kMars;
  TORCH_ARG(double, radius_lr) = 1e-2;
  /// Factor on the gradient of a radius that would shrink it: 1 treats both directions alike, 0 never
  /// shrinks.
  TORCH_ARG(double, k) = 1;
  /// Leave rows whose ratio was 1 out of the gradient: the true derivative. The authors keep them.
  TORCH_ARG(bool, mask) = false;

 public:
  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("norm", self.norm(), "norm of the distance from the anchor");
    visit("radius_lr", self.radius_lr(), "learning rate of the radii (Adam)");
    visit("k", self.k(), "factor on gradients that shrink a radius, 0 to 1; smaller values let radii grow");
    visit("mask", self.mask(), "exclude rows inside their radius from the radius gradient");
    visit_anchored(self, visit);
  }
};

/// Learns one radius per tensor from the gradient of the training loss and the displacement of the step
/// before: no radius data, no extra forward or backward pass. Radii start at 1e-8, so the first step stays at
/// the anchor.
///
/// Memory: the anchor. The displacement's direction is read off the projected weights, which are therefore
/// kept 2^-16 of a row's norm (float64: 2^-45) away from it however small the radius. Weights of 16-bit types
/// have no bits for that, and are kept a second time, as they were before their last projection.
///
/// On CUDA, where errors come a step late, weights that are not finite stay as they are, but others may have
/// been projected in the same step.
class Ftp final : public AnchoredMethod {
 public:
  using Options = FtpOptions;

  explicit Ftp(const ModuleView& model, FtpOptions options = {});
  Ftp(const ModuleView& model, const NamedTensors& anchor, FtpOptions options = {});

  /// γ by name; empty before the first step.
  NamedNumbers radii() const override;
  /// γ / max n of the last step, which is what tensors were multiplied by where it is not smaller than what
  /// is kept for the direction; see Tpgm::ratios().
  NamedNumbers ratios() const override;

  void before_step() override;
  void after_step(const Closure& radius_loss) override;
  void finish(const Closure& radius_loss) override;
  void check() override;
  /// None before the radii have begun, and after an error.
  std::optional<StepPlan> next_step() const override;
  void replayed() override;
  NamedTensors state_dict() const override;
  void load_state_dict(const NamedTensors& state) override;

 private:
  template <class Look>
  void or_forget(Look&& look);

  FtpOptions options_;
  Radii radii_;
  HeldCopy held_;
  bool holds_;                                  // the weights before their last projection
  bool stepped_ = false;                        // there was a step before, from which to learn
  std::optional<at::Tensor> radius_gradients_;  // of the step under way
};

}  // namespace tpgm
