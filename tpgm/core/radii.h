// The learned radii γ, one non-negative number per constrained tensor, and their optimizer.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/arg.h>
#include <torch/optim/optimizer.h>
#include <torch/ordered_dict.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tpgm/io/named_tensors.h"
#include "tpgm/kernels/radius_numbers.h"

namespace tpgm {

/// The initial value of a radius.
enum class RadiusInit {
  kHalf,  ///< Half of the smallest row distance; with Norm::kL2 every ratio starts at exactly 0.5.
  kEps,   ///< `eps`: the model starts at the anchor.
};

/// The parameter that the optimizer learns.
enum class RadiusScale {
  kAbsolute,  ///< The radius γ itself: one Adam step changes every radius by about the learning rate.
  kRelative,  ///< The ratio γ / max n: one Adam step changes every layer by the same fraction of its
              ///< distance.
};

/// Makes an optimizer for the radii (with kRelative: the ratios), which are a single float64 tensor.
using OptimizerFactory = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)>;

struct RadiiOptions {
  TORCH_ARG(RadiusInit, init) = RadiusInit::kHalf;
  TORCH_ARG(double, eps) = 1e-8;
  TORCH_ARG(RadiusScale, scale) = RadiusScale::kAbsolute;
  TORCH_ARG(double, lr) = 1e-2;
  /// Adds mu · Σ γ² to the loss of the radii (TPGM-C).
  TORCH_ARG(double, mu) = 0;
  /// Adds tv · Σ |α_i − α_{i−1}| over neighbors in a group, α = γ / max n.
  TORCH_ARG(double, tv) = 0;
  /// Default: Adam with learning rate `lr`, betas (0.9, 0.999) and eps 1e-8, on the device. On CUDA, an
  /// optimizer of your own costs a synchronization with the host per update.
  TORCH_ARG(OptimizerFactory, optimizer) = nullptr;
};

/// The radii of all constrained tensors: the LibTorch adapter of kernels::RadiusNumbers, which also supports
/// optimizers of the user. `smallest` and `largest` below are the extremes of each tensor's row distances,
/// measured on unprojected weights; all tensors are float64 of shape [number of tensors] on one device. With
/// the built-in optimizer update() and prepare() are one launch each and always use the same memory, so they
/// can be captured and replayed.
class Radii {
 public:
  /// `groups` names the group of each tensor, in model order, for `tv`. `report` is FiniteFlag::report() of
  /// the Displacements that measure the distances, if any; see remember().
  Radii(RadiiOptions options, const std::vector<std::string>& groups, at::TensorOptions scalar_options,
        at::Tensor report = {});

  /// Returns the radii to project with: initializes them at the first call, and clamps them to [1e-8,
  /// largest]. A tensor that has not moved (largest = 0) has radius 1e-8.
  const at::Tensor& prepare(const at::Tensor& smallest, const at::Tensor& largest);

  /// For projections before the distances are measured, which need radii that do not depend on them:
  /// initialized radii of absolute scale. prepare_before_measuring() clamps them only from below, because a
  /// radius above the largest distance projects like one at it. Call prepare() once the distances are known.
  bool known_before_measuring() const { return initialised_ && options_.scale() == RadiusScale::kAbsolute; }
  const at::Tensor& prepare_before_measuring();

  /// One optimizer step along `radius_gradients` (dL/dγ) plus the gradients of mu and tv. Radii of tensors
  /// that have not moved get a gradient of 0. Call prepare() afterwards for the clamped radii.
  void update(const at::Tensor& radius_gradients, const at::Tensor& largest);

  /// The radii that prepare() last returned, and the largest distances it was given; zeros before the first
  /// call. The next call overwrites them.
  const at::Tensor& values() const { return radii_; }
  const at::Tensor& distances() const { return distances_; }
  /// γ / max n, at most 1: the factor on the displacement of the farthest row. 1 for tensors that have not
  /// moved.
  at::Tensor ratios() const;
  /// The mean of the last radius gradients, with those of mu and tv: Adam's first moment. Undefined with an
  /// optimizer of the user.
  at::Tensor mean_gradients() const;
  bool initialised() const { return initialised_; }

  /// True if the host must know that everything is finite before it calls prepare() or update(): at the first
  /// call, and always with an optimizer of the user. Otherwise the kernels check the report; see remember().
  bool must_wait() const { return !initialised_ || options_.optimizer(); }

  /// Sets a point to roll back to, for calls that may fail. go_back() restores the radii, the state of their
  /// optimizer and initialised() to that point. Unless must_wait(), the device also rolls back by itself: an
  /// update() or prepare() that finds the report set restores the numbers of that point, without waiting.
  void remember();
  void go_back();

  /// A copy of all state, for a bit-exact resume.
  NamedTensors state_dict() const;
  /// Throws, changing nothing, if the state belongs to other radii.
  void load_state_dict(const NamedTensors& state);

 private:
  void make_optimizer(const at::Tensor& learned, const std::string& state);
  void forget();
  std::string save_optimizer() const;
  void* on_stream();

  RadiiOptions options_;
  at::Tensor report_;
  // All numbers (kernels::RadiiRow) and views of their rows: the learned parameter (a leaf tensor of its own
  // for an optimizer of the user), the radii, the state of Adam, and the largest distances.
  at::Tensor numbers_, learned_, radii_, moments_, distances_;
  std::vector<at::Tensor> memory_;
  kernels::RadiusNumbers radius_numbers_;
  bool initialised_ = false;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  struct {
    bool initialised = false;
    at::Tensor learned;  // this and the next for an optimizer of the user
    std::string optimizer;
  } remembered_;
};

}  // namespace tpgm
