// What core sees of a model: LibTorch's, and one that is none of LibTorch's.
#include "tpgm/core/module_view.h"

#include "tests/net.h"
#include "tpgm/core/held_out_loss.h"
#include "tpgm/core/selection.h"

namespace tpgm {
namespace {

using testing::error_of;
using testing::Net;

TEST(ModuleView, HasTheTensorsOfAModuleAsTheyAreNow) {
  Net net;
  const ModuleView view = *net;
  EXPECT_EQ(view.named_parameters().keys(), net->named_parameters().keys());
  EXPECT_EQ(view.named_buffers().keys(), net->named_buffers().keys());
  EXPECT_TRUE(view.named_parameters()["head.weight"].is_same(net->head->weight));
  EXPECT_EQ(named_tensors(view).keys().front(), "conv.weight");
  EXPECT_EQ(named_tensors(view).size(), 11U);
  net->register_parameter("late", torch::zeros({1}));
  EXPECT_TRUE(view.named_parameters().contains("late"));
}

TEST(ModuleView, EvalModePutsEveryPartBack) {
  Net net;
  net->hidden->eval();
  const auto modes = [&] {
    std::vector<bool> result;
    for (const auto& each : net->modules()) result.push_back(each->is_training());
    return result;
  };
  const auto before = modes();
  {
    const EvalMode eval_mode(*net);
    EXPECT_EQ(modes(), std::vector<bool>(before.size(), false));
    net->train();
  }
  EXPECT_EQ(modes(), before);
  const auto& constant = *net;
  EXPECT_EQ(ModuleView(std::as_const(constant)).named_parameters().size(), 8U);
  EXPECT_NE(error_of([&] { EvalMode(ModuleView(std::as_const(constant))); }).find("constant module"),
            std::string::npos);
}

// A model of another kind: three functions are all that core needs.
struct Foreign {
  torch::Tensor weight = torch::ones({3}).set_requires_grad(true), statistics = torch::zeros({3});
  bool training = true;

  ModuleView view() {
    return {[this] {
              NamedTensors parameters;
              parameters.insert("layer.weight", weight);
              return parameters;
            },
            [this] {
              NamedTensors buffers;
              buffers.insert("layer.statistics", statistics);
              return buffers;
            },
            [this] {
              const bool before = std::exchange(training, false);
              return [this, before] { training = before; };
            }};
  }
};

TEST(ModuleView, AnyModelCanBeSelectedFromAndEvaluated) {
  Foreign model;
  const auto selected = select(model.view(), model.view().named_parameters(), {});
  ASSERT_EQ(selected.size(), 1U);
  EXPECT_TRUE(selected[0].tensor.is_same(model.weight));
  HeldOutLoss held_out_loss("Test", model.view(), torch::kCPU);
  const auto result = held_out_loss.evaluate(
      [&] {
        EXPECT_FALSE(model.training);
        return (model.weight * 2).sum();
      },
      {model.weight}, {torch::full({3}, 5.)});
  EXPECT_TRUE(model.training);
  EXPECT_EQ(result.loss.item<double>(), 30);
  EXPECT_TRUE(torch::equal(result.gradients[0], torch::full({3}, 2.)));
  EXPECT_TRUE(torch::equal(model.weight, torch::ones({3})));
  EXPECT_NE(error_of([&] {
              held_out_loss.evaluate(
                  [&] {
                    model.statistics.add_(1);
                    return model.weight.sum();
                  },
                  {model.weight});
            }).find("changed buffer 'layer.statistics'"),
            std::string::npos);
  EXPECT_TRUE(torch::equal(model.statistics, torch::zeros({3})));
}

}  // namespace
}  // namespace tpgm
