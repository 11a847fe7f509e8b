// The learned radii γ: one non-negative number per constrained tensor, and the optimizer that moves them.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/arg.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tpgm/core/selection.h"
#include "tpgm/kernels/radii.h"

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

/// Radii of `count` tensors. `smallest` and `largest` below are the extremes of each tensor's row distances,
/// measured on unprojected weights; all tensors are float64 of shape [count] on one device. With the built-in
/// optimizer everything stays in the same memory, so that a recorded update() or prepare() can be replayed,
/// and either is one launch.
class Radii {
 public:
  /// `groups` names the group of each tensor, in model order; used by `tv` alone. `report` is that of the
  /// Constraints which measure the distances, if any: see save().
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

  /// One optimizer step along dL/dγ = `slopes`, plus the gradients of mu and tv. Tensors that have not moved
  /// get no gradient. Afterwards prepare() gives the clamped radii.
  void update(const at::Tensor& slopes, const at::Tensor& largest);

  /// The radii as prepare() last gave them, and the largest distances it was given, in memory that the next
  /// call changes; zeros before the first.
  const at::Tensor& values() const { return radii_; }
  const at::Tensor& distances() const { return distances_; }
  /// γ / max n, at most 1: what the farthest row's displacement is multiplied by. 1 where nothing has moved.
  at::Tensor ratios() const;
  bool initialised() const { return initialised_; }

  /// False if the optimizer is the user's: then update() may only be called once everything is known to be
  /// finite.
  bool updates_on_device() const { return !options_.optimizer(); }

  /// All state by name, copied; loading it continues bit for bit.
  NamedTensors state_dict() const;
  /// `owner` is for messages. Throws, changing nothing, if the state is not that of these radii.
  void load_state_dict(const std::string& owner, const NamedTensors& state);

  /// A point to come back to, on the device's own time: the next update() or prepare() keeps the numbers as
  /// it finds them, and one that finds something in the report puts them back. Built-in optimizer only.
  void save_at_next_call() { saves_ = true; }
  /// The same for a caller that knows: puts them back.
  void go_back();
  /// The same for a caller that waits.
  struct Snapshot {
    bool initialised = false;
    at::Tensor numbers, learned;  // `learned` where the optimizer is the user's
    std::string optimizer;
  };
  Snapshot snapshot() const;
  void roll_back(const Snapshot& snapshot);

 private:
  kernels::RadiiCall call();
  void start(const at::Tensor& learned, const std::string& optimizer_state);
  void forget();
  std::string save_optimizer() const;

  RadiiOptions options_;
  const kernels::RadiiBackend* backend_;
  at::Tensor before_, behind_;  // the neighbours of each in its group; -1: none
  at::Tensor report_;
  // The memory of all numbers (kernels::RadiiRow), and its rows: what the optimizer moves (a leaf apart,
  // where it is the user's), the radii, Adam's state, and what the radii were clamped to.
  at::Tensor numbers_, learned_, radii_, moments_, distances_;
  at::Tensor saved_, unlimited_;
  bool initialised_ = false, saves_ = false;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

}  // namespace tpgm
