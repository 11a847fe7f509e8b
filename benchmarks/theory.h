// Theorem 1 of the TPGM paper, checked numerically: the expected loss of a projected linear model and its
// bound.
#pragma once

#include <torch/arg.h>

#include <cstdint>
#include <vector>

namespace tpgm::benchmarks {

/// Linear problems y = θ*ᵀx, x standard normal in `dims` dimensions. The pre-trained model θ₀ is `epsilon`
/// away from the truth; the fine-tuned one fits `samples` < dims training points exactly and is `drift` away
/// from θ₀ outside of their span, where the training data say nothing.
struct TheoryOptions {
  TORCH_ARG(int64_t, dims) = 64;
  TORCH_ARG(int64_t, samples) = 32;
  TORCH_ARG(double, drift) = 1;
  TORCH_ARG(std::vector<double>, epsilons) = { 0.25, 0.5, 1, 1.5, 2, 3, 4, 8 };
  /// Problems drawn for each epsilon.
  TORCH_ARG(int64_t, draws) = 10;
  /// Held-out points that α is learned on, and test points that losses are measured on, per problem.
  TORCH_ARG(int64_t, held_out) = 256;
  TORCH_ARG(int64_t, test_points) = 4096;
  TORCH_ARG(int64_t, radius_steps) = 300;
  TORCH_ARG(int64_t, seed) = 0;
};

/// Means over the draws of one epsilon.
struct TheoryRow {
  double epsilon = 0;
  double alpha = 0;         ///< Learned on held-out data.
  double alpha_spread = 0;  ///< Standard deviation over draws.
  double alpha_best = 0;    ///< The minimizer of the expected loss, in closed form.
  double loss_pretrained = 0;
  double loss_finetuned = 0;
  double loss_projected = 0;  ///< At the learned α.
  double bound = 0;           ///< At the learned α.
  double tightest = 0;        ///< Largest loss / bound; above 1 the bound is violated.
  int64_t checks = 0;         ///< Draws × values of α.
  int64_t violations = 0;
};

/// Draws the problems, checks E|θ̃ᵀx − y| ≤ (1−α)ετ + (ε + α‖θ−θ₀‖)τ⊥ on each for eleven values of α and the
/// learned one, and learns α with the library's own projection and radii. The same rows for the same options,
/// whatever the global seed.
std::vector<TheoryRow> check_theorem(const TheoryOptions& options);

}  // namespace tpgm::benchmarks
