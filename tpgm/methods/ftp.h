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
  /// Factor on radius gradients that would shrink a radius: 1 treats both directions alike, 0 never shrinks.
  TORCH_ARG(double, k) = 1;
  /// Exclude rows whose ratio was 1 from the radius gradient. This is the true derivative; the authors
  /// include these rows.
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

/// Learns one radius per tensor from the gradient of the training loss and the displacement of the previous
/// step: without radius data, and without another forward or backward pass. Radii start at 1e-8, so the first
/// step stays at the anchor.
///
/// Memory: the anchor. The direction of the displacement is read from the projected weights, so projections
/// keep each row away from the anchor by at least 2^-16 of the anchor row's norm (float64: 2^-45), however
/// small the radius. Weights of 16-bit types are too coarse for this: of them a copy from before the last
/// projection is kept.
///
/// On CUDA errors come a step late: weights that are not finite are not changed, but other weights may have
/// been projected in that step.
class Ftp final : public AnchoredMethod {
 public:
  using Options = FtpOptions;

  explicit Ftp(const ModuleView& model, FtpOptions options = {});
  Ftp(const ModuleView& model, const NamedTensors& anchor, FtpOptions options = {});

  /// γ by name; empty before the first step.
  NamedNumbers radii() const override;
  /// γ / max n of the last step; see Tpgm::ratios(). Tensors whose radius is smaller than the distance kept
  /// for the direction were projected to that distance instead.
  NamedNumbers ratios() const override;

  void before_step() override;
  void after_step(const Closure& radius_loss) override;
  void finish(const Closure& radius_loss) override;
  void check() override;
  /// No plan before the radii are initialized, and after an error.
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
  bool holds_;                                  // use held_, because a tensor has a 16-bit type
  bool stepped_ = false;                        // there is a previous step to learn from
  std::optional<at::Tensor> radius_gradients_;  // of the present step
};

}  // namespace tpgm
