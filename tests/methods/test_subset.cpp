// LP, PF, BitFit and LP-FT: which parameters train, and when.
#include "tpgm/methods/subset.h"

#include <set>

#include "tests/methods/models.h"
#include "tests/methods/training.h"
#include "tpgm/methods/lp_ft.h"

namespace tpgm::testing {
namespace {

using Names = std::set<std::string>;
const Names kHead = {"head.weight", "head.bias"};
const Names kAll = {"conv.weight",   "conv.bias",   "norm.weight", "norm.bias",
                    "hidden.weight", "hidden.bias", "head.weight", "head.bias"};

Names trainable(const torch::nn::Module& module) {
  Names names;
  for (const auto& item : module.named_parameters())
    if (item.value().requires_grad()) names.insert(item.key());
  return names;
}

Names trainable(const Net& net) { return trainable(*net); }

// The parameters of which any bit differs.
Names changed(const Net& net, const NamedTensors& before) {
  Names names;
  for (const auto& item : net->named_parameters())
    if (!identical(item.value(), before[item.key()])) names.insert(item.key());
  return names;
}

void train(Net& net, torch::optim::Optimizer& optimizer, Method& method, int steps) {
  for (int i = 0; i < steps; ++i) train_step(net, optimizer, method, i, {});
}

class SubsetTest : public Repeatable {
 protected:
  // Builds M after a backward pass, so that stale gradients are there for an optimizer to step on.
  template <class M>
  void expect_trains(const Names& expected, const SubsetOptions& options = {}) {
    auto net = make_net(device());
    loss(net, batch_for(net, 0)).backward();
    M method(*net, options);
    EXPECT_EQ(trainable(net), expected);
    const auto before = copy(net);
    const auto optimizer = adamw()(net->parameters());
    optimizer->step();
    train(net, *optimizer, method, 5);
    method.finish({});
    EXPECT_EQ(changed(net, before), expected);
    method.unfreeze();
    EXPECT_EQ(trainable(net), kAll);
  }
};
TPGM_ON_EVERY_DEVICE(SubsetTest);

TEST_P(SubsetTest, LpTrainsTheHead) { expect_trains<Lp>(kHead); }

TEST_P(SubsetTest, PfTrainsBatchNormAndTheHead) {
  expect_trains<Pf>({"norm.weight", "norm.bias", "head.weight", "head.bias"});
}

TEST_P(SubsetTest, BitFitTrainsBiasesAndTheHead) {
  expect_trains<BitFit>({"conv.bias", "norm.bias", "hidden.bias", "head.weight", "head.bias"});
}

TEST_P(SubsetTest, TheHeadIsWhatTheGlobsSay) {
  const auto hidden = SubsetOptions().head({"hidden.*"});
  expect_trains<Lp>({"hidden.weight", "hidden.bias"}, hidden);
  expect_trains<Pf>({"norm.weight", "norm.bias", "hidden.weight", "hidden.bias"}, hidden);
  expect_trains<Lp>({"conv.weight", "head.weight", "head.bias"}, SubsetOptions().head({"head.*", "conv.w*"}));
}

TEST(Subset, AGlobThatMatchesNothingIsRefused) {
  Net net;
  EXPECT_NE(error_of([&] {
              Lp(*net, SubsetOptions().head({"haed.weight"}));
            }).find("[Lp] head 'haed.weight' matches no parameter; the nearest is 'head.weight'"),
            std::string::npos);
  EXPECT_EQ(trainable(net), kAll);
}

struct LooksLikeBatchNorm : torch::nn::Module {
  LooksLikeBatchNorm() {
    register_parameter("scale", torch::ones(3));
    register_buffer("running_mean", torch::zeros(3));
    register_buffer("running_var", torch::ones(3));
  }
};
struct AttentionLike : torch::nn::Module {
  AttentionLike() {
    register_module("attention", torch::nn::MultiheadAttention(4, 2));
    register_module("layer_norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({4})));
    register_module("statistics", std::make_shared<LooksLikeBatchNorm>());
    register_module("head", torch::nn::Linear(4, 2));
  }
};

TEST(Subset, KnowsOtherSpellingsOfBiasAndBatchNorm) {
  AttentionLike biases, statistics;
  BitFit bitfit(biases);
  EXPECT_EQ(trainable(biases), (Names{"attention.in_proj_bias", "attention.out_proj.bias", "layer_norm.bias",
                                      "head.weight", "head.bias"}));
  Pf pf(statistics);  // LayerNorm has no running statistics
  EXPECT_EQ(trainable(statistics), (Names{"statistics.scale", "head.weight", "head.bias"}));
}

TEST(Subset, ATiedParameterTrainsIfAnyOfItsNamesDoes) {
  Tied module;
  Lp lp(*module);
  EXPECT_EQ(trainable(*module), (Names{"encoder.weight", "head.weight", "head.bias"}));
}

class LpFtTest : public Repeatable {
 protected:
  Net net = nullptr;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  void SetUp() override {
    Repeatable::SetUp();
    if (!IsSkipped()) {
      net = make_net(device());
      optimizer = adamw()(net->parameters());
    }
  }
};
TPGM_ON_EVERY_DEVICE(LpFtTest);

TEST_P(LpFtTest, SwitchesAfterLpSteps) {
  LpFt method(*net, LpFtOptions().lp_steps(3));
  auto before = copy(net);
  train(net, *optimizer, method, 2);
  EXPECT_TRUE(method.probing());
  EXPECT_EQ(trainable(net), kHead);
  train(net, *optimizer, method, 1);
  EXPECT_EQ(changed(net, before), kHead);
  EXPECT_FALSE(method.probing());
  EXPECT_EQ(trainable(net), kAll);
  before = copy(net);
  train(net, *optimizer, method, 1);
  EXPECT_EQ(changed(net, before), kAll);
}

TEST_P(LpFtTest, SwitchesWhenToldTo) {
  LpFt method(*net);
  const auto before = copy(net);
  train(net, *optimizer, method, 5);
  EXPECT_EQ(changed(net, before), kHead);
  EXPECT_TRUE(method.probing());
  method.start_fine_tuning();
  EXPECT_FALSE(method.probing());
  train(net, *optimizer, method, 1);
  EXPECT_EQ(changed(net, before), kAll);
}

TEST_P(LpFtTest, WhatTheUserFrozeStaysFrozen) {
  net->conv->weight.set_requires_grad(false);
  auto all_but_conv = kAll;
  all_but_conv.erase("conv.weight");
  const auto before = copy(net);
  LpFt method(*net, LpFtOptions().lp_steps(2));
  train(net, *optimizer, method, 5);
  EXPECT_EQ(trainable(net), all_but_conv);
  EXPECT_EQ(changed(net, before), all_but_conv);
}

TEST_P(LpFtTest, TakesGlobsOfTheHead) {
  LpFt method(*net, LpFtOptions().head({"hidden.*"}));
  EXPECT_EQ(trainable(net), (Names{"hidden.weight", "hidden.bias"}));
}

TEST(LpFt, RefusesWhatCannotBe) {
  Net net;
  EXPECT_NE(error_of([&] { LpFt(*net, LpFtOptions().lp_steps(-1)); }).find("lp_steps"), std::string::npos);
}

}  // namespace
}  // namespace tpgm::testing
