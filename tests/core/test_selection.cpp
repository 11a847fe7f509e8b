// Which parameters are constrained: by name, by glob, tied, frozen, and the messages where it goes wrong.
#include "tpgm/core/selection.h"

#include <fmt/format.h>

#include "tests/net.h"

namespace tpgm {
namespace {

using testing::error_of;
using testing::Net;
using torch::Tensor;

struct Parameters : torch::nn::Module {
  explicit Parameters(const NamedTensors& tensors) {
    for (const auto& item : tensors)
      register_parameter(item.key(), item.value(), item.value().requires_grad());
  }
};

Tensor trainable(at::IntArrayRef sizes = {2}) { return torch::randn(sizes).set_requires_grad(true); }

NamedTensors copies(const NamedTensors& tensors) {
  NamedTensors result;
  for (const auto& item : tensors) result.insert(item.key(), item.value().detach().clone());
  return result;
}

std::vector<std::string> names(const std::vector<Selected>& selected) {
  std::vector<std::string> result;
  for (const auto& each : selected) result.push_back(each.name);
  return result;
}

void expect_error(const std::string& error, const std::vector<std::string>& parts) {
  for (const auto& part : parts)
    EXPECT_NE(error.find(part), std::string::npos) << "'" << part << "' is not in: " << error;
}

using Names = std::vector<std::string>;

TEST(Selection, MatchesParametersWithTheirAnchorsByName) {
  Net net;
  NamedTensors anchor;  // in another order, and with names that the model does not have
  anchor.insert("something.else", torch::zeros({1}));
  const auto parameters = copies(net->named_parameters());
  for (size_t i = parameters.size(); i-- > 0;) anchor.insert(parameters[i].key(), parameters[i].value() + 1);
  const auto selected = select(*net, anchor, {});
  EXPECT_EQ(names(selected), parameters.keys());
  for (const auto& each : selected) {
    EXPECT_TRUE(each.tensor.is_same(net->named_parameters()[each.name]));
    EXPECT_TRUE(torch::equal(each.pretrained, parameters[each.name] + 1));
  }
}

TEST(Selection, GlobsExcludeAndMustMatchSomething) {
  Net net;
  const auto anchor = copies(net->named_parameters());
  EXPECT_EQ(names(select(*net, anchor, {"head.*", "*.bias"})),
            (Names{"conv.weight", "norm.weight", "hidden.weight"}));
  EXPECT_EQ(names(select(*net, anchor, {"[!h]*", "head.weight", "hidden.????"})),
            (Names{"hidden.weight", "head.bias"}));
  expect_error(error_of([&] { select(*net, anchor, {"*.bias", "heda.weight"}); }),
               {"exclude 'heda.weight' matches no parameter", "the nearest is 'head.weight'"});
  expect_error(error_of([&] { select(*net, anchor, {"head"}); }), {"'head' matches no parameter"});
  EXPECT_TRUE(matches("head.*", "head.mlp.0.weight"));
  EXPECT_FALSE(matches("head.*", "overhead.weight"));
}

TEST(Selection, MissingAnchorsAreListedWithTheWayOut) {
  Net net;
  auto anchor = copies(net->named_parameters());
  anchor.erase("head.weight");
  anchor.erase("head.bias");
  const auto error = error_of([&] { select(*net, anchor, {}); });
  expect_error(error, {"no anchor for 'head.weight' [5,16], 'head.bias' [5]", "exclude({\"head.*\"})"});
  EXPECT_EQ(error.find("more"), std::string::npos);
  EXPECT_EQ(select(*net, anchor, {"head.*"}).size(), 6u);

  NamedTensors many;
  for (int i = 0; i < 13; ++i) many.insert(fmt::format("p{}", 100 + i), trainable());
  expect_error(error_of([&] { select(Parameters(many), NamedTensors(), {}); }),
               {"'p100' [2]", "'p109' [2] and 3 more"});
  EXPECT_EQ(error_of([&] { select(Parameters(many), NamedTensors(), {}); }).find("p110"), std::string::npos);
}

TEST(Selection, AnchorsMustHaveTheShape) {
  Net net;
  auto anchor = copies(net->named_parameters());
  anchor["head.weight"] = torch::zeros({1000, 16});
  expect_error(error_of([&] { select(*net, anchor, {}); }),
               {"'head.weight' is [1000,16] in the anchor, [5,16] in the model", "exclude({\"head.*\"})"});
  anchor["head.weight"] = torch::zeros({16, 5});  // as many elements do not make it fit
  expect_error(error_of([&] { select(*net, anchor, {}); }), {"[16,5] in the anchor"});
}

TEST(Selection, TiedParametersAreOne) {
  const auto shared = trainable({3, 2});
  NamedTensors tensors;
  tensors.insert("first", shared);
  tensors.insert("other", trainable());
  tensors.insert("second", shared);
  const Parameters module(tensors);
  auto anchor = copies(tensors);
  EXPECT_EQ(names(select(module, anchor, {})), (Names{"first", "other"}));
  for (const auto* name : {"first", "second"}) {
    EXPECT_EQ(names(select(module, anchor, {name})), Names{"other"}) << "excluded as " << name;
    auto one = copies(tensors);
    one.erase(name);
    const auto selected = select(module, one, {});
    EXPECT_EQ(names(selected), (Names{"first", "other"})) << "anchor without " << name;
    EXPECT_TRUE(torch::equal(selected[0].pretrained, shared));
  }
  anchor["second"] = anchor["second"] + 1;
  expect_error(error_of([&] { select(module, anchor, {}); }),
               {"'first' and 'second' are one tensor", "different"});
}

TEST(Selection, EmptyParametersAreNotTakenForTied) {
  NamedTensors tensors;
  tensors.insert("a", trainable({0}));
  tensors.insert("b", trainable({0, 3}));
  EXPECT_EQ(names(select(Parameters(tensors), copies(tensors), {})), (Names{"a", "b"}));
}

TEST(Selection, FrozenParametersAreLeftOut) {
  Net net;
  net->conv->weight.set_requires_grad(false);
  auto anchor = copies(net->named_parameters());
  anchor.erase("conv.weight");  // and need no anchor
  EXPECT_EQ(names(select(*net, anchor, {})).front(), "conv.bias");
  expect_error(error_of([&] { select(*net, anchor, {"*"}); }), {"nothing to constrain", "excluded"});
  for (auto& parameter : net->parameters()) parameter.set_requires_grad(false);
  expect_error(error_of([&] { select(*net, anchor, {}); }), {"nothing to constrain", "frozen"});
}

TEST(Selection, OnlyRealDenseParametersCanBeConstrained) {
  NamedTensors tensors;
  tensors.insert("real", trainable());
  tensors.insert("integers", torch::arange(3));  // cannot be trainable, so it is frozen
  EXPECT_EQ(names(select(Parameters(tensors), copies(tensors), {})), Names{"real"});
  tensors.insert("complex", torch::zeros({2}, torch::kComplexFloat).set_requires_grad(true));
  const Parameters module(tensors);
  expect_error(error_of([&] { select(module, copies(tensors), {}); }),
               {"'complex' is ComplexFloat", "exclude it"});
  EXPECT_EQ(names(select(module, copies(tensors), {"complex"})), Names{"real"});
}

TEST(Selection, WithBuffersTakesEverythingThatFloats) {
  Net net;
  net->conv->weight.set_requires_grad(false);
  const auto anchor = copies(named_tensors(*net));
  EXPECT_EQ(anchor.size(), 11u);
  const auto all = names(select_with_buffers(*net, anchor, {"head.*"}));
  EXPECT_EQ(all, (Names{"conv.weight", "conv.bias", "norm.weight", "norm.bias", "hidden.weight",
                        "hidden.bias", "norm.running_mean", "norm.running_var"}));
  EXPECT_EQ(select_with_buffers(*net, anchor, {"norm.num_*"}).size(), 10u);
  expect_error(error_of([&] { select(*net, anchor, {"norm.running_mean"}); }), {"matches no parameter"});
}

TEST(Selection, NearestName) {
  EXPECT_EQ(nearest("mars-mx", {"l2", "mars", "mars-max"}), "mars-max");
  EXPECT_EQ(nearest("x", {}), "");
}

TEST(Selection, BlocksOfKnownModels) {
  const std::pair<const char*, const char*> cases[] = {
      {"layer1.0.conv2.weight", "layer1.0"},  // torchvision ResNet
      {"layer1.0.downsample.1.bias", "layer1.0"},
      {"layer4.2.bn3.weight", "layer4.2"},
      {"encoder.layers.encoder_layer_3.mlp.0.bias", "encoder.layers.encoder_layer_3"},  // torchvision ViT
      {"encoder.layers.encoder_layer_11.ln_1.weight", "encoder.layers.encoder_layer_11"},
      {"blocks.5.attn.qkv.weight", "blocks.5"},                                              // timm
      {"visual.transformer.resblocks.3.mlp.c_fc.weight", "visual.transformer.resblocks.3"},  // open_clip
      {"visual.ln_pre.weight", "visual.ln_pre"},
      {"conv1.weight", "conv1"},
      {"conv1_2", ""},
      {"weight", ""},
      {"0.weight", "0"},
  };
  for (const auto& [name, block] : cases) EXPECT_EQ(block_name(name), block) << name;
}

}  // namespace
}  // namespace tpgm
