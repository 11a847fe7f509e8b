#include "benchmarks/theory.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/linalg_norm.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <cmath>

#include "tpgm/core/held_copy.h"
#include "tpgm/core/radii.h"

namespace tpgm::benchmarks {
namespace {

struct Problem {
  at::Tensor truth, pretrained, finetuned;
  at::Tensor span;  // orthonormal basis of the training points' span, [dims, samples]
};

at::Tensor unit(const at::Tensor& vector) { return vector / at::linalg_norm(vector); }

double mean_length(const at::Tensor& rows) { return rows.square().sum(1).sqrt().mean().item<double>(); }

Problem draw(const TheoryOptions& options, double epsilon, at::Generator& generator) {
  const auto normal = [&](std::vector<int64_t> shape) { return at::randn(shape, generator, at::kDouble); };
  Problem problem;
  problem.truth = normal({options.dims()});
  problem.pretrained = problem.truth + epsilon * unit(normal({options.dims()}));
  problem.span = std::get<0>(at::linalg_qr(normal({options.dims(), options.samples()})));
  const auto in_span = [&](const at::Tensor& x) { return problem.span.mv(problem.span.t().mv(x)); };
  // One of the many models that fit the training points exactly: the truth inside their span, and outside of
  // it the pre-trained model, drifted.
  const auto outside = normal({options.dims()});
  problem.finetuned = problem.pretrained - in_span(problem.pretrained - problem.truth) +
                      options.drift() * unit(outside - in_span(outside));
  return problem;
}

double loss_at(const Problem& problem, double alpha, const at::Tensor& points) {
  const auto model = problem.pretrained + alpha * (problem.finetuned - problem.pretrained);
  return points.mv(model - problem.truth).abs().mean().item<double>();
}

// α learned on the held-out points, by projecting into a learned radius as a method does.
double learn_alpha(const TheoryOptions& options, const Problem& problem, const at::Tensor& points) {
  auto weights = problem.finetuned.clone();
  Displacements displacements("theory", {{"theta", weights, problem.pretrained}}, Norm::kL2,
                              AnchorStorage::kWeights);
  Radii radii(RadiiOptions().scale(RadiusScale::kRelative), displacements.names(),
              displacements.scalar_options());
  HeldCopy held(displacements);
  held.hold();
  radii.prepare(displacements.smallest(), displacements.largest());
  for (int64_t i = 0; i < options.radius_steps(); ++i) {
    displacements.project(radii.values());
    const auto residual = points.mv(weights - problem.truth);
    const auto gradient = points.t().mv(residual.sign()) / static_cast<double>(points.size(0));
    radii.update(displacements.radius_gradients({gradient}, radii.values(), Rows::kAtOrBeyond),
                 displacements.largest());
    radii.prepare(displacements.smallest(), displacements.largest());
  }
  return (radii.values() / displacements.largest()).item<double>();
}

}  // namespace

std::vector<TheoryRow> check_theorem(const TheoryOptions& options) {
  TORCH_CHECK(options.samples() >= 1 && options.samples() < options.dims(),
              "[theory] samples must be at least 1 and less than dims (", options.dims(), "), and is ",
              options.samples());
  TORCH_CHECK(options.draws() >= 1 && options.held_out() >= 1 && options.test_points() >= 1,
              "[theory] draws, held_out and test_points must be at least 1");
  TORCH_CHECK(
      options.radius_steps() >= 0 && std::isfinite(options.drift()) && !options.epsilons().empty(),
      "[theory] radius_steps must not be negative, drift must be a number, and there must be an epsilon");
  auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(options.seed()));
  std::vector<TheoryRow> rows;
  for (const auto epsilon : options.epsilons()) {
    TORCH_CHECK(epsilon > 0 && std::isfinite(epsilon), "[theory] epsilon must be positive, and is ", epsilon);
    TheoryRow row;
    row.epsilon = epsilon;
    std::vector<double> learned;
    for (int64_t i = 0; i < options.draws(); ++i) {
      const auto problem = draw(options, epsilon, generator);
      const auto held_out = at::randn({options.held_out(), options.dims()}, generator, at::kDouble);
      const auto points = at::randn({options.test_points(), options.dims()}, generator, at::kDouble);
      // τ and τ⊥: mean lengths of a point's coordinates inside and outside the training points' span.
      const auto inside = points.mm(problem.span);
      const auto outside = points - inside.mm(problem.span.t());
      const auto tau = mean_length(inside);
      const auto tau_outside = mean_length(outside);
      const auto moved = at::linalg_norm(problem.finetuned - problem.pretrained).item<double>();
      const auto bound_at = [&](double alpha) {
        return (1 - alpha) * epsilon * tau + (epsilon + alpha * moved) * tau_outside;
      };

      const auto alpha = learn_alpha(options, problem, held_out);
      for (int step = 0; step <= 11; ++step) {
        const auto checked = step <= 10 ? step / 10.0 : alpha;
        const auto share = loss_at(problem, checked, points) / bound_at(checked);
        row.tightest = std::max(row.tightest, share);
        row.violations += share > 1 + 1e-12;
        ++row.checks;
      }
      // For a standard normal x, E|aᵀx| = ‖a‖·√(2/π): the best α minimizes ‖θ₀ − θ* + α(θ − θ₀)‖.
      const auto direction = problem.finetuned - problem.pretrained;
      const auto best = -direction.dot(problem.pretrained - problem.truth).item<double>() / (moved * moved);
      learned.push_back(alpha);
      row.alpha_best += std::clamp(best, 0.0, 1.0);
      row.loss_pretrained += loss_at(problem, 0, points);
      row.loss_finetuned += loss_at(problem, 1, points);
      row.loss_projected += loss_at(problem, alpha, points);
      row.bound += bound_at(alpha);
    }
    const auto count = static_cast<double>(options.draws());
    for (auto* sum :
         {&row.alpha_best, &row.loss_pretrained, &row.loss_finetuned, &row.loss_projected, &row.bound}) {
      *sum /= count;
    }
    for (const auto alpha : learned) row.alpha += alpha / count;
    for (const auto alpha : learned) row.alpha_spread += (alpha - row.alpha) * (alpha - row.alpha) / count;
    row.alpha_spread = std::sqrt(row.alpha_spread);
    rows.push_back(row);
  }
  return rows;
}

}  // namespace tpgm::benchmarks
