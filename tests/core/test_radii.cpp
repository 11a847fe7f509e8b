// The radii: how they start, where they are clamped, and what moves them, against torch::optim and autograd.
#include "tpgm/core/radii.h"

#include "tests/support.h"

namespace tpgm {
namespace {

using testing::error_of;
using torch::Tensor;

OptimizerFactory sgd(double lr, double momentum = 0) {
  return [=](std::vector<Tensor> tensors) {
    return std::make_unique<torch::optim::SGD>(std::move(tensors),
                                               torch::optim::SGDOptions(lr).momentum(momentum));
  };
}

class RadiiTest : public testing::OnDevice {
 protected:
  at::TensorOptions options() const { return torch::TensorOptions(torch::kDouble).device(device()); }
  Tensor vector(const std::vector<double>& values) const { return torch::tensor(values, options()); }
  Radii make(RadiiOptions radii_options, size_t count) const {
    return Radii(std::move(radii_options), std::vector<std::string>(count, ""), options());
  }
  void expect_values(const Tensor& actual, const std::vector<double>& expected,
                     double tolerance = 1e-15) const {
    EXPECT_TRUE(torch::allclose(actual, vector(expected), tolerance, 0)) << actual;
  }
};
TPGM_ON_EVERY_DEVICE(RadiiTest);

TEST_P(RadiiTest, StartAtHalfTheSmallestDistanceOrAtEps) {
  const auto smallest = vector({2, 0.5, 3}), largest = vector({2, 4, 30});
  for (const auto scale : {RadiusScale::kAbsolute, RadiusScale::kRelative}) {
    auto half = make(RadiiOptions().scale(scale), 3);
    EXPECT_FALSE(half.initialised());
    EXPECT_TRUE(half.must_wait());
    expect_values(half.prepare(smallest, largest), {1, 0.25, 1.5});
    EXPECT_TRUE(half.initialised());
    EXPECT_FALSE(half.must_wait());
    expect_values(half.values(), {1, 0.25, 1.5});
    auto eps = make(RadiiOptions().scale(scale).init(RadiusInit::kEps).eps(1e-3), 3);
    expect_values(eps.prepare(smallest, largest), {1e-3, 1e-3, 1e-3});
    auto lowest = make(RadiiOptions().scale(scale).init(RadiusInit::kEps), 3);
    expect_values(lowest.prepare(smallest, largest), {1e-8, 1e-8, 1e-8});
  }
}

TEST_P(RadiiTest, AbsoluteRadiiStayAndRelativeOnesFollowTheDistance) {
  auto absolute = make(RadiiOptions(), 1), relative = make(RadiiOptions().scale(RadiusScale::kRelative), 1);
  for (auto* radii : {&absolute, &relative}) radii->prepare(vector({2}), vector({2}));
  expect_values(absolute.prepare(vector({10}), vector({10})), {1});
  expect_values(relative.prepare(vector({10}), vector({10})), {5});
}

TEST_P(RadiiTest, AreClampedBetweenLowestAndTheLargestDistance) {
  const auto smallest = vector({2, 2, 0, 4e-9, 0}), largest = vector({3, 3, 0, 4e-9, 5});
  for (const auto scale : {RadiusScale::kAbsolute, RadiusScale::kRelative}) {
    auto radii = make(RadiiOptions().scale(scale).lr(100), 5);
    // n = 0, n below 1e-8, and one row that has not moved: the lower limit holds
    expect_values(radii.prepare(smallest, largest), {1, 1, 1e-8, 1e-8, 1e-8});
    radii.update(vector({1, -1, 1, 1, -1}), largest);
    expect_values(radii.prepare(smallest, largest), {1e-8, 3, 1e-8, 1e-8, 5});
    // A smaller distance at the next call takes the radius with it.
    expect_values(radii.prepare(smallest, largest / 2), {1e-8, 1.5, 1e-8, 1e-8, 2.5});
  }
}

TEST_P(RadiiTest, MoveAsTorchsAdamMovesThem) {
  const auto largest = vector({0.3, 5, 40, 1e3, 0.02, 7});
  const auto smallest = largest / 2;
  for (const auto scale : {RadiusScale::kAbsolute, RadiusScale::kRelative}) {
    const bool relative = scale == RadiusScale::kRelative;
    auto radii = make(RadiiOptions().scale(scale), 6);
    radii.prepare(smallest, largest);
    const auto unit = relative ? largest : torch::ones_like(largest);
    auto literal = (smallest / 2 / unit).clone().requires_grad_(true);
    torch::optim::Adam adam({literal}, torch::optim::AdamOptions(1e-2));
    for (int step = 0; step < 50; ++step) {
      const auto gradients = torch::randn({6}, torch::kDouble).to(device()) + vector({0, 0, 0, 0, -5, 2});
      radii.update(gradients, largest);
      radii.prepare(smallest, largest);
      literal.mutable_grad() = gradients * unit;
      adam.step();
      const torch::NoGradGuard no_grad;
      literal.copy_(torch::minimum(literal, largest / unit).clamp_min(0));
      literal.copy_(torch::maximum(literal, 1e-8 / unit));
      ASSERT_TRUE(torch::allclose(radii.values(), literal * unit, 1e-12, 1e-20)) << "step " << step;
    }
    if (!relative) {
      EXPECT_EQ(radii.values()[4].item<double>(), 0.02) << "was meant to run into its limit";
    }
  }
}

// The penalty of method.md, literally.
Tensor penalty(const Tensor& radii, const Tensor& largest, const std::vector<std::string>& groups, double mu,
               double tv) {
  auto total = mu * radii.square().sum();
  for (size_t i = 0; i < groups.size(); ++i) {
    for (size_t j = i; j-- > 0;) {
      if (groups[j] == groups[i]) {
        total = total + tv * (radii[i] / largest[i] - radii[j] / largest[j]).abs();
        break;
      }
    }
  }
  return total;
}

TEST_P(RadiiTest, PenaltiesHaveTheGradientsThatAutogradGivesThem) {
  const std::vector<std::string> groups = {"a", "a", "b", "a", "b", "c", "b"};
  const auto largest = vector({1, 2, 3, 0.5, 4, 5, 0.7}), smallest = vector({0.9, 0.4, 2, 0.1, 3, 5, 0.6});
  const auto gradients = vector({0.1, -0.2, 0.3, 0, 0.5, -0.6, 0.7});
  constexpr double kLr = 1e-3;
  for (const auto scale : {RadiusScale::kAbsolute, RadiusScale::kRelative}) {
    for (const auto& [mu, tv] : {std::pair{0.3, 0.}, std::pair{0., 0.2}, std::pair{0.3, 0.2}}) {
      Radii radii(RadiiOptions().mu(mu).tv(tv).scale(scale).optimizer(sgd(kLr)), groups, options());
      const auto before = radii.prepare(smallest, largest).clone().requires_grad_(true);
      const auto by_radius =
          torch::autograd::grad({penalty(before, largest, groups, mu, tv)}, {before})[0] + gradients;
      radii.update(gradients, largest);
      // Along α = γ/n the gradient is n times as large, and so is γ's step for a step of α.
      const auto expected = scale == RadiusScale::kRelative ? by_radius * largest * largest : by_radius;
      EXPECT_TRUE(torch::allclose((before - radii.prepare(smallest, largest)) / kLr, expected, 1e-9, 1e-11));
    }
  }
}

TEST_P(RadiiTest, TensorsThatHaveNotMovedGetNoGradient) {
  const auto largest = vector({2, 0, 2}), smallest = vector({2, 0, 1});
  for (const auto scale : {RadiusScale::kAbsolute, RadiusScale::kRelative}) {
    auto radii = make(RadiiOptions().mu(1).tv(1).scale(scale), 3);
    radii.prepare(smallest, largest);
    radii.update(vector({1, 1, 1}), largest);
    const auto moments = radii.state_dict()["moments"];
    EXPECT_EQ(moments[0][1].item<double>(), 0);
    EXPECT_EQ(moments[1][1].item<double>(), 0);
    EXPECT_NE(moments[0][0].item<double>(), 0);
    const auto values = radii.prepare(smallest, largest).cpu();
    EXPECT_EQ(values[1].item<double>(), 1e-8);
    EXPECT_TRUE(values.isfinite().all().item<bool>());
  }
}

TEST_P(RadiiTest, AnyOptimizerCanMoveThem) {
  auto radii = make(RadiiOptions().optimizer(sgd(0.1)), 2);
  EXPECT_TRUE(radii.must_wait());
  const auto largest = vector({4, 4});
  const auto first = radii.prepare(largest, largest);
  EXPECT_TRUE(radii.must_wait());
  radii.update(vector({1, -2}), largest);
  expect_values(first, {2, 2});  // values that were given out stay as they are
  expect_values(radii.prepare(largest, largest), {1.9, 2.2});
  auto nothing = make(RadiiOptions().optimizer([](auto) { return nullptr; }), 1);
  EXPECT_NE(error_of([&] { nothing.prepare(vector({1}), vector({1})); }).find("returned nothing"),
            std::string::npos);
}

// Two radii objects that have gone through the same three updates, with a memory (Adam's, or momentum).
class RadiiStateTest : public RadiiTest {
 protected:
  Radii trained(bool built_in, const Tensor& report = {}) {
    Radii radii(built_in ? RadiiOptions() : RadiiOptions().optimizer(sgd(0.01, 0.9)), {"", ""}, options(),
                report);
    radii.prepare(largest(), largest());
    for (int i = 0; i < 3; ++i) step(radii, 0.5 + i);
    return radii;
  }
  void step(Radii& radii, double gradient) {
    radii.update(vector({gradient, -2 * gradient}), largest());
    radii.prepare(largest(), largest());
  }
  Tensor largest() const { return vector({4, 6}); }
};
TPGM_ON_EVERY_DEVICE(RadiiStateTest);

TEST_P(RadiiStateTest, GoBackToWhatWasRemembered) {
  for (const bool built_in : {true, false}) {
    auto radii = trained(built_in), twin = trained(built_in);
    radii.remember();
    radii.go_back();  // before anything was moved
    EXPECT_TRUE(torch::equal(radii.values(), twin.values()));
    radii.remember();
    step(radii, 100);
    step(radii, 100);
    EXPECT_FALSE(torch::equal(radii.values(), twin.values()));
    radii.go_back();
    EXPECT_TRUE(torch::equal(radii.values(), twin.values()));
    step(radii, 1), step(twin, 1);
    EXPECT_TRUE(torch::equal(radii.values(), twin.values())) << "the optimizer's memory goes back, too";
  }
  for (const bool built_in : {true, false}) {
    auto fresh = make(built_in ? RadiiOptions() : RadiiOptions().optimizer(sgd(0.1)), 2);
    fresh.remember();
    fresh.prepare(largest(), largest());
    step(fresh, 1);
    fresh.go_back();
    EXPECT_FALSE(fresh.initialised());
    expect_values(fresh.prepare(vector({1, 1}), largest()), {0.5, 0.5});
  }
}

TEST_P(RadiiStateTest, GoBackByThemselvesOnTheDevice) {
  const auto same = [](const Radii& a, const Radii& b) {
    const auto first = a.state_dict(), second = b.state_dict();
    return std::all_of(first.begin(), first.end(),
                       [&](const auto& item) { return torch::equal(item.value(), second[item.key()]); });
  };
  // When something turns out not to be finite: before the first step, between the two, or never.
  for (const int bad : {0, 1, 2}) {
    auto report = torch::full({1}, kernels::kAllFinite, torch::TensorOptions(torch::kInt).device(device()));
    auto radii = trained(true, report), twin = trained(true);
    for (int i = 0; i < 2; ++i) {
      if (i == 0) radii.remember();
      if (i == bad) report.fill_(3);
      step(radii, i >= bad ? NAN : 1 + i);
      if (bad == 2) step(twin, 1 + i);
    }
    EXPECT_TRUE(same(radii, twin)) << bad;
    report.fill_(kernels::kAllFinite);
    radii.remember();
    step(radii, 2), step(twin, 2);
    EXPECT_TRUE(same(radii, twin)) << bad;
  }
}

// A captured step finds them by their address.
TEST_P(RadiiStateTest, StayInTheirMemory) {
  for (const auto scale : {RadiusScale::kAbsolute, RadiusScale::kRelative}) {
    auto radii = make(RadiiOptions().scale(scale), 2);
    const auto* place = radii.values().const_data_ptr();
    const auto expect_there = [&](const char* what) {
      EXPECT_EQ(radii.values().const_data_ptr(), place) << what;
    };
    const auto nothing = radii.state_dict();
    radii.prepare(largest(), largest());
    expect_there("prepare");
    const auto state = radii.state_dict();
    radii.remember();
    step(radii, 1);
    expect_there("update");
    const auto after = radii.values().clone();
    radii.go_back();
    EXPECT_FALSE(torch::equal(radii.values(), after));
    expect_there("go_back");
    step(radii, 1);
    EXPECT_TRUE(torch::equal(radii.values(), after));
    for (const auto& each : {state, nothing, state}) {
      radii.load_state_dict(each);
      expect_there("load_state_dict");
    }
    step(radii, 1);
    EXPECT_TRUE(torch::equal(radii.values(), after));
  }
}

TEST_P(RadiiStateTest, ALoadedStateContinuesBitForBit) {
  for (const bool built_in : {true, false}) {
    auto radii = trained(built_in);
    const auto state = radii.state_dict();
    auto loaded = make(built_in ? RadiiOptions() : RadiiOptions().optimizer(sgd(0.01, 0.9)), 2);
    loaded.load_state_dict(state);
    EXPECT_TRUE(torch::equal(loaded.values(), radii.values()));
    step(radii, 1);  // must not reach into the state
    step(loaded, 1);
    EXPECT_TRUE(torch::equal(loaded.values(), radii.values()));
    auto late = trained(built_in);
    late.load_state_dict(state);
    step(late, 1);
    EXPECT_TRUE(torch::equal(late.values(), radii.values())) << "over a state of its own";
    late.load_state_dict(make(RadiiOptions(), 2).state_dict());
    EXPECT_FALSE(late.initialised());
  }
}

TEST_P(RadiiStateTest, AStateOfOtherRadiiIsRefusedAndChangesNothing) {
  auto three = make(RadiiOptions(), 3);
  three.prepare(vector({1, 2, 3}), vector({1, 2, 3}));
  for (const bool built_in : {true, false}) {
    auto radii = trained(built_in), twin = trained(built_in);
    const std::pair<NamedTensors, std::string> cases[] = {
        {three.state_dict(), "has 3 radii"}, {trained(!built_in).state_dict(), "radius optimizer"}};
    for (const auto& [state, message] : cases) {
      const auto error = error_of([&, &state = state] { radii.load_state_dict(state); });
      EXPECT_NE(error.find(message), std::string::npos) << error;
      EXPECT_TRUE(torch::equal(radii.state_dict()["learned"], twin.state_dict()["learned"])) << error;
      EXPECT_TRUE(torch::equal(radii.values(), twin.values())) << error;
    }
    step(radii, 1), step(twin, 1);
    EXPECT_TRUE(torch::equal(radii.values(), twin.values()));
  }
}

TEST_P(RadiiStateTest, ADamagedOptimizerStateChangesNothing) {
  auto radii = trained(false), twin = trained(false);
  auto state = twin.state_dict();
  state["learned"] = state["learned"] + 1;
  state["optimizer"] = torch::zeros({100}, torch::kByte);
  error_of([&] { radii.load_state_dict(state); });
  EXPECT_TRUE(torch::equal(radii.state_dict()["learned"], twin.state_dict()["learned"]));
  step(radii, 1), step(twin, 1);
  EXPECT_TRUE(torch::equal(radii.values(), twin.values()));
}

TEST(Radii, RefuseOptionsThatMakeNoSense) {
  const auto error = [](RadiiOptions options) {
    return error_of([&] { Radii(options, {"a"}, torch::TensorOptions(torch::kDouble)); });
  };
  for (const double bad : {0., -1., static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    EXPECT_NE(error(RadiiOptions().lr(bad)).find("radius_lr must be positive"), std::string::npos);
    EXPECT_NE(error(RadiiOptions().eps(bad)).find("eps must be positive"), std::string::npos);
  }
  for (const double bad : {-1., static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    EXPECT_NE(error(RadiiOptions().mu(bad)).find("mu must be at least 0"), std::string::npos);
    EXPECT_NE(error(RadiiOptions().tv(bad)).find("tv must be at least 0"), std::string::npos);
  }
}

}  // namespace
}  // namespace tpgm
