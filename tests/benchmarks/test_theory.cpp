// Theorem 1: what the draws say has to agree with what can be computed by hand.
#include "benchmarks/theory.h"

#include <cmath>
#include <numbers>

#include "tests/support.h"

namespace tpgm::benchmarks {
namespace {

using testing::error_of;

TheoryOptions small() {
  return TheoryOptions().dims(40).samples(20).draws(6).epsilons({0.3, 1, 3, 10}).held_out(2000);
}

TEST(Theory, BoundHoldsAndAlphaGrowsWithEpsilon) {
  const auto rows = check_theorem(small());
  ASSERT_EQ(rows.size(), 4u);
  double last = -1;
  for (const auto& row : rows) {
    EXPECT_EQ(row.violations, 0);
    EXPECT_EQ(row.checks, 6 * 12);
    EXPECT_GE(row.tightest, row.loss_projected / row.bound);
    EXPECT_LE(row.tightest, 1);
    EXPECT_LE(row.loss_projected, row.bound);
    EXPECT_LE(row.loss_projected, 1.02 * std::min(row.loss_pretrained, row.loss_finetuned));
    EXPECT_NEAR(row.alpha, row.alpha_best, 0.05) << "epsilon " << row.epsilon;
    EXPECT_GT(row.alpha, last);
    last = row.alpha;
  }
}

TEST(Theory, LossesAndBestAlphaAreThoseOfNormalData) {
  // With P the projection on the samples' span and e = θ₀ − θ*: E‖Pe‖² = ε²·samples/dims, so the best α is
  // about that over itself plus drift², and E|aᵀx| = ‖a‖√(2/π) gives the losses at α = 0 and 1.
  const double root = std::sqrt(2 / std::numbers::pi);
  for (const double drift : {1., 2.}) {
    for (const auto& row : check_theorem(small().draws(40).drift(drift).held_out(10).radius_steps(0))) {
      const double inside = row.epsilon * row.epsilon / 2, outside = inside + drift * drift;
      EXPECT_NEAR(row.loss_pretrained, row.epsilon * root, 0.02 * row.epsilon);
      EXPECT_NEAR(row.loss_finetuned, std::sqrt(outside) * root, 0.05 * std::sqrt(outside));
      EXPECT_NEAR(row.alpha_best, inside / (inside + drift * drift), 0.06);
      EXPECT_NEAR(row.alpha, 0.5, 1e-12) << "no step taken: half of the distance";
      EXPECT_NEAR(row.alpha_spread, 0, 1e-12);
    }
  }
}

TEST(Theory, RowsDependOnTheirSeedAlone) {
  const auto numbers = [](const TheoryOptions& options) {
    std::vector<double> result;
    for (const auto& row : check_theorem(options))
      result.insert(result.end(), {row.alpha, row.alpha_best, row.loss_projected, row.bound, row.tightest});
    return result;
  };
  const auto options = small().draws(2).radius_steps(20);
  torch::manual_seed(1);
  const auto next = torch::rand({1});
  torch::manual_seed(1);
  const auto expected = numbers(options);
  EXPECT_TRUE(torch::equal(torch::rand({1}), next)) << "the global stream is not touched";
  torch::manual_seed(2);
  EXPECT_EQ(numbers(options), expected);
  EXPECT_NE(numbers(TheoryOptions(options).seed(1)), expected);
}

TEST(Theory, OptionsThatMakeNoSenseAreRefused) {
  const std::pair<TheoryOptions, std::string> cases[] = {
      {TheoryOptions().dims(10).samples(10), "less than dims (10), and is 10"},
      {TheoryOptions().samples(0), "samples must be at least 1"},
      {TheoryOptions().draws(0), "draws"},
      {TheoryOptions().held_out(0), "held_out"},
      {TheoryOptions().test_points(0), "test_points"},
      {TheoryOptions().radius_steps(-1), "radius_steps"},
      {TheoryOptions().drift(NAN), "drift"},
      {TheoryOptions().epsilons({}), "epsilon"},
      {small().draws(1).epsilons({1, -1}), "epsilon must be positive, and is -1"},
      {small().epsilons({INFINITY}), "epsilon"}};
  for (const auto& [options, message] : cases) {
    const auto error = error_of([&, &options = options] { check_theorem(options); });
    EXPECT_EQ(error.rfind("[theory] ", 0), 0u) << error;
    EXPECT_NE(error.find(message), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace tpgm::benchmarks
