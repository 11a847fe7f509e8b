// Distances, projections and radius_gradients of real tensors, against ATen, autograd and finite differences.
#include "tpgm/core/displacements.h"

#include "tests/core/displacements.h"

namespace tpgm::testing {
namespace {

class DisplacementsNumbers : public DisplacementsTest {};
TPGM_ON_EVERY_DEVICE(DisplacementsNumbers);

TEST_P(DisplacementsNumbers, MeasureEveryLayoutTypeAndAnchorLikeAten) {
  for (const auto dtype : kTypes) {
    const auto selected = every_layout(device(), dtype);
    for (const auto norm : kNorms) {
      for (const auto storage : kStorages) {
        Displacements displacements("Test", selected, norm, storage);
        displacements.measure();
        for (int64_t k = 0; k < displacements.size(); ++k) {
          const auto& [name, weights, anchor] = selected[k];
          const auto rows = distances(weights, anchor, norm == Norm::kMarsMax ? Norm::kMars : norm);
          EXPECT_NEAR(displacements.largest()[k].item<double>(), rows.max().item<double>(),
                      1e-6 * rows.max().item<double>())
              << name;
          EXPECT_NEAR(displacements.smallest()[k].item<double>(), rows.min().item<double>(),
                      1e-6 * rows.max().item<double>())
              << name;
        }
      }
    }
  }
}

TEST_P(DisplacementsNumbers, LargeHalfPrecisionTensorsKeepTheirPrecision) {
  for (const auto dtype : {torch::kBFloat16, torch::kHalf}) {
    const auto anchor = torch::randn({10, 1000000}).to(device(), dtype);
    const auto weights = anchor + (0.01 * torch::randn({10, 1000000})).to(device(), dtype);
    for (const auto norm : kNorms) {
      Displacements displacements("Test", {{"w", weights, anchor}}, norm, AnchorStorage::kWeights);
      displacements.measure();
      const auto expected = distances(weights, anchor, norm).max().item<double>();
      EXPECT_NEAR(displacements.largest().item<double>(), expected, 1e-6 * expected);
    }
  }
}

TEST_P(DisplacementsNumbers, ProjectLikeAtenAndLeaveRowsInsideUntouched) {
  for (const auto dtype : kTypes) {
    for (const auto norm : kNorms) {
      for (const auto storage : kStorages) {
        const auto selected = every_layout(device(), dtype);
        Displacements displacements("Test", selected, norm, storage);
        const auto before = copies(displacements.tensors());
        displacements.measure();
        displacements.project(displacements.largest());  // γ = n
        expect_equal(displacements.tensors(), before);

        const auto radii = inner(displacements);
        displacements.project(radii);
        for (int64_t k = 0; k < displacements.size(); ++k) {
          const auto& [name, weights, anchor] = selected[k];
          const auto radius = radii[k].cpu();
          expect_close(weights, literal_projection(before[k], anchor, radius, norm), dtype, name);
          const auto inside = distances(before[k], anchor, norm) < radius * (1 - 1e-6);
          const auto as_before = in_rows(weights, norm) == in_rows(before[k], norm);
          EXPECT_TRUE(as_before.logical_or(inside.logical_not().reshape({-1, 1})).all().item<bool>()) << name;
        }
        EXPECT_TRUE(torch::equal(selected.back().tensor, selected.back().pretrained)) << "n = 0";

        displacements.measure();
        if (dtype == torch::kDouble) {
          EXPECT_TRUE((displacements.largest() <= radii * (1 + 1e-9)).all().item<bool>())
              << "inside the ball";
        }
      }
    }
  }
}

TEST_P(DisplacementsNumbers, MeasureAndProjectLikeOneAfterTheOther) {
  for (const auto dtype : kTypes) {
    for (const auto norm : kNorms) {
      for (const auto storage : kStorages) {
        const auto selected = every_layout(device(), dtype);
        Displacements displacements("Test", selected, norm, storage);
        const auto before = copies(displacements.tensors());
        displacements.measure();
        const auto radii = inner(displacements), measured = displacements.distances().clone();
        displacements.project(radii);
        const auto projected = copies(displacements.tensors());

        for (size_t k = 0; k < before.size(); ++k) displacements.tensors()[k].detach().copy_(before[k]);
        auto elsewhere = displacements.room_for_copies({});
        displacements.load_distances(torch::full_like(measured, NAN));
        displacements.measure_and_project_into(elsewhere, radii);
        expect_equal(displacements.tensors(), before);
        expect_equal(elsewhere, projected);
        EXPECT_TRUE(torch::equal(displacements.distances(), measured));

        displacements.load_distances(torch::full_like(measured, NAN));
        displacements.measure_and_project(radii);
        expect_equal(displacements.tensors(), projected);
        EXPECT_TRUE(torch::equal(displacements.distances(), measured));
      }
    }
  }
}

// A row's direction from its anchor can be read off it after a projection into nearly nothing.
TEST_P(DisplacementsNumbers, KeepDirections) {
  for (const auto norm : kNorms) {
    for (const auto dtype : {torch::kFloat, torch::kDouble}) {
      const auto anchor = torch::randn({20, 4000}, torch::kDouble).to(device(), dtype);
      const auto weights = anchor + 0.01 * torch::randn_like(anchor);
      const auto before = in_rows(weights - anchor, norm);
      Displacements displacements("Test", {{"w", weights, anchor}}, norm, AnchorStorage::kWeights);
      ASSERT_TRUE(displacements.keep_directions());
      displacements.measure_and_project(torch::full({1}, 1e-30, displacements.scalar_options()));
      const auto after = in_rows(weights, norm) - in_rows(anchor, norm);
      EXPECT_GT(torch::cosine_similarity(before, after, 1, 0).min().item<double>(), 0.999);
      const auto nearest = (dtype == torch::kFloat ? 0x1p-16 : 0x1p-45) *
                           distances(anchor, torch::zeros_like(anchor), norm).max().item<double>();
      EXPECT_LT(distances(weights, anchor, norm).max().item<double>(), 1.01 * nearest);
    }
  }
  for (const auto dtype : {torch::kHalf, torch::kBFloat16}) {
    const auto selected = every_layout(device(), dtype);
    EXPECT_FALSE(Displacements("Test", selected, Norm::kMars, AnchorStorage::kWeights).keep_directions());
  }
  Displacements every("Test", every_layout(device(), torch::kFloat), Norm::kMars, AnchorStorage::kHost);
  EXPECT_TRUE(every.keep_directions());
}

TEST_P(DisplacementsNumbers, MeasureRadiusGradientsOfTheTensorsAsTheyAre) {
  for (const auto norm : kNorms) {
    const auto selected = every_layout(device(), torch::kDouble);
    Displacements displacements("Test", selected, norm, AnchorStorage::kWeights);
    displacements.measure();
    const auto radii = inner(displacements), measured = displacements.distances().clone();
    std::vector<Tensor> gradients;
    for (const auto& tensor : displacements.tensors()) gradients.push_back(torch::randn_like(tensor));
    const auto expected = displacements.radius_gradients(gradients, radii, Rows::kBeyond);
    const auto largest = displacements.largest().clone();
    // The directions stay, and so do the radius gradients.
    displacements.interpolate(torch::full_like(radii, 0.25));
    const auto now = displacements.measure_radius_gradients(gradients, radii, Rows::kBeyond);
    EXPECT_TRUE(torch::allclose(now.radius_gradients, expected, 1e-9));
    EXPECT_TRUE(torch::allclose(now.largest, 0.25 * largest, 1e-9));
    EXPECT_TRUE(torch::equal(displacements.distances(), measured));
  }
}

TEST_P(DisplacementsNumbers, InterpolateWithAnyRatio) {
  for (const auto dtype : kTypes) {
    for (const double ratio : {-0.5, 0.0, 0.3, 1.0, 1.7}) {
      const auto selected = every_layout(device(), dtype);
      Displacements displacements("Test", selected, Norm::kMars, AnchorStorage::kWeights);
      const auto before = copies(displacements.tensors());
      displacements.interpolate(torch::full({displacements.size()}, ratio, displacements.scalar_options()));
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

TEST_P(DisplacementsNumbers, RadiusGradientsAreTheDerivativeOfALossThroughTheProjection) {
  for (const auto norm : kNorms) {
    const auto selected = every_layout(device(), torch::kDouble);
    Displacements displacements("Test", selected, norm, AnchorStorage::kWeights);
    HeldCopy held(displacements);
    held.hold();
    const auto unprojected = copies(displacements.tensors());
    const auto radii = inner(displacements);
    const auto losses = [&](const Tensor& at) {
      displacements.project(at);
      std::vector<Tensor> result;
      for (size_t k = 0; k < selected.size(); ++k) result.push_back(loss_of(displacements.tensors()[k], k));
      return result;
    };
    std::vector<Tensor> gradients;
    const auto here = losses(radii);
    for (size_t k = 0; k < selected.size(); ++k)
      gradients.push_back(torch::autograd::grad({here[k]}, {displacements.tensors()[k]})[0]);
    const auto radius_gradients = displacements.radius_gradients(gradients, radii, Rows::kAtOrBeyond).cpu();
    const auto step = 1e-5 * radii + 1e-9;
    const auto above = losses(radii + step), below = losses(radii - step);
    for (size_t k = 0; k < selected.size(); ++k) {
      const auto& [name, weights, anchor] = selected[k];
      const auto radius = radii[k].detach().cpu().requires_grad_(true);
      const auto projected = literal_projection(unprojected[k], anchor, radius, norm);
      const auto exact = torch::autograd::grad({loss_of(projected, k)}, {radius})[0].item<double>();
      const auto radius_gradient = radius_gradients[k].item<double>();
      EXPECT_NEAR(radius_gradient, exact, 1e-10 * (1 + std::abs(exact))) << name;
      const auto difference = ((above[k] - below[k]) / (2 * step[k])).item<double>();
      EXPECT_NEAR(radius_gradient, difference, 1e-6 * (1 + std::abs(radius_gradient))) << name;
      EXPECT_EQ(radius_gradient == 0, name == "unmoved" || weights.numel() == 0) << name;
    }
  }
}

TEST_P(DisplacementsNumbers, RadiusGradientsCountTheRowsThatAreAskedFor) {
  // Rows at distances 1, 2 and 4; ⟨G_r, Δ_r⟩ / n_r is 1, 10 and 100.
  const auto weights = torch::diag(torch::tensor({1., 2., 4.}, torch::kDouble)).to(device());
  const auto gradient = torch::diag(torch::tensor({1., 10., 100.}, torch::kDouble)).to(device());
  Displacements displacements("Test", {{"w", weights, torch::zeros_like(weights)}}, Norm::kMars,
                              AnchorStorage::kWeights);
  displacements.measure();
  const auto radius_gradient = [&](double radius, Rows rows) {
    return displacements.radius_gradients({gradient}, scalars({radius}), rows).item<double>();
  };
  EXPECT_EQ(radius_gradient(2, Rows::kAll), 111);
  EXPECT_EQ(radius_gradient(2, Rows::kAtOrBeyond), 110);
  EXPECT_EQ(radius_gradient(2, Rows::kBeyond), 100);
  EXPECT_EQ(radius_gradient(4, Rows::kAtOrBeyond), 100) << "a radius clamped to n can still shrink";
  EXPECT_EQ(radius_gradient(4, Rows::kBeyond), 0);
  EXPECT_EQ(radius_gradient(5, Rows::kAtOrBeyond), 0);

  Displacements one("Test", {{"w", weights, torch::zeros_like(weights)}}, Norm::kMarsMax,
                    AnchorStorage::kWeights);
  one.measure();
  EXPECT_EQ(one.radius_gradients({gradient}, scalars({4}), Rows::kAtOrBeyond).item<double>(),
            (1 + 20 + 400) / 4.);
  EXPECT_EQ(one.radius_gradients({gradient}, scalars({4}), Rows::kBeyond).item<double>(), 0);
}

TEST_P(DisplacementsNumbers, RadiusGradientsTakeGradientsOfEveryKind) {
  const auto selected = two();
  const auto weights = torch::randn({5, 4}, torch::kDouble).to(device());
  Displacements displacements("Test", {selected[0], {"c", weights, torch::zeros_like(weights)}}, Norm::kMars,
                              AnchorStorage::kWeights);
  displacements.measure();
  const auto conv = torch::randn({4, 3, 3, 3}, torch::kDouble).to(device());
  const auto matrix = torch::randn({5, 4}, torch::kDouble).to(device());
  const auto radius_gradients = [&](const Tensor& a, const Tensor& c) {
    return displacements.radius_gradients({a, c}, scalars({1e-3, 1e-3}), Rows::kAll).cpu();
  };
  const auto expected = radius_gradients(conv, matrix);
  const auto exact = (matrix * weights).sum(1) / weights.abs().sum(1);
  EXPECT_NEAR(expected[1].item<double>(), exact.sum().item<double>(), 1e-12);
  EXPECT_TRUE(torch::equal(
      radius_gradients(conv.contiguous(at::MemoryFormat::ChannelsLast), matrix.t().contiguous().t()),
      expected));
  EXPECT_TRUE(torch::equal(radius_gradients(conv, matrix.to_sparse()), expected));
  EXPECT_TRUE(torch::allclose(radius_gradients(conv.to(torch::kFloat), matrix), expected, 1e-5));
  EXPECT_TRUE(torch::equal(radius_gradients({}, matrix), expected * torch::tensor({0., 1.}, torch::kDouble)));
}

TEST_P(DisplacementsNumbers, AddDisplacementToGradients) {
  for (const auto dtype : kTypes) {
    const auto selected = every_layout(device(), dtype);
    Displacements displacements("Test", selected, Norm::kL2, AnchorStorage::kWeights);
    std::vector<Tensor> gradients;
    for (const auto& each : selected) {
      auto gradient = torch::randn(each.tensor.sizes(), torch::kDouble).to(device(), dtype);
      gradients.push_back(gradient.dim() == 4   ? gradient.contiguous(at::MemoryFormat::ChannelsLast)
                          : gradient.dim() == 2 ? gradient.t().contiguous().t()
                                                : gradient);
    }
    const auto before = copies(gradients);
    displacements.add_displacement(gradients, -0.7);
    for (size_t k = 0; k < selected.size(); ++k) {
      const auto& [name, weights, anchor] = selected[k];
      expect_close(gradients[k], on_host(before[k]) - 0.7 * (on_host(weights) - on_host(anchor)), dtype,
                   name);
    }
  }
}

}  // namespace
}  // namespace tpgm::testing
