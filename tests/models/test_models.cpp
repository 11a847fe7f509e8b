// What no library's numbers show: modes, memory formats, precision, blocks, the registry.
#include <gtest/gtest.h>

#include <optional>
#include <set>

#include "tests/nn/trace.h"
#include "tests/support.h"
#include "tests/torch_nn.h"
#include "tests/weights/parity.h"
#include "tpgm/models/model_hint.h"
#include "tpgm/models/named_models.h"
#include "tpgm/nn/precision.h"
#include "tpgm/nn/recompute.h"
#include "tpgm/nn/testing.h"

namespace tpgm::testing {
namespace {

const std::vector<std::string> kSmallModels{
    "resnet:layers=1-1,width=8,image_size=32",
    "resnet:layers=2-1,width=8,block=basic,stem=small,channels=1,image_size=16",
    "vit:width=32,depth=2,heads=2,patch=8,image_size=32",
    "vit:width=32,depth=2,heads=2,patch=8,image_size=32,pool=mean",
    "clip-resnet:layers=1-1,width=8,heads=2,embedding=16,image_size=32",
    "clip-vit:width=32,depth=2,heads=2,patch=8,image_size=32,embedding=16"};

std::shared_ptr<Backbone> fresh(const std::string& model, at::Device device = at::kCPU) {
  const auto backbone = make_backbone(parse_model(model));
  backbone->reset_parameters();
  const at::NoGradGuard no_grad;
  for (auto& parameter : backbone->parameters()) {
    if (parameter.dim() == 1) parameter.add_(at::randn_like(parameter), 0.1);  // some would start as zero
  }
  backbone->to(device);
  return backbone;
}

at::Tensor images_for(const Backbone& backbone, at::Device device = at::kCPU, int64_t count = 3) {
  return at::randn({count, backbone.channels(), backbone.image_size(), backbone.image_size()}).to(device);
}

// Autocast, if asked for, ends before the backward pass, as it should.
std::vector<at::Tensor> gradients(Backbone& backbone, const at::Tensor& images, bool bf16 = false) {
  backbone.zero_grad();
  at::Tensor features;
  {
    std::optional<Autocast> autocast;
    if (bf16) autocast.emplace(images.device().type());
    features = backbone.forward(images);
  }
  features.to(at::kFloat).pow(2).sum().backward();
  std::vector<at::Tensor> result;
  for (const auto& parameter : backbone.parameters()) result.push_back(parameter.grad().clone());
  return result;
}

// Relative to the largest gradient of all: those of key biases are nothing but rounding.
void expect_close(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b, double limit) {
  ASSERT_EQ(a.size(), b.size());
  double scale = 0, largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    scale = std::max(scale, b[i].abs().max().item<double>());
    largest = std::max(largest, (a[i] - b[i]).abs().max().item<double>());
  }
  EXPECT_GT(scale, 0);
  EXPECT_LT(largest / scale, limit);
}

double cosine(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  double product = 0, square_a = 0, square_b = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    product += (a[i] * b[i]).sum().item<double>();
    square_a += a[i].pow(2).sum().item<double>();
    square_b += b[i].pow(2).sum().item<double>();
  }
  return product / std::sqrt(square_a * square_b);
}

// Its bf16 needs instructions that some virtual machines show and do not lend.
class WithoutOneDnn {
 public:
  WithoutOneDnn() { at::globalContext().setUserEnabledMkldnn(false); }
  ~WithoutOneDnn() { at::globalContext().setUserEnabledMkldnn(before_); }

 private:
  bool before_ = at::globalContext().userEnabledMkldnn();
};

class Models : public OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    at::globalContext().setAllowTF32CuDNN(false);  // 10 bits are not what is compared here
  }
};

TEST_P(Models, ChannelsLastChangesTheOrderInMemoryAndNothingElse) {
  for (const auto& model : kSmallModels) {
    SCOPED_TRACE(model);
    const auto backbone = fresh(model, device());
    const at::Tensor images = images_for(*backbone, device());
    const auto before = gradients(*backbone, images);
    const auto parameters = backbone->parameters();
    to_channels_last(*backbone);
    for (size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_TRUE(parameters[i].is_same(backbone->parameters()[i]));
      EXPECT_TRUE(parameters[i].dim() != 4 || parameters[i].is_contiguous(at::MemoryFormat::ChannelsLast));
    }
    expect_close(gradients(*backbone, images.contiguous(at::MemoryFormat::ChannelsLast)), before, 1e-3);
  }
}

TEST_P(Models, AutocastComputesInBf16AndKeepsMastersInFp32) {
  const WithoutOneDnn plain;
  for (const auto& model : kSmallModels) {
    SCOPED_TRACE(model);
    const auto backbone = fresh(model, device());
    const at::Tensor images = images_for(*backbone, device());
    const auto exact = gradients(*backbone, images);
    std::vector<at::Tensor> rounded;
    {
      const Autocast bf16(device().type());
      EXPECT_EQ(at::linear(images.flatten(1), images.flatten(1)).scalar_type(), at::kBFloat16);
    }
    rounded = gradients(*backbone, images, /*bf16=*/true);
    EXPECT_EQ(at::linear(images.flatten(1), images.flatten(1)).scalar_type(), at::kFloat);
    for (const auto& parameter : backbone->parameters()) {
      EXPECT_EQ(parameter.scalar_type(), at::kFloat);
      EXPECT_EQ(parameter.grad().scalar_type(), at::kFloat);
    }
    EXPECT_GT(cosine(rounded, exact), 0.95);
  }
}

TEST_P(Models, RecomputingGivesTheSameGradients) {
  const WithoutOneDnn plain;
  for (const bool bf16 : {false, true}) {
    std::vector<std::vector<at::Tensor>> results;
    for (const std::string recompute : {"false", "true"}) {
      torch::manual_seed(1);
      const auto backbone =
          fresh("vit:width=32,depth=3,heads=2,patch=8,image_size=32,recompute=" + recompute, device());
      const at::Tensor images = images_for(*backbone, device());
      results.push_back(gradients(*backbone, images, bf16));
    }
    expect_close(results[1], results[0], bf16 ? 1e-2 : 1e-6);
  }
}

TEST_P(Models, RecomputingRunsTwiceAndServesEveryKindOfGradient) {
  const at::Tensor weight = at::randn({4, 4}, device()).requires_grad_(),
                   frozen = at::randn({4, 4}, device());
  const at::Tensor x = at::randn({2, 4}, device()).requires_grad_();
  int runs = 0;
  const auto run = [&](const at::Tensor& input) {
    ++runs;
    return (input.matmul(weight).tanh() + input.matmul(frozen)).sin();
  };
  const at::Tensor plain = run(x).sum();
  const auto expected = torch::autograd::grad({plain}, {x, weight});
  runs = 0;
  const at::Tensor loss = recomputed(run, x, {weight, frozen}).sum();
  EXPECT_EQ(runs, 1);
  EXPECT_TRUE(loss.equal(plain));
  const auto found = torch::autograd::grad({loss}, {x, weight});
  EXPECT_EQ(runs, 2);
  for (size_t i = 0; i < 2; ++i) EXPECT_LT(difference(found[i], expected[i]), 1e-6);
  recomputed(run, x.detach(), {weight, frozen})
      .sum()
      .backward();  // the first block's input needs no gradient
  EXPECT_LT(difference(weight.grad(), expected[1]), 1e-6);
  const at::NoGradGuard no_grad;
  runs = 0;
  recomputed(run, x, {weight});
  EXPECT_EQ(runs, 1);
}

TEST_P(Models, RecomputingIsNotDifferentiatedTwice) {
  const at::Tensor x = at::randn({2, 4}, device()).requires_grad_();
  const at::Tensor loss = recomputed([](const at::Tensor& input) { return input.sin(); }, x, {}).sum();
  const std::string error =
      error_of([&] { torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true); });
  EXPECT_NE(error.find("differentiated twice"), std::string::npos) << error;
}

TEST_P(Models, EvaluationFoldsBatchNormAndLeavesItAlone) {
  for (const auto& model : kSmallModels) {
    SCOPED_TRACE(model);
    const auto backbone = fresh(model, device());
    const at::Tensor images = images_for(*backbone, device());
    std::map<std::string, at::Tensor> start;
    for (const auto& item : backbone->named_buffers()) start[item.key()] = item.value().clone();
    backbone->forward(images);
    for (const auto& item : backbone->named_buffers())
      EXPECT_FALSE(item.value().equal(start[item.key()])) << item.key();
    for (const auto& item : backbone->named_buffers()) start[item.key()] = item.value().clone();
    backbone->eval();
    const at::Tensor with_graph = backbone->forward(images);
    const at::NoGradGuard no_grad;
    const Trace trace;
    EXPECT_LT(difference(backbone->forward(images), with_graph), 1e-5);
    EXPECT_TRUE(!device().is_cpu() || !Trace::seen().contains("aten::batch_norm"));
    for (const auto& item : backbone->named_buffers())
      EXPECT_TRUE(item.value().equal(start[item.key()])) << item.key();
  }
}

TPGM_ON_EVERY_DEVICE(Models);

TEST(ModelsOnCpu, ProductsOfOneDnnAreAtens) {
  if (!at::hasMKLDNN()) GTEST_SKIP() << "LibTorch without oneDNN";
  for (const auto& model : kSmallModels) {
    SCOPED_TRACE(model);
    const auto backbone = fresh(model, at::kCPU);
    const at::Tensor images = images_for(*backbone, at::kCPU);
    const auto expected = gradients(*backbone, images);
    const AlwaysOneDnn one_dnn;
    const Trace trace;
    const auto found = gradients(*backbone, images);
    // Two blocks of four linears, forward and back, but for one whose rows are not dense: a class token's;
    // and attention pooling's three at least.
    const bool vit = model.find("depth=2") != std::string::npos,
               pool = model.find("heads") != std::string::npos;
    const size_t least = vit ? 15 : pool ? 6 : 0;
    EXPECT_GE(Trace::seen().count("mkldnn::_linear_pointwise"), least);
    expect_close(found, expected, 1e-4);
  }
}

TEST(Attention, CopiesNothingForwardOrBackward) {
  Attention attention(64, 4);
  for (auto& parameter : attention->parameters()) parameter.data().normal_(0, 0.1);
  const at::Tensor x = at::randn({3, 17, 64}).requires_grad_(), upstream = at::randn({3, 17, 64});
  for (const bool causal : {false, true}) {
    const Trace trace;
    attention->forward(x, causal).backward(upstream);
    const auto& seen = Trace::seen();
    EXPECT_TRUE(seen.contains("aten::scaled_dot_product_attention"));
    EXPECT_GE(seen.count("aten::mm"), 4U);  // the backward pass is in it
    for (const std::string name : {"aten::clone", "aten::contiguous", "aten::stack", "aten::cat"}) {
      EXPECT_FALSE(seen.contains(name)) << name;
    }
    // Linear layers themselves begin with their bias in each row of the result.
    EXPECT_EQ(seen.count("aten::copy_"), seen.count("aten::addmm"));
  }
}

TEST(Attention, PackedProjectionHasTheGradientsOfThreeLinears) {
  Attention attention(24, 3);
  attention->to(at::kDouble);
  for (auto& parameter : attention->parameters()) parameter.data().normal_(0, 0.3);
  const at::Tensor x = at::randn({2, 5, 24}, at::kDouble).requires_grad_(),
                   upstream = at::randn({2, 5, 24}, at::kDouble);
  for (const bool causal : {false, true}) {
    const auto literal = [&] {
      std::vector<at::Tensor> parts;
      for (int64_t i = 0; i < 3; ++i) {
        parts.push_back(at::linear(x, attention->qkv->weight.narrow(0, 24 * i, 24),
                                   attention->qkv->bias.narrow(0, 24 * i, 24))
                            .view({2, 5, 3, 8})
                            .transpose(1, 2));
      }
      at::Tensor scores = parts[0].matmul(parts[1].transpose(-1, -2)) / std::sqrt(8.0);
      if (causal) scores = scores.masked_fill(at::ones({5, 5}, at::kBool).triu(1), -INFINITY);
      return attention->proj->forward(
          scores.softmax(-1).matmul(parts[2]).transpose(1, 2).reshape({2, 5, 24}));
    };
    auto wanted = attention->parameters();
    wanted.push_back(x);
    const auto expected = torch::autograd::grad({literal()}, wanted, {upstream});
    for (const bool stacked : {false, true}) {
      std::optional<FuseOnCpu> fuse;
      if (stacked) fuse.emplace();
      const auto found = torch::autograd::grad({attention->forward(x, causal)}, wanted, {upstream});
      expect_close(found, expected, 1e-12);
    }
  }
}

TEST(Attention, RefusesASecondDerivative) {
  Attention attention(24, 3);
  const at::Tensor x = at::zeros({2, 5, 24}).requires_grad_();
  const at::Tensor loss = attention->forward(x, /*causal=*/false).sum();
  const auto error =
      error_of([&] { torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true); });
  EXPECT_NE(error.find("twice"), std::string::npos) << error;
}

TEST(Blocks, EveryParameterIsInExactlyOne) {
  for (const auto& model : kSmallModels) {
    SCOPED_TRACE(model);
    const auto backbone = fresh(model);
    const auto blocks = backbone->blocks();
    ASSERT_FALSE(blocks.empty());
    std::set<std::string> used;
    for (const auto& item : backbone->named_parameters()) {
      size_t owners = 0;
      for (const auto& block : blocks) {
        if (!item.key().starts_with(block + ".")) continue;
        ++owners;
        used.insert(block);
        // Groups of radii and tables of distances go by names alone.
        EXPECT_TRUE((block_name(item.key()) + ".").starts_with(block + ".")) << item.key();
      }
      EXPECT_EQ(owners, 1U) << item.key();
    }
    EXPECT_EQ(used.size(), blocks.size());
    EXPECT_EQ(block_globs(*backbone, "backbone.").back(), "backbone." + blocks.back() + ".*");
  }
}

TEST(Blocks, FeaturesOfEachAreAsManyAsItSays) {
  for (const auto& model : kSmallModels) {
    SCOPED_TRACE(model);
    const auto backbone = fresh(model);
    backbone->eval();
    const at::NoGradGuard no_grad;
    const at::Tensor images = images_for(*backbone), all = backbone->forward(images);
    std::set<double> sums;
    for (const auto& layer : backbone->blocks()) {
      const at::Tensor features = backbone->features(images, layer);
      EXPECT_EQ(features.sizes(), (std::vector<int64_t>{3, backbone->num_features(layer)})) << layer;
      EXPECT_TRUE(sums.insert(features.sum().item<double>()).second) << layer << " is another layer's";
    }
    EXPECT_TRUE(backbone->features(images, backbone->blocks().back()).equal(all));
    EXPECT_EQ(all.size(1), backbone->num_features());
    const auto text = error_of([&] { backbone->features(images, "layer9"); });
    EXPECT_NE(text.find("no layer 'layer9'"), std::string::npos) << text;
    EXPECT_NE(text.find(backbone->blocks().front()), std::string::npos) << text;
  }
}

TEST(Blocks, ImagesOfAnotherKindAreRefused) {
  const auto vit = fresh(kSmallModels[2]);
  const auto text = error_of([&] { vit->forward(at::zeros({2, 3, 64, 64})); });
  EXPECT_NE(text.find("[2,3,64,64], the model takes [batch,3,32,32]"), std::string::npos) << text;
  const auto resnet = fresh(kSmallModels[0]);
  EXPECT_EQ(resnet->forward(at::randn({2, 3, 48, 40})).size(0), 2);  // a mean needs no certain size
  EXPECT_NE(error_of([&] { resnet->forward(at::zeros({2, 1, 32, 32})); }).find("[batch,3,height,width]"),
            std::string::npos);
}

TEST(Registry, CountsAreTheLibrariesOwn) {
  // torchvision's documentation of its weights: parameters with a head of 1000 classes, and GFLOPS.
  const std::vector<std::tuple<std::string, int64_t, double>> torchvision{
      {"resnet18", 11689512, 1.814},  {"resnet34", 21797672, 3.664},  {"resnet50", 25557032, 4.089},
      {"resnet101", 44549160, 7.801}, {"vit-b-16", 86567656, 17.564}, {"vit-l-16", 304326632, 61.555}};
  for (const auto& [name, parameters, gflops] : torchvision) {
    const ModelConfig config = parse_model(name);
    const int64_t features = [&] {
      const tpgm::OnDevice meta(at::kMeta);
      return make_backbone(config)->num_features();
    }();
    EXPECT_EQ(cost_of(config).parameters + 1000 * (features + 1), parameters) << name;
    EXPECT_NEAR(cost_of(config).gflops + 1e-6 * static_cast<double>(features), gflops, 1e-3) << name;
  }
  // The models that OpenAI published.
  const std::vector<std::pair<std::string, int64_t>> openai{
      {"RN50", 102007137},     {"RN101", 119688033},    {"ViT-B/32", 151277313},
      {"ViT-B/16", 149620737}, {"ViT-L/14", 427616513}, {"ViT-L/14@336px", 427944193}};
  for (const auto& [name, parameters] : openai) {
    const ModelCost cost = cost_of(parse_model(name));
    EXPECT_EQ(cost.parameters + cost.text_parameters, parameters) << name;
  }
}

TEST(Registry, EveryNameAndAliasIsThere) {
  std::set<std::string> names;
  for (const auto& model : models()) {
    EXPECT_TRUE(names.insert(model.name).second) << model.name;
    EXPECT_EQ(to_text(parse_model(to_text(parse_model(model.name)))), to_text(parse_model(model.name)));
    for (const auto& alias : model.aliases) {
      EXPECT_TRUE(names.insert(alias).second) << alias;
      EXPECT_EQ(to_text(parse_model(alias)), to_text(parse_model(model.name)));
    }
  }
  EXPECT_EQ(to_text(parse_model("resnet:width=24,layers=2-2-2,stem=small")),
            "resnet:layers=2-2-2,width=24,stem=small");
}

TEST(Registry, HugeVitsHaveSixteenHeads) {
  for (const auto& [width, heads] :
       {std::pair("768", 12), {"1024", 16}, {"1280", 16}, {"1408", 16}, {"1664", 16}}) {
    ModelConfig config = parse_model(std::string("vit:width=") + width);
    set_defaults(config);
    EXPECT_EQ(config.heads, heads) << width;
  }
}

TEST(Registry, WrongNamesAndSizesSuggestTheNearest) {
  const auto error = [](const std::string& model) {
    return error_of([&] { make_backbone(parse_model(model)); });
  };
  EXPECT_NE(error("resnet500").find("did you mean 'resnet50'"), std::string::npos) << error("resnet500");
  EXPECT_NE(error("vit:widht=4").find("did you mean 'width'"), std::string::npos) << error("vit:widht=4");
  EXPECT_NE(error("resnet50:patch=4").find("a resnet has no 'patch'"), std::string::npos);
  EXPECT_NE(error("vit:width").find("'width' is not a size"), std::string::npos);
  EXPECT_NE(error("vit:width=4x").find("width=4x: expected a whole number"), std::string::npos);
  EXPECT_NE(error("vit:width=-4").find("expected a whole number from 1"), std::string::npos);
  EXPECT_NE(error("vit:width=99999999999999999999").find("expected a whole number"), std::string::npos);
  EXPECT_NE(error("vit:pool=max").find("expected class or mean"), std::string::npos);
  EXPECT_NE(error("resnet:layers=3--4").find("such as 3-4-6-3"), std::string::npos);
  EXPECT_NE(error("vit:width=100").find("give heads=N"), std::string::npos) << error("vit:width=100");
  EXPECT_NE(error("vit:width=64,heads=5").find("5 heads"), std::string::npos);
  EXPECT_NE(error("vit:image_size=225").find("not a multiple of the patch"), std::string::npos);
}

TEST(Registry, SuggestionsAreModels) {
  int64_t seen = 0;
  for (const auto& [theirs, ours] : other_names()) {
    if (ours == nullptr || std::string_view(ours).empty()) continue;
    std::string name;
    for (const char letter : theirs)
      name += letter == '#' ? "224" : letter == '*' ? "x" : std::string(1, letter);
    const std::string hint = model_hint(name, {}), before = "; did you mean '", after = "'?";
    ASSERT_TRUE(hint.starts_with(before) && hint.ends_with(after)) << name << hint;
    const auto model = hint.substr(before.size(), hint.size() - before.size() - after.size());
    EXPECT_NO_THROW(cost_of(parse_model(model))) << name << " -> " << model;
    ++seen;
  }
  EXPECT_GT(seen, 25);
  EXPECT_EQ(model_hint("vit_huge_patch14_224.mae", {}),
            "; did you mean 'vit:width=1280,depth=32,heads=16,patch=14,image_size=224'?");
  EXPECT_EQ(model_hint("vit_base_patch16_384", {}), "; did you mean 'vit-b-16:image_size=384'?");
  EXPECT_EQ(model_hint("deit_base_patch16_224.fb_in1k", {}), "; did you mean 'vit-b-16'?");
}

// No suggestion is better than one of another model whose name differs in a few letters.
TEST(Registry, OtherModelsAreNotSuggested) {
  const auto error = [](const std::string& model) { return error_of([&] { parse_model(model); }); };
  for (const char* model :
       {"seresnet50", "resnet50d", "resnetv2_50", "resnetrs50", "cspresnet50", "res2net50", "resnest50d",
        "ecaresnet50d", "resnet200", "resnet152d", "deit3_base_patch16_224", "xcit_nano_12_p16_224",
        "vit_base_patch16_224_miil", "vit_base_patch16_gap_224", "vit_giant_patch14_224", "ViT-H-14"}) {
    EXPECT_EQ(error(model).find("did you mean"), std::string::npos) << error(model);
  }
  EXPECT_NE(error("resnet50d").find("its architecture is not one of those here"), std::string::npos);
  // What a file names may be of any length.
  const auto long_one = error("vit_" + std::string(100000, 'a') + "_patch16_224");
  EXPECT_LT(long_one.size(), 1000U);
  EXPECT_NE(long_one.find("no model 'vit_aaa"), std::string::npos) << long_one;
}

TEST(Precision, LoadingHalfGivesFullPrecision) {
  const auto backbone = fresh(kSmallModels[2]);
  NamedTensors half("Tensor");
  for (const auto& item : state_dict(*backbone)) half.insert(item.key(), item.value().to(at::kHalf));
  const auto loaded = make_backbone(parse_model(kSmallModels[2]));
  load_state_dict(*loaded, half);
  for (const auto& item : loaded->named_parameters()) {
    EXPECT_EQ(item.value().scalar_type(), at::kFloat);
    EXPECT_TRUE(item.value().equal(half[item.key()].to(at::kFloat))) << item.key();
  }
}

TEST(Precision, OnMetaAModelTakesNoMemory) {
  const tpgm::OnDevice meta(at::kMeta);
  const auto backbone = make_backbone(parse_model("vit-l-16"));
  for (const auto& parameter : backbone->parameters()) EXPECT_TRUE(parameter.is_meta());
}

}  // namespace
}  // namespace tpgm::testing
