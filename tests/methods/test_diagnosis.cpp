// What methods find out about their own strength, and how far the weights are from the anchor.
#include <cmath>

#include "tests/methods/training.h"
#include "tpgm/methods/l2_sp.h"
#include "tpgm/methods/mars_sp.h"
#include "tpgm/methods/spd.h"
#include "tpgm/methods/tpgm.h"

namespace tpgm::testing {
namespace {

using Finding = HasDiagnosis::Finding;

class Diagnoses : public Repeatable {
 protected:
  // The finding after some steps, if any.
  std::optional<Finding> finding(Method& method, Net& net, const Closure& radius_loss = {}) {
    EXPECT_EQ(diagnosis_of(method), std::nullopt) << "before the first step";
    const auto optimizer = sgd()(net->parameters());
    for (int64_t i = 0; i < 20; ++i) train_step(net, *optimizer, method, i, radius_loss);
    const auto found = diagnosis_of(method);
    EXPECT_TRUE(!found || (!found->numbers.empty() && !found->remedy.empty()));
    return found ? std::optional(found->finding) : std::nullopt;
  }
  template <class M>
  std::optional<Finding> finding_of(typename M::Options options) {
    auto net = make_net(device());
    M method(*net, options);
    return finding(method, net);
  }
};
TPGM_ON_EVERY_DEVICE(Diagnoses);

TEST_P(Diagnoses, RadiiThatHoldTheModel) {
  auto net = make_net(device());
  const auto anchor = copy(net);
  // A loss that is least at the anchor, and the training loss, which asks for longer ways.
  const Closure holds = [&] {
    auto sum = torch::zeros({}, device());
    for (const auto& item : net->named_parameters())
      sum = sum + (item.value() - anchor[item.key()]).square().sum();
    return sum;
  };
  {
    Tpgm method(*net, TpgmOptions().radius_lr(0.1));
    EXPECT_EQ(finding(method, net, holds), Finding::kHeld);
  }
  for (const auto& options : {TpgmOptions().every(kEnd), TpgmOptions().radius_lr(0.1)}) {
    assign(net, anchor);
    Tpgm method(*net, options);
    const Closure trains = [&, i = int64_t{0}]() mutable { return loss(net, batch_for(net, i++)); };
    EXPECT_EQ(finding(method, net, trains), std::nullopt);
  }
}

TEST_P(Diagnoses, StrengthsThatChangeNothing) {
  EXPECT_EQ(finding_of<MarsSp>(MarsSpOptions().radius(1e3)), Finding::kNoEffect);
  EXPECT_EQ(finding_of<MarsSp>(MarsSpOptions().radius(1e-3)), std::nullopt);
  EXPECT_EQ(finding_of<L2Sp>(L2SpOptions().mu(1e-6)), Finding::kNoEffect);
  EXPECT_EQ(finding_of<L2Sp>(L2SpOptions().mu(1)), std::nullopt);
  EXPECT_EQ(finding_of<Spd>(SpdOptions().lambda(1e-4)), Finding::kNoEffect);
  EXPECT_EQ(finding_of<Spd>(SpdOptions().lambda(10)), std::nullopt);
}

// A run may be resumed between its last step and the diagnosis.
TEST_P(Diagnoses, SurviveAResume) {
  const auto survives = [&](const auto& make) {
    auto net = make_net(device());
    const auto anchor = copy(net);
    auto method = make(net, anchor);
    finding(*method, net);
    const auto state = method->state_dict();
    const auto resumed = make(net, anchor);
    resumed->load_state_dict(state);
    const auto one = diagnosis_of(*method), other = diagnosis_of(*resumed);
    ASSERT_TRUE(one && other);
    EXPECT_EQ(one->numbers, other->numbers);
  };
  survives([](Net& net, const NamedTensors& anchor) {
    return std::make_unique<MarsSp>(*net, anchor, MarsSpOptions().radius(1e3));
  });
  survives([](Net& net, const NamedTensors& anchor) {
    return std::make_unique<L2Sp>(*net, anchor, L2SpOptions().mu(1e-6));
  });
  survives([](Net& net, const NamedTensors& anchor) {
    return std::make_unique<Spd>(*net, anchor, SpdOptions().lambda(1e-4));
  });
}

TEST_P(Diagnoses, DistanceIsThatOfOneLongVector) {
  auto net = make_net(device());
  const auto anchor = copy(net);
  MarsSp method(*net, MarsSpOptions().radius(1e3).exclude({"norm.*"}));
  EXPECT_EQ(method.relative_distance(), 0);
  train_plainly(net, 5);
  double moved = 0, all = 0;
  for (const auto& item : net->named_parameters()) {
    if (item.key().starts_with("norm.")) continue;
    const auto before = anchor[item.key()].to(torch::kDouble).cpu();
    const auto now = item.value().detach().to(torch::kDouble).cpu();
    moved += std::pow((now - before).norm().item<double>(), 2);
    all += std::pow(before.norm().item<double>(), 2);
  }
  EXPECT_NEAR(method.relative_distance(), std::sqrt(moved / all), 1e-9);
}

}  // namespace
}  // namespace tpgm::testing
