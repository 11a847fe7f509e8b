// Every method against a literal transcription of its equations in plain torch operations.
#include "tests/methods/literal.h"
#include "tests/methods/training.h"
#include "tpgm/methods/ft.h"
#include "tpgm/methods/ftp.h"
#include "tpgm/methods/l2_sp.h"
#include "tpgm/methods/mars_sp.h"
#include "tpgm/methods/spd.h"
#include "tpgm/methods/tpgm.h"
#include "tpgm/methods/wise.h"

namespace tpgm::testing {
namespace {

class Equations : public Repeatable {
 protected:
  Net net = nullptr, twin = nullptr, plain = nullptr;

  void make_nets(torch::ScalarType dtype = torch::kDouble) {
    torch::manual_seed(7);
    net = make_net(device(), dtype);
    twin = twin_of(net);
    plain = twin_of(net);
  }

  // Twenty steps of both, compared after each; and the method must have mattered.
  void expect_followed(Method& method, Literal&& literal, Norm norm, const OptimizerOf& make_optimizer,
                       double tolerance = 1e-9, const std::string& exclude = "") {
    literal.attach(twin, norm, exclude);
    const auto optimizer = make_optimizer(net->parameters());
    const auto twins = make_optimizer(twin->parameters());
    const auto radius_loss = held_out_loss(net);
    constexpr int kSteps = 20;
    for (int t = 0; t < kSteps; ++t) {
      SCOPED_TRACE("step " + std::to_string(t));
      train_step(net, *optimizer, method, t, radius_loss);
      twins->zero_grad();
      (loss(twin, batch_for(twin, t)) + literal.penalty().to(device())).backward();
      literal.before_step(t);
      twins->step();
      literal.after_step(t);
      if (!same(method, literal, tolerance)) return;
    }
    method.finish(radius_loss);
    literal.finish();
    same(method, literal, tolerance);
    train_plainly(plain, kSteps, make_optimizer);
    EXPECT_GT(difference(net->named_parameters(), plain->named_parameters()), 1e-3)
        << "the same as plain fine-tuning: this case tests nothing";
  }

  bool same(const Method& method, Literal& literal, double tolerance) {
    auto apart = difference(copy(net), copy(twin));
    const auto radii = radii_of(method);
    const auto expected = radii.is_empty() ? Tensor() : literal.radii().cpu();
    for (size_t k = 0; k < radii.size(); ++k)
      apart = std::max(apart, std::abs(radii[k].value() - expected[static_cast<int64_t>(k)].item<double>()));
    EXPECT_LT(apart, tolerance);
    return apart < tolerance;
  }
};
TPGM_ON_EVERY_DEVICE(Equations);

struct TpgmCase {
  const char* name;
  TpgmOptions options;
  OptimizerOf optimizer;
};

std::vector<TpgmCase> tpgm_cases() {
  const auto options = [] { return TpgmOptions(); };
  return {
      {"defaults", options(), sgd()},
      {"l2", options().norm(Norm::kL2), adam()},
      {"mars-max", options().norm(Norm::kMarsMax), adamw()},
      {"every 3", options().every(3), sgd()},
      {"every 3, on update", options().every(3).project(ProjectWhen::kOnUpdate), adamw()},
      {"eps", options().init(RadiusInit::kEps), adam()},
      {"larger eps, l2", options().init(RadiusInit::kEps).eps(1e-3).norm(Norm::kL2), sgd()},
      {"relative", options().scale(RadiusScale::kRelative), adamw()},
      {"relative, eps, l2",
       options().scale(RadiusScale::kRelative).init(RadiusInit::kEps).norm(Norm::kL2).radius_lr(0.05), sgd()},
      {"mu", options().mu(0.1), sgd()},
      {"mu, relative, mars-max", options().mu(0.1).scale(RadiusScale::kRelative).norm(Norm::kMarsMax),
       adam()},
      {"tv", options().tv(0.5), sgd()},
      {"tv, relative, l2", options().tv(0.5).scale(RadiusScale::kRelative).norm(Norm::kL2), adam()},
      {"three radius steps", options().radius_steps(3), sgd()},
      {"three radius steps, every 3", options().radius_steps(3).every(3).norm(Norm::kL2), adamw()},
      {"end", options().every(kEnd).radius_steps(20), adamw()},
      {"end, mars, mu, tv", options().every(kEnd).radius_steps(10).norm(Norm::kMars).mu(0.01).tv(0.1), sgd()},
  };
}

const std::vector<std::vector<int64_t>> kModules = {{0, 1}, {2, 3}, {4, 5}, {6, 7}};

TEST_P(Equations, TpgmIsAutogradThroughTheProjection) {
  for (const auto& [name, options, optimizer] : tpgm_cases()) {
    SCOPED_TRACE(name);
    make_nets();
    Tpgm method(*net, options);
    const auto norm = options.norm().value_or(options.every_or_default().at_end() ? Norm::kL2 : Norm::kMars);
    expect_followed(method, LiteralTpgm(options, kModules), norm, optimizer);
  }
}

TEST_P(Equations, TpgmSmoothsWithinTheGivenGroups) {
  make_nets();
  const auto options = TpgmOptions().tv(0.5).groups({"conv.*", "h*"});
  Tpgm method(*net, options);
  expect_followed(method, LiteralTpgm(options, {{0, 1}, {4, 5, 6, 7}}), Norm::kMars, sgd());
}

TEST_P(Equations, TpgmInSinglePrecision) {
  make_nets(torch::kFloat);
  Tpgm method(*net);
  expect_followed(method, LiteralTpgm(TpgmOptions(), kModules), Norm::kMars, sgd(), 1e-4);
}

TEST_P(Equations, ChannelsLastIsTheSame) {
  for (const auto norm : {Norm::kMars, Norm::kL2}) {
    make_nets();
    for (auto* model : {&net, &plain}) {  // expect_followed() compares with a contiguous twin
      auto& weight = (*model)->conv->weight;
      weight.set_data(weight.detach().contiguous(torch::MemoryFormat::ChannelsLast));
    }
    ASSERT_FALSE(net->conv->weight.is_contiguous());
    const auto options = TpgmOptions().norm(norm);
    Tpgm method(*net, options);
    expect_followed(method, LiteralTpgm(options, kModules), norm, sgd());
    EXPECT_FALSE(net->conv->weight.is_contiguous());
  }
}

TEST_P(Equations, TpgmInHalfPrecisionStaysInsideTheRadiusToItsPrecision) {
  at::globalContext().setUserEnabledMkldnn(false);  // its AMX code is killed in some virtual machines
  for (const auto dtype : {torch::kBFloat16, torch::kHalf}) {
    for (const auto norm : {Norm::kMars, Norm::kL2}) {
      SCOPED_TRACE(torch::toString(dtype));
      make_nets(dtype);
      const auto anchor = copy(net);
      const auto optimizer = sgd()(net->parameters());
      const auto radius_loss = held_out_loss(net);
      Tpgm method(*net, TpgmOptions().norm(norm));
      const double unit = dtype == torch::kBFloat16 ? 0x1p-8 : 0x1p-11;
      for (int i = 0; i < 5; ++i) {
        train_step(net, *optimizer, method, i, radius_loss);
        method.check();
        for (const auto& item : net->named_parameters()) {
          const auto& value = item.value();
          const auto distance = distances(value, anchor[item.key()], norm).max().item<double>();
          // every element is rounded once
          const auto rounding =
              distances(value, torch::zeros_like(value), norm).max().item<double>() * unit + 1e-6;
          EXPECT_LE(distance, method.radii()[item.key()] + rounding) << item.key();
        }
      }
      EXPECT_GT(difference(copy(net), anchor), 1e-3);
    }
  }
  at::globalContext().setUserEnabledMkldnn(true);
}

TEST_P(Equations, Ftp) {
  const std::vector<std::pair<FtpOptions, OptimizerOf>> cases = {
      {FtpOptions(), sgd()},
      {FtpOptions().k(0.5), adam()},
      {FtpOptions().mask(true), adamw()},
      {FtpOptions().mask(true).k(0.5).radius_lr(0.1), sgd()},
      {FtpOptions().k(0).radius_lr(0.05), sgd()},
      {FtpOptions().norm(Norm::kL2), adamw()},
      {FtpOptions().norm(Norm::kMarsMax).mask(true), adam()},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    make_nets();
    const auto& [options, optimizer] = cases[i];
    Ftp method(*net, options);
    // Directions are read off the weights, to which a radius of 1e-8 leaves half of their bits.
    expect_followed(method, LiteralFtp(options), options.norm(), optimizer, 1e-8);
  }
}

TEST_P(Equations, FtpInSinglePrecision) {
  for (const auto& options :
       {FtpOptions(), FtpOptions().norm(Norm::kL2), FtpOptions().norm(Norm::kMarsMax)}) {
    make_nets(torch::kFloat);
    Ftp method(*net, FtpOptions(options).exclude({"conv.bias"}));  // as in Spd, below
    expect_followed(method, LiteralFtp(options), options.norm(), sgd(), 1e-3, "conv.bias");
  }
}

// Projected into a radius of 1e-8 these weights are the anchor; what they were before is kept.
TEST_P(Equations, FtpInHalfPrecisionLearnsAllTheSame) {
  at::globalContext().setUserEnabledMkldnn(false);  // its AMX code is killed in some virtual machines
  for (const auto dtype : {torch::kBFloat16, torch::kHalf}) {
    make_nets(dtype);
    const auto options = FtpOptions().exclude({"conv.bias"});
    torch::optim::SGD optimizer(net->parameters(), 0.05), twins(twin->parameters(), 0.05);
    Ftp method(*net, options), resumed(*twin, options);
    train_step(net, optimizer, method, 0, {});
    for (const auto& item : method.radii()) EXPECT_NEAR(item.value(), 1e-8, 1e-20) << item.key();
    train_step(net, optimizer, method, 1, {});
    resumed.load_state_dict(method.state_dict());
    for (const auto& item : named_tensors(*twin))
      item.value().detach().copy_(named_tensors(*net)[item.key()].detach());
    for (int i = 2; i < 4; ++i) {
      train_step(net, optimizer, method, i, {});
      train_step(twin, twins, resumed, i, {});
    }
    method.check();
    size_t grown = 0;
    for (const auto& item : method.radii()) grown += item.value() > 1e-4;
    EXPECT_GT(grown, method.radii().size() / 2);
    expect_identical(copy(twin), copy(net));
    expect_identical(resumed.state_dict(), method.state_dict());
  }
  at::globalContext().setUserEnabledMkldnn(true);
}

// Without conv.bias: its gradient is rounding noise (BatchNorm cancels it), and SPD asks for its sign.
TEST_P(Equations, Spd) {
  for (const auto& optimizer : {sgd(), adam(), adamw()}) {
    for (const auto lambda : {0.5, 1.0, 3.0}) {
      SCOPED_TRACE(lambda);
      make_nets();
      tpgm::Spd method(*net, SpdOptions().lambda(lambda).exclude({"conv.bias"}));
      expect_followed(method, LiteralSpd(lambda), Norm::kL2, optimizer, 1e-9, "conv.bias");
    }
  }
}

TEST_P(Equations, MarsSp) {
  for (const auto norm : kernels::kNorms) {
    for (const auto& optimizer : {sgd(), adamw()}) {
      make_nets();
      tpgm::MarsSp method(*net, MarsSpOptions().radius(0.1).norm(norm));
      expect_followed(method, LiteralMarsSp(0.1), norm, optimizer);
    }
  }
}

TEST_P(Equations, MarsSpWithInfiniteRadiusIsPlainFineTuning) {
  make_nets(torch::kFloat);
  tpgm::MarsSp method(*net, MarsSpOptions().radius(INFINITY));
  const auto optimizer = sgd()(net->parameters());
  for (int t = 0; t < 20; ++t) train_step(net, *optimizer, method, t, {});
  train_plainly(plain, 20);
  expect_identical(copy(net), copy(plain));
}

TEST_P(Equations, L2SpIsAutogradOfThePenalty) {
  for (const auto& optimizer : {sgd(), adam(), adamw()}) {
    make_nets();
    L2Sp method(*net, L2SpOptions().mu(0.3));
    expect_followed(method, LiteralL2Sp(0.3), Norm::kL2, optimizer);
  }
}

TEST_P(Equations, Wise) {
  make_nets();
  tpgm::Wise method(*net, WiseOptions().ratio(0.3));
  expect_followed(method, LiteralWise(0.3, copy(net)), Norm::kL2, adamw());
}

// The gradient of a radius is read off one step of plain gradient descent on it.
TEST_P(Equations, RadiusGradientsMatchFiniteDifferences) {
  for (const auto norm : kernels::kNorms) {
    make_nets();
    const double rate = 1e-5;
    Tpgm method(*net, TpgmOptions().norm(norm).radius_optimizer(
                          [rate](auto radii) { return std::make_unique<torch::optim::SGD>(radii, rate); }));
    Literal literal;
    literal.attach(net, norm, "");
    train_plainly(net, 10);
    literal.measure();
    const auto first = literal.smallest / 2;
    const auto data = batch_for(net, kHeldOut);
    method.update_radii([&] { return loss(net, data); });
    const torch::NoGradGuard no_grad;
    const auto radii = method.radii();
    for (size_t k = 0; k < radii.size(); ++k) {
      const auto index = static_cast<int64_t>(k);
      const auto loss_at = [&](double change) {
        auto gamma = first.clone();
        gamma[index] += change;
        return functional_loss(net, literal.all_projected(gamma), data).item<double>();
      };
      const auto gamma = first[index].item<double>();
      const auto h = 1e-4 * gamma;
      const auto radius_gradient = (gamma - radii[k].value()) / rate;
      EXPECT_NEAR(radius_gradient, (loss_at(h) - loss_at(-h)) / (2 * h),
                  1e-5 * std::max(1.0, std::abs(radius_gradient)))
          << radii[k].key();
      EXPECT_GT(std::abs(radius_gradient), 1e-4) << radii[k].key();
    }
  }
}

}  // namespace
}  // namespace tpgm::testing
