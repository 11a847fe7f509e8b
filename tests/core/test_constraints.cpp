// Distances, projections and slopes of real tensors, against ATen, autograd and finite differences.
#include "tpgm/core/constraints.h"

#include "tests/core/constraints.h"

namespace tpgm::testing {
namespace {

class ConstraintsNumbers : public ConstraintsTest {};
TPGM_ON_EVERY_DEVICE(ConstraintsNumbers);

TEST_P(ConstraintsNumbers, MeasureEveryLayoutTypeAndAnchorLikeAten) {
  for (const auto dtype : kTypes) {
    const auto selected = every_layout(device(), dtype);
    for (const auto norm : kNorms) {
      for (const auto storage : kStorages) {
        Constraints constraints("Test", selected, norm, storage);
        constraints.measure();
        for (int64_t k = 0; k < constraints.size(); ++k) {
          const auto& [name, weights, anchor] = selected[k];
          const auto rows = distances(weights, anchor, norm == Norm::kMarsMax ? Norm::kMars : norm);
          EXPECT_NEAR(constraints.largest()[k].item<double>(), rows.max().item<double>(),
                      1e-6 * rows.max().item<double>())
              << name;
          EXPECT_NEAR(constraints.smallest()[k].item<double>(), rows.min().item<double>(),
                      1e-6 * rows.max().item<double>())
              << name;
        }
      }
    }
  }
}

TEST_P(ConstraintsNumbers, LargeHalfPrecisionTensorsKeepTheirPrecision) {
  for (const auto dtype : {torch::kBFloat16, torch::kHalf}) {
    const auto anchor = torch::randn({10, 1000000}).to(device(), dtype);
    const auto weights = anchor + (0.01 * torch::randn({10, 1000000})).to(device(), dtype);
    for (const auto norm : kNorms) {
      Constraints constraints("Test", {{"w", weights, anchor}}, norm, AnchorStorage::kWeights);
      constraints.measure();
      const auto expected = distances(weights, anchor, norm).max().item<double>();
      EXPECT_NEAR(constraints.largest().item<double>(), expected, 1e-6 * expected);
    }
  }
}

TEST_P(ConstraintsNumbers, ProjectLikeAtenAndLeaveRowsInsideUntouched) {
  for (const auto dtype : kTypes) {
    for (const auto norm : kNorms) {
      for (const auto storage : kStorages) {
        const auto selected = every_layout(device(), dtype);
        Constraints constraints("Test", selected, norm, storage);
        const auto before = copies(constraints.tensors());
        constraints.measure();
        constraints.project(constraints.largest());  // γ = n
        expect_equal(constraints.tensors(), before);

        const auto radii = inner(constraints);
        constraints.project(radii);
        for (int64_t k = 0; k < constraints.size(); ++k) {
          const auto& [name, weights, anchor] = selected[k];
          const auto radius = radii[k].cpu();
          expect_close(weights, literal_projection(before[k], anchor, radius, norm), dtype, name);
          const auto inside = distances(before[k], anchor, norm) < radius * (1 - 1e-6);
          const auto as_before = in_rows(weights, norm) == in_rows(before[k], norm);
          EXPECT_TRUE(as_before.logical_or(inside.logical_not().reshape({-1, 1})).all().item<bool>()) << name;
        }
        EXPECT_TRUE(torch::equal(selected.back().tensor, selected.back().pretrained)) << "n = 0";

        constraints.measure();
        if (dtype == torch::kDouble) {
          EXPECT_TRUE((constraints.largest() <= radii * (1 + 1e-9)).all().item<bool>()) << "inside the ball";
        }
      }
    }
  }
}

TEST_P(ConstraintsNumbers, MeasureAndProjectLikeOneAfterTheOther) {
  for (const auto dtype : kTypes) {
    for (const auto norm : kNorms) {
      for (const auto storage : kStorages) {
        const auto selected = every_layout(device(), dtype);
        Constraints constraints("Test", selected, norm, storage);
        const auto before = copies(constraints.tensors());
        constraints.measure();
        const auto radii = inner(constraints), measured = constraints.distances().clone();
        constraints.project(radii);
        const auto projected = copies(constraints.tensors());

        for (size_t k = 0; k < before.size(); ++k) constraints.tensors()[k].detach().copy_(before[k]);
        auto elsewhere = constraints.room_for_copies({});
        constraints.load_distances(torch::full_like(measured, NAN));
        constraints.measure_and_project_into(elsewhere, radii);
        expect_equal(constraints.tensors(), before);
        expect_equal(elsewhere, projected);
        EXPECT_TRUE(torch::equal(constraints.distances(), measured));

        constraints.load_distances(torch::full_like(measured, NAN));
        constraints.measure_and_project(radii);
        expect_equal(constraints.tensors(), projected);
        EXPECT_TRUE(torch::equal(constraints.distances(), measured));
      }
    }
  }
}

// A row's direction from its anchor can be read off it after a projection into nearly nothing.
TEST_P(ConstraintsNumbers, KeepDirections) {
  for (const auto norm : kNorms) {
    for (const auto dtype : {torch::kFloat, torch::kDouble}) {
      const auto anchor = torch::randn({20, 4000}, torch::kDouble).to(device(), dtype);
      const auto weights = anchor + 0.01 * torch::randn_like(anchor);
      const auto before = in_rows(weights - anchor, norm);
      Constraints constraints("Test", {{"w", weights, anchor}}, norm, AnchorStorage::kWeights);
      ASSERT_TRUE(constraints.keep_directions());
      constraints.measure_and_project(torch::full({1}, 1e-30, constraints.scalar_options()));
      const auto after = in_rows(weights, norm) - in_rows(anchor, norm);
      EXPECT_GT(torch::cosine_similarity(before, after, 1, 0).min().item<double>(), 0.999);
      const auto nearest = (dtype == torch::kFloat ? 0x1p-16 : 0x1p-45) *
                           distances(anchor, torch::zeros_like(anchor), norm).max().item<double>();
      EXPECT_LT(distances(weights, anchor, norm).max().item<double>(), 1.01 * nearest);
    }
  }
  for (const auto dtype : {torch::kHalf, torch::kBFloat16}) {
    const auto selected = every_layout(device(), dtype);
    EXPECT_FALSE(Constraints("Test", selected, Norm::kMars, AnchorStorage::kWeights).keep_directions());
  }
  Constraints every("Test", every_layout(device(), torch::kFloat), Norm::kMars, AnchorStorage::kHost);
  EXPECT_TRUE(every.keep_directions());
}

TEST_P(ConstraintsNumbers, MeasureSlopesOfTheTensorsAsTheyAre) {
  for (const auto norm : kNorms) {
    const auto selected = every_layout(device(), torch::kDouble);
    Constraints constraints("Test", selected, norm, AnchorStorage::kWeights);
    constraints.measure();
    const auto radii = inner(constraints), measured = constraints.distances().clone();
    std::vector<Tensor> gradients;
    for (const auto& tensor : constraints.tensors()) gradients.push_back(torch::randn_like(tensor));
    const auto expected = constraints.slopes(gradients, radii, Rows::kBeyond);
    const auto largest = constraints.largest().clone();
    constraints.interpolate(torch::full_like(radii, 0.25));  // the direction stays, and so does the slope
    const auto now = constraints.measure_slopes(gradients, radii, Rows::kBeyond);
    EXPECT_TRUE(torch::allclose(now.slopes, expected, 1e-9));
    EXPECT_TRUE(torch::allclose(now.largest, 0.25 * largest, 1e-9));
    EXPECT_TRUE(torch::equal(constraints.distances(), measured));
  }
}

TEST_P(ConstraintsNumbers, InterpolateWithAnyRatio) {
  for (const auto dtype : kTypes) {
    for (const double ratio : {-0.5, 0.0, 0.3, 1.0, 1.7}) {
      const auto selected = every_layout(device(), dtype);
      Constraints constraints("Test", selected, Norm::kMars, AnchorStorage::kWeights);
      const auto before = copies(constraints.tensors());
      constraints.interpolate(torch::full({constraints.size()}, ratio, constraints.scalar_options()));
      for (size_t k = 0; k < selected.size(); ++k) {
        const auto& [name, weights, anchor] = selected[k];
        const auto from = on_host(anchor);
        expect_close(weights, from + ratio * (on_host(before[k]) - from), dtype, name);
        if (ratio == 0 || ratio == 1) {
          EXPECT_TRUE(torch::equal(weights, ratio == 0 ? anchor : before[k])) << name;
        }
      }
    }
  }
}

// A loss with a different gradient everywhere.
Tensor loss_of(const Tensor& tensor, size_t k) {
  const auto at =
      torch::arange(tensor.numel(), tensor.options().requires_grad(false)).reshape(tensor.sizes());
  return (torch::sin(tensor * (1.0 + 0.1 * static_cast<double>(k))) * torch::cos(at)).sum() +
         tensor.square().sum();
}

TEST_P(ConstraintsNumbers, SlopesAreTheDerivativeOfALossThroughTheProjection) {
  for (const auto norm : kNorms) {
    const auto selected = every_layout(device(), torch::kDouble);
    Constraints constraints("Test", selected, norm, AnchorStorage::kWeights);
    constraints.measure(/*hold=*/true);
    const auto unprojected = copies(constraints.tensors());
    const auto radii = inner(constraints);
    const auto losses = [&](const Tensor& at) {
      constraints.project(at);
      std::vector<Tensor> result;
      for (size_t k = 0; k < selected.size(); ++k) result.push_back(loss_of(constraints.tensors()[k], k));
      return result;
    };
    std::vector<Tensor> gradients;
    const auto here = losses(radii);
    for (size_t k = 0; k < selected.size(); ++k)
      gradients.push_back(torch::autograd::grad({here[k]}, {constraints.tensors()[k]})[0]);
    const auto slopes = constraints.slopes(gradients, radii, Rows::kAtOrBeyond).cpu();
    const auto step = 1e-5 * radii + 1e-9;
    const auto above = losses(radii + step), below = losses(radii - step);
    for (size_t k = 0; k < selected.size(); ++k) {
      const auto& [name, weights, anchor] = selected[k];
      const auto radius = radii[k].detach().cpu().requires_grad_(true);
      const auto projected = literal_projection(unprojected[k], anchor, radius, norm);
      const auto exact = torch::autograd::grad({loss_of(projected, k)}, {radius})[0].item<double>();
      const auto slope = slopes[k].item<double>();
      EXPECT_NEAR(slope, exact, 1e-10 * (1 + std::abs(exact))) << name;
      const auto difference = ((above[k] - below[k]) / (2 * step[k])).item<double>();
      EXPECT_NEAR(slope, difference, 1e-6 * (1 + std::abs(slope))) << name;
      EXPECT_EQ(slope == 0, name == "unmoved" || weights.numel() == 0) << name;
    }
  }
}

TEST_P(ConstraintsNumbers, SlopesCountTheRowsThatAreAskedFor) {
  // Rows at distances 1, 2 and 4; ⟨G_r, Δ_r⟩ / n_r is 1, 10 and 100.
  const auto weights = torch::diag(torch::tensor({1., 2., 4.}, torch::kDouble)).to(device());
  const auto gradient = torch::diag(torch::tensor({1., 10., 100.}, torch::kDouble)).to(device());
  Constraints constraints("Test", {{"w", weights, torch::zeros_like(weights)}}, Norm::kMars,
                          AnchorStorage::kWeights);
  constraints.measure();
  const auto slope = [&](double radius, Rows rows) {
    return constraints.slopes({gradient}, scalars({radius}), rows).item<double>();
  };
  EXPECT_EQ(slope(2, Rows::kAll), 111);
  EXPECT_EQ(slope(2, Rows::kAtOrBeyond), 110);
  EXPECT_EQ(slope(2, Rows::kBeyond), 100);
  EXPECT_EQ(slope(4, Rows::kAtOrBeyond), 100) << "a radius clamped to n can still shrink";
  EXPECT_EQ(slope(4, Rows::kBeyond), 0);
  EXPECT_EQ(slope(5, Rows::kAtOrBeyond), 0);

  Constraints one("Test", {{"w", weights, torch::zeros_like(weights)}}, Norm::kMarsMax,
                  AnchorStorage::kWeights);
  one.measure();
  EXPECT_EQ(one.slopes({gradient}, scalars({4}), Rows::kAtOrBeyond).item<double>(), (1 + 20 + 400) / 4.);
  EXPECT_EQ(one.slopes({gradient}, scalars({4}), Rows::kBeyond).item<double>(), 0);
}

TEST_P(ConstraintsNumbers, SlopesTakeGradientsOfEveryKind) {
  const auto selected = two();
  const auto weights = torch::randn({5, 4}, torch::kDouble).to(device());
  Constraints constraints("Test", {selected[0], {"c", weights, torch::zeros_like(weights)}}, Norm::kMars,
                          AnchorStorage::kWeights);
  constraints.measure();
  const auto conv = torch::randn({4, 3, 3, 3}, torch::kDouble).to(device());
  const auto matrix = torch::randn({5, 4}, torch::kDouble).to(device());
  const auto slopes = [&](const Tensor& a, const Tensor& c) {
    return constraints.slopes({a, c}, scalars({1e-3, 1e-3}), Rows::kAll).cpu();
  };
  const auto expected = slopes(conv, matrix);
  const auto exact = (matrix * weights).sum(1) / weights.abs().sum(1);
  EXPECT_NEAR(expected[1].item<double>(), exact.sum().item<double>(), 1e-12);
  EXPECT_TRUE(torch::equal(
      slopes(conv.contiguous(at::MemoryFormat::ChannelsLast), matrix.t().contiguous().t()), expected));
  EXPECT_TRUE(torch::equal(slopes(conv, matrix.to_sparse()), expected));
  EXPECT_TRUE(torch::allclose(slopes(conv.to(torch::kFloat), matrix), expected, 1e-5));
  EXPECT_TRUE(torch::equal(slopes({}, matrix), expected * torch::tensor({0., 1.}, torch::kDouble)));
}

TEST_P(ConstraintsNumbers, AddDisplacementToGradients) {
  for (const auto dtype : kTypes) {
    const auto selected = every_layout(device(), dtype);
    Constraints constraints("Test", selected, Norm::kL2, AnchorStorage::kWeights);
    std::vector<Tensor> gradients;
    for (const auto& each : selected) {
      auto gradient = torch::randn(each.tensor.sizes(), torch::kDouble).to(device(), dtype);
      gradients.push_back(gradient.dim() == 4   ? gradient.contiguous(at::MemoryFormat::ChannelsLast)
                          : gradient.dim() == 2 ? gradient.t().contiguous().t()
                                                : gradient);
    }
    const auto before = copies(gradients);
    constraints.add_displacement(gradients, -0.7);
    for (size_t k = 0; k < selected.size(); ++k) {
      const auto& [name, weights, anchor] = selected[k];
      expect_close(gradients[k], on_host(before[k]) - 0.7 * (on_host(weights) - on_host(anchor)), dtype,
                   name);
    }
  }
}

}  // namespace
}  // namespace tpgm::testing
