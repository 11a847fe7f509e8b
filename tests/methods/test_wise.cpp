// WISE: one ratio over parameters and buffers, once.
#include "tpgm/methods/wise.h"

#include "tests/methods/training.h"

namespace tpgm::testing {
namespace {

class WiseTest : public Repeatable {
 protected:
  void SetUp() override {
    Repeatable::SetUp();
    if (IsSkipped()) return;
    net = make_net(device());
    train_plainly(net, 2);  // so that the anchor's BatchNorm statistics are not the initial ones
    anchor = copy(net);
  }
  // Trains, then interpolates with what `options` say.
  void run(const WiseOptions& options) {
    Wise wise(*net, options);
    train_plainly(net, 5);
    tuned = copy(net);
    wise.finish({});
  }
  torch::Tensor expected(const std::string& name, double ratio) const {
    return anchor[name] + ratio * (tuned[name] - anchor[name]);
  }

  Net net = nullptr;
  NamedTensors anchor, tuned;
};
TPGM_ON_EVERY_DEVICE(WiseTest);

TEST_P(WiseTest, InterpolatesParametersAndFloatingBuffers) {
  for (const auto ratio : {0.5, 0.3, 1.5, -0.2}) {
    assign(net, anchor);
    run(WiseOptions().ratio(ratio));
    for (const auto& item : copy(net)) {
      const auto& name = item.key();
      if (item.value().is_floating_point()) {
        EXPECT_TRUE(torch::allclose(item.value(), expected(name, ratio), 1e-6, 1e-7)) << name << " " << ratio;
        EXPECT_FALSE(torch::allclose(item.value(), tuned[name], 1e-6, 1e-7)) << name;
      }
    }
  }
}

TEST_P(WiseTest, IntegerBuffersStayAsFineTuned) {
  run(WiseOptions());
  EXPECT_EQ(net->norm->num_batches_tracked.item<int64_t>(), 7);
  EXPECT_EQ(anchor["norm.num_batches_tracked"].item<int64_t>(), 2);
}

TEST_P(WiseTest, RatioZeroGivesTheAnchorAndOneTheFineTunedModel) {
  run(WiseOptions().ratio(0));
  auto zero = copy(net);
  EXPECT_GT(difference(tuned, anchor), 1e-3);
  zero["norm.num_batches_tracked"] = anchor["norm.num_batches_tracked"];
  expect_identical(zero, anchor);

  assign(net, anchor);
  run(WiseOptions().ratio(1));
  expect_identical(copy(net), tuned);
}

TEST_P(WiseTest, ExcludedTensorsStayAsFineTuned) {
  run(WiseOptions().exclude({"head.*", "norm.running_*"}));
  for (const auto& item : copy(net)) {
    const auto& name = item.key();
    const bool excluded = name.starts_with("head.") || name.starts_with("norm.running_");
    if (excluded) {
      EXPECT_TRUE(identical(item.value(), tuned[name])) << name;
    } else if (item.value().is_floating_point()) {
      EXPECT_TRUE(torch::allclose(item.value(), expected(name, 0.5), 1e-6, 1e-7)) << name;
    }
  }
}

TEST_P(WiseTest, TheAnchorMayBeGiven) {
  const auto given = copy(make_net(device()));
  Wise wise(*net, given, WiseOptions().ratio(0.25));
  const auto before = copy(net);
  wise.finish({});
  for (const auto* name : {"conv.weight", "norm.running_var", "head.bias"}) {
    EXPECT_TRUE(torch::allclose(named_tensors(*net)[name], given[name] + 0.25 * (before[name] - given[name]),
                                1e-6, 1e-7))
        << name;
  }
}

TEST_P(WiseTest, FrozenParametersAreInterpolatedToo) {
  Wise wise(*net);
  {
    const torch::NoGradGuard no_grad;
    net->conv->weight.add_(1);
  }
  net->conv->weight.set_requires_grad(false);
  wise.finish({});
  EXPECT_TRUE(torch::allclose(net->conv->weight, anchor["conv.weight"] + 0.5, 1e-6, 1e-6));
}

TEST_P(WiseTest, StepsChangeNothingBeforeTheEnd) {
  Wise wise(*net);
  auto twin = twin_of(net);
  const auto optimizer = sgd()(net->parameters());
  for (int i = 0; i < 3; ++i) train_step(net, *optimizer, wise, i, {});
  train_plainly(twin, 3);
  expect_identical(copy(net), copy(twin));
}

TEST_P(WiseTest, RefusesToInterpolateTwice) {
  Wise wise(*net);
  train_plainly(net, 1);
  wise.finish({});
  const auto once = copy(net);
  EXPECT_NE(error_of([&] { wise.finish({}); }).find("[Wise] finish() was called before"), std::string::npos);
  expect_identical(copy(net), once);
}

TEST_P(WiseTest, RemembersInItsStateThatItIsFinished) {
  Wise wise(*net);
  const auto fresh = wise.state_dict();
  train_plainly(net, 1);
  wise.finish({});
  const auto finished = wise.state_dict();
  const auto once = copy(net);
  assign(net, anchor);
  Wise resumed(*net);
  assign(net, once);
  resumed.load_state_dict(finished);
  EXPECT_NE(error_of([&] { resumed.finish({}); }).find("[Wise] finish() was called before"),
            std::string::npos);
  resumed.load_state_dict(fresh);
  resumed.finish({});
  EXPECT_GT(difference(copy(net), once), 0);
}

TEST_P(WiseTest, NamesWhatIsNotFiniteAndLeavesTheModelAlone) {
  Wise wise(*net);
  train_plainly(net, 1);
  {
    const torch::NoGradGuard no_grad;
    net->norm->running_var[1] = NAN;
  }
  const auto before = copy(net);
  EXPECT_NE(error_of([&] { wise.finish({}); }).find("'norm.running_var' holds NaN or Inf"),
            std::string::npos);
  expect_identical(copy(net), before);
}

TEST_P(WiseTest, RefusesWhatCannotBe) {
  EXPECT_NE(error_of([&] { Wise(*net, WiseOptions().ratio(NAN)); }).find("ratio"), std::string::npos);
  EXPECT_NE(error_of([&] { Wise(*net, WiseOptions().exclude({"haed.*"})); }).find("'haed.*' matches no"),
            std::string::npos);
  EXPECT_NE(error_of([&] { Wise(*net, copy(net->named_parameters())); }).find("norm.running_mean"),
            std::string::npos);
}

}  // namespace
}  // namespace tpgm::testing
