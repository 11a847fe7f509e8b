// State dictionaries: collecting, strict loading, excluding, and that nothing loads by half.
#include "tpgm/io/state_dict.h"

#include <string>
#include <vector>

#include "scratch.h"
#include "tests/torch_nn.h"
#include "tpgm/io/safetensors.h"

namespace tpgm::test_state_dict {
namespace {

using namespace test;
using StateDictTest = test::Scratch;

struct Net : torch::nn::Module {
  explicit Net(int64_t classes = 3) {
    body = register_module("body", torch::nn::Sequential(torch::nn::Linear(4, 5), torch::nn::BatchNorm1d(5)));
    head = register_module("head", torch::nn::Linear(5, classes));
  }
  torch::nn::Sequential body{nullptr};
  torch::nn::Linear head{nullptr};
};

std::vector<at::Tensor> snapshot(const torch::nn::Module& module) {
  std::vector<at::Tensor> copies;
  for (const auto& item : state_dict(module)) copies.push_back(item.value().clone());
  return copies;
}

::testing::AssertionResult unchanged(const torch::nn::Module& module, const std::vector<at::Tensor>& before) {
  const NamedTensors now = state_dict(module);
  for (size_t i = 0; i < before.size(); ++i) {
    if (!same(now[i].value(), before[i])) return ::testing::AssertionFailure() << now[i].key() << " changed";
  }
  return ::testing::AssertionSuccess();
}

TEST_F(StateDictTest, ListsParametersThenBuffersWithoutCopying) {
  Net net;
  const NamedTensors state = state_dict(net);
  EXPECT_EQ(state.keys(),
            (std::vector<std::string>{"body.0.weight", "body.0.bias", "body.1.weight", "body.1.bias",
                                      "head.weight", "head.bias", "body.1.running_mean", "body.1.running_var",
                                      "body.1.num_batches_tracked"}));
  EXPECT_EQ(state["head.weight"].data_ptr(), net.head->weight.data_ptr());
  EXPECT_FALSE(state["head.weight"].requires_grad());
}

TEST_F(StateDictTest, SavedWeightsLoadIntoAnotherModule) {
  Net from, into;
  save_weights(from, file("net.safetensors"), {{"epoch", "3"}});
  EXPECT_EQ(SafetensorsFile(file("net.safetensors")).metadata().at("epoch"), "3");
  const at::Tensor weight = into.head->weight;
  load_weights(into, file("net.safetensors"));
  EXPECT_TRUE(unchanged(into, snapshot(from)));
  EXPECT_TRUE(weight.is_same(into.head->weight));
  EXPECT_TRUE(weight.requires_grad() && weight.is_leaf());
  // The suffix says nothing.
  std::filesystem::rename(file("net.safetensors"), file("net.pt"));
  EXPECT_EQ(load_state_dict(file("net.pt")).size(), 9U);
}

TEST_F(StateDictTest, ConvertsToTheModulesDtype) {
  Net from, into;
  NamedTensors halves;
  for (const auto& item : state_dict(from)) {
    halves.insert(item.key(), item->is_floating_point() ? item->to(at::kHalf) : item.value());
  }
  save_safetensors(halves, file("half.safetensors"));
  load_weights(into, file("half.safetensors"));
  EXPECT_EQ(into.head->weight.scalar_type(), at::kFloat);
  EXPECT_TRUE(same(into.head->weight, from.head->weight.to(at::kHalf).to(at::kFloat)));
  for (const auto dtype :
       {at::kBFloat16, at::kDouble, at::kFloat8_e4m3fn, at::kInt, at::kUInt16, at::kBool}) {
    into.head->weight.set_data(at::zeros({3, 5}));
    halves["head.weight"] = at::ones({3, 5}).to(dtype);
    load_state_dict(into, halves);
    EXPECT_TRUE(same(into.head->weight, at::ones({3, 5}))) << dtype;
  }
}

TEST_F(StateDictTest, OneCulpritMakesOneLine) {
  torch::nn::Sequential from(torch::nn::Linear(512, 345)), into(torch::nn::Linear(512, 10));
  save_safetensors({{"0.weight", from->parameters()[0]}, {"0.bias", into->parameters()[1]}},
                   file("w.safetensors"));
  const auto before = snapshot(*into);
  EXPECT_EQ(error_of([&] { load_weights(*into, file("w.safetensors")); }),
            "[load_weights] '0.weight' is [345,512] in the file, [10,512] in the model; exclude it with "
            "exclude={\"0.*\"} ('" +
                file("w.safetensors").string() + "')");
  EXPECT_TRUE(unchanged(*into, before));
}

TEST_F(StateDictTest, MismatchesAreRefusedBeforeAnythingIsCopied) {
  const Net reference;
  struct Case {
    std::string name;
    at::Tensor tensor;
    std::string message;
  };
  const std::vector<Case> cases{
      {"head.bias", at::ones({3, 1}), "'head.bias' is [3,1] in the state dict, [3] in the model"},
      {"head.bias", at::Tensor(), "'head.bias' is undefined"},
      {"head.bias", at::ones({3}).to_sparse(), "'head.bias' is sparse"},
      {"head.bias", at::ones({3}, at::kComplexFloat), "'head.bias' is ComplexFloat in the state dict, Float"},
      {"body.1.num_batches_tracked", at::scalar_tensor(1.5), "is Float in the state dict, Long in the model"},
      {"extra", at::ones({1}),
       "'extra' is in the state dict, but not in the model; exclude it with exclude={\"extra\"}"},
  };
  for (const auto& [name, tensor, expected] : cases) {
    Net net;
    const auto before = snapshot(net);
    NamedTensors tensors;
    for (const auto& item : state_dict(reference)) {
      tensors.insert(item.key(), item.key() == name ? tensor : item.value());
    }
    if (!tensors.contains(name)) tensors.insert(name, tensor);
    const std::string message = error_of([&] { load_state_dict(net, tensors); });
    EXPECT_EQ(message.rfind("[load_state_dict] ", 0), 0U) << message;
    EXPECT_NE(message.find(expected), std::string::npos) << message;
    EXPECT_TRUE(unchanged(net, before)) << name;
  }
}

TEST_F(StateDictTest, ManyCulpritsAreCountedAndTenAreListed) {
  torch::nn::Sequential net;
  for (int i = 0; i < 12; ++i) net->push_back(torch::nn::Linear(torch::nn::LinearOptions(2, 2).bias(false)));
  NamedTensors tensors{{"0.weight", at::ones({2, 2})}, {"extra.weight", at::ones({1})}};
  const std::string message = error_of([&] { load_state_dict(*net, tensors); });
  EXPECT_NE(message.find("[load_state_dict] 12 tensors do not fit:\n"), std::string::npos) << message;
  EXPECT_NE(message.find("'1.weight' is in the model, but not in the state dict\n"), std::string::npos)
      << message;
  EXPECT_NE(message.find("'10.weight'"), std::string::npos) << message;
  EXPECT_EQ(message.find("'11.weight'"), std::string::npos) << message;
  EXPECT_NE(message.find("and 2 more\nexclude them with exclude={\"1.*\", \"2.*\""), std::string::npos)
      << message;
}

TEST_F(StateDictTest, NoCommonNameIsNotAMatterOfExcluding) {
  Net net;
  NamedTensors tensors;
  for (const auto& item : state_dict(net)) tensors.insert("module." + item.key(), item.value());
  const std::string message = error_of([&] { load_state_dict(net, tensors); });
  EXPECT_NE(message.find("18 tensors do not fit"), std::string::npos) << message;
  EXPECT_NE(message.find("no name is common to both"), std::string::npos) << message;
}

TEST_F(StateDictTest, ExcludeDropsNamesOnBothSides) {
  Net from(7), into(3);
  save_weights(from, file("net.safetensors"));
  const at::Tensor head = into.head->weight.detach().clone();
  load_weights(into, file("net.safetensors"), {"head.*"});
  EXPECT_TRUE(same(into.head->weight, head));
  EXPECT_TRUE(same(state_dict(into)["body.0.weight"], state_dict(from)["body.0.weight"]));

  NamedTensors tensors = state_dict(from);
  tensors.insert("only.in.the.file", at::ones({1}));
  tensors.erase("body.1.running_var");
  EXPECT_NO_THROW(load_state_dict(into, tensors, {"head.*", "only*", "body.?.running_[uv]ar"}));
  const std::string message =
      error_of([&] { load_weights(into, file("net.safetensors"), {"head.*", "haed.*"}); });
  EXPECT_NE(message.find("[load_weights] exclude={\"haed.*\"} matches no name of the file or the model"),
            std::string::npos)
      << message;
}

TEST_F(StateDictTest, TiedParametersStayTied) {
  struct Tied : torch::nn::Module {
    Tied() {
      in = register_module("in", torch::nn::Linear(torch::nn::LinearOptions(3, 3).bias(false)));
      out = register_module("out", torch::nn::Linear(torch::nn::LinearOptions(3, 3).bias(false)));
      out->weight = out->register_parameter("tied", in->weight);
    }
    torch::nn::Linear in{nullptr}, out{nullptr};
  };
  Tied from, into;
  save_weights(from, file("tied.safetensors"));
  load_weights(into, file("tied.safetensors"));
  EXPECT_TRUE(same(into.in->weight, from.in->weight));
  EXPECT_EQ(into.in->weight.data_ptr(), into.out->weight.data_ptr());
}

TEST_F(StateDictTest, ReadsPyTorchFilesAndSaysWhatItUnwrapped) {
  const auto goldens = std::filesystem::path(TPGM_TEST_DATA) / "io" / "goldens" / "torch";
  const NamedTensors expected = SafetensorsFile(goldens / "nested_training.expected.safetensors").tensors();
  ::testing::internal::CaptureStderr();
  const NamedTensors tensors = load_state_dict(goldens / "nested_training.pt");
  const std::string warning = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(warning.find("took what is under 'state_dict'"), std::string::npos) << warning;
  ASSERT_EQ(tensors.size(), expected.size());
  for (const auto& item : expected) EXPECT_TRUE(same(tensors[item.key()], item.value())) << item.key();
}

TEST_F(StateDictTest, APrefixOfTheModelsOwnStays) {
  struct Net : torch::nn::Module {
    torch::nn::Linear backbone{register_module("backbone", torch::nn::Linear(2, 3))};
  } saved, loaded;
  save_weights(saved, file("net.safetensors"));
  load_weights(loaded, file("net.safetensors"));
  EXPECT_TRUE(same(loaded.backbone->weight, saved.backbone->weight));
  load_weights(*loaded.backbone, file("net.safetensors"));  // and a wrapper's goes
  EXPECT_TRUE(same(loaded.backbone->bias, saved.backbone->bias));
}

TEST_F(StateDictTest, WhatIsNoCheckpointGetsALine) {
  write_bytes(file("net.pt"), "neither");
  EXPECT_NE(error_of([&] { load_state_dict(file("net.pt")); }).find("it is not a checkpoint"),
            std::string::npos);
  write_bytes(file("net.pt"), "version https://git-lfs.github.com/spec/v1\noid sha256:0\n");
  EXPECT_NE(error_of([&] { load_state_dict(file("net.pt")); }).find("git lfs pull"), std::string::npos);
  EXPECT_NE(error_of([&] { load_state_dict(file("absent")); }).find("[load_state_dict] cannot open"),
            std::string::npos);
}

}  // namespace
}  // namespace tpgm::test_state_dict
