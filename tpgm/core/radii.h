// The learned radii γ: one non-negative number per constrained tensor, and the optimizer that moves them.
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

/// What a radius is before the first update.
enum class RadiusInit {
  kHalf,  ///< Half of the smallest row distance; with Norm::kL2 every ratio starts at exactly 0.5.
  kEps,   ///< `eps`: the model starts at the anchor.
};

/// What the optimizer moves.
enum class RadiusScale {
  kAbsolute,  ///< The radius γ itself: one Adam step changes every radius by about the learning rate.
  kRelative,  ///< The ratio γ / max n: one Adam step changes every layer by the same fraction of its
              ///< distance.
};

/// Makes the optimizer that moves the radii (or ratios, with kRelative), a single float64 tensor.
using OptimizerFactory = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)>;

struct RadiiOptions {
  TORCH_ARG(RadiusInit, init) = RadiusInit::kHalf;
  TORCH_ARG(double, eps) = 1e-8;
  TORCH_ARG(RadiusScale, scale) = RadiusScale::kAbsolute;
  TORCH_ARG(double, lr) = 1e-2;
  /// Adds mu · Σ γ² to the loss of the radii (TPGM-C).
  TORCH_ARG(double, mu) = 0;
  /// Adds tv · Σ |α_i − α_{i−1}| over neighbours in a group, α = γ / max n.
  TORCH_ARG(double, tv) = 0;
  /// Default: Adam with learning rate `lr`, betas (0.9, 0.999), eps 1e-8, which needs no host
  /// synchronisation. One of your own costs one per update on CUDA.
  TORCH_ARG(OptimizerFactory, optimizer) = nullptr;
};

/// Radii of `count` tensors: LibTorch's side of kernels::RadiusNumbers, and optimizers of the user's.
/// `smallest` and `largest` below are the extremes of each tensor's row distances, measured on unprojected
/// weights; all tensors are float64 of shape [count] on one device. With the built-in optimizer everything
/// stays in the same memory, so that a captured update() or prepare() can be replayed, and either is one
/// launch.
class Radii {
 public:
  /// `groups` names the group of each tensor, in model order; used by `tv` alone. `report` is that of the
  /// flag (see FiniteFlag) of those who measure the distances, if any; see remember().
  Radii(RadiiOptions options, const std::vector<std::string>& groups, at::TensorOptions scalar_options,
        at::Tensor report = {});

  /// The radii to project with: initialised at the first call, then clamped to [1e-8, largest]. A tensor that
  /// has not moved (largest = 0) has radius 1e-8.
  const at::Tensor& prepare(const at::Tensor& smallest, const at::Tensor& largest);

  /// For projecting before the distances are known, which takes radii that do not depend on them: those of an
  /// absolute scale, once initialised. They are clamped from below alone; a radius above the largest distance
  /// projects like one at it. prepare() when they are known.
  bool known_before_measuring() const { return initialised_ && options_.scale() == RadiusScale::kAbsolute; }
  const at::Tensor& prepare_before_measuring();

  /// One optimizer step along `radius_gradients`, dL/dγ, plus the gradients of mu and tv. Tensors that have
  /// not moved get no gradient. Afterwards prepare() gives the clamped radii.
  void update(const at::Tensor& radius_gradients, const at::Tensor& largest);

  /// The radii as prepare() last gave them, and the largest distances it was given, in memory that the next
  /// call changes; zeros before the first.
  const at::Tensor& values() const { return radii_; }
  const at::Tensor& distances() const { return distances_; }
  /// γ / max n, at most 1: what the farthest row's displacement is multiplied by. 1 where nothing has moved.
  at::Tensor ratios() const;
  bool initialised() const { return initialised_; }

  /// Whether prepare() and update() may only be called once everything is known to be finite: the first time,
  /// and always with an optimizer of the user's. Otherwise the device sees to it; see remember().
  bool must_wait() const { return !initialised_ || options_.optimizer(); }

  /// A point to come back to, for a call that may fail. go_back() returns to it: the radii, what their
  /// optimizer remembers, and whether they had begun. Unless must_wait(), the device returns to it by itself,
  /// too: an update() or prepare() that finds something in the report puts back what the first one after
  /// remember() had found. Nothing waits for that.
  void remember();
  void go_back();

  /// All state by name, copied; loading it continues bit for bit.
  NamedTensors state_dict() const;
  /// `owner` is for messages. Throws, changing nothing, if the state is not that of these radii.
  void load_state_dict(const std::string& owner, const NamedTensors& state);

 private:
  void make_optimizer(const at::Tensor& learned, const std::string& state);
  void forget();
  std::string save_optimizer() const;
  void* on_stream();

  RadiiOptions options_;
  at::Tensor report_;
  // The memory of all numbers (kernels::RadiiRow), and its rows: what the optimizer moves (a leaf of its own,
  // where it is the user's), the radii, Adam's state, and what the radii were clamped to.
  at::Tensor numbers_, learned_, radii_, moments_, distances_;
  std::vector<at::Tensor> memory_;
  kernels::RadiusNumbers radius_numbers_;
  bool initialised_ = false;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  struct {
    bool initialised = false;
    at::Tensor learned;  // this and the next with an optimizer of the user's
    std::string optimizer;
  } remembered_;
};

}  // namespace tpgm
