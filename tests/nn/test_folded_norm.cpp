// BatchNorms in the weights of convolutions: against autograd through the formula, CUDA against the CPU, and
// a convolution with its norm against the two one after the other.
#include "tpgm/nn/folded_norm.h"

#include <random>

#include "tests/support.h"
#include "tpgm/kernels/projection.h"
#include "tpgm/models/resnet.h"
#include "tpgm/nn/layers.h"
#include "tpgm/nn/precision.h"

namespace tpgm::test_folded_norm {
namespace {

using torch::Tensor;

constexpr double kEps = 1e-5;

// Convolutions of random shapes with their norms, leaves that take gradients.
std::vector<NormToFold> random_norms(int count) {
  std::mt19937 random(3);
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  std::vector<NormToFold> norms;
  for (int i = 0; i < count; ++i) {
    const int64_t out = draw(1, 70), in = draw(1, 40), side = draw(0, 1) == 1 ? 3 : 1;
    const auto vector = [out] { return torch::randn({out}, torch::kDouble); };
    auto weights = torch::randn({out, in, side, side}, torch::kDouble);
    if (i % 3 != 0) weights = weights.contiguous(torch::MemoryFormat::ChannelsLast);
    norms.push_back({weights, vector(), vector(), vector(), torch::rand({out}, torch::kDouble) + 0.1});
  }
  norms[0].weight[0] = 0;  // of a last norm that begins at nothing
  return norms;
}

std::vector<NormToFold> in(const std::vector<NormToFold>& norms, torch::Device device,
                           torch::ScalarType weights, torch::ScalarType numbers) {
  std::vector<NormToFold> result;
  for (const auto& each : norms) {
    const auto leaf = [&](const Tensor& tensor, torch::ScalarType type, bool trains = true) {
      return tensor.detach().to(device, type).clone().requires_grad_(trains);
    };
    result.push_back({leaf(each.weights, weights), leaf(each.weight, numbers), leaf(each.bias, numbers),
                      leaf(each.running_mean, numbers, false), leaf(each.running_var, numbers, false)});
  }
  return result;
}

// A loss that sees all results but the weights of the second and the shift of the third, and its gradients.
struct Seen {
  std::vector<Tensor> results, gradients;
};

Seen seen(const std::vector<NormToFold>& norms, const std::vector<FoldedNorms::Folded>& folded) {
  Seen result;
  std::vector<Tensor> leaves;
  Tensor loss;
  for (size_t i = 0; i < norms.size(); ++i) {
    const auto see = [&](const Tensor& tensor) {
      result.results.push_back(tensor.detach());
      const auto factor = torch::cos(torch::arange(tensor.numel(), tensor.options().dtype(torch::kDouble)));
      const auto part = (tensor.contiguous().flatten().to(torch::kDouble) * factor).sum();
      loss = loss.defined() ? loss + part : part;
    };
    if (i != 1) see(folded[i].weights);
    if (i != 2) see(folded[i].shift);
    leaves.insert(leaves.end(), {norms[i].weights, norms[i].weight, norms[i].bias});
  }
  result.gradients = torch::autograd::grad({loss}, leaves, {}, std::nullopt, false, /*allow_unused=*/true);
  return result;
}

std::vector<FoldedNorms::Folded> literal(const std::vector<NormToFold>& norms) {
  std::vector<FoldedNorms::Folded> result;
  for (const auto& each : norms) {
    const Tensor scale = each.weight / (each.running_var + kEps).sqrt();
    result.push_back({each.weights * scale.view({-1, 1, 1, 1}), each.bias - each.running_mean * scale});
  }
  return result;
}

void expect_alike(const std::vector<Tensor>& ours, const std::vector<Tensor>& theirs, double tolerance) {
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    // Nothing may stand for a gradient of zeros.
    const Tensor wanted = theirs[i].defined() ? theirs[i].cpu().to(torch::kDouble) : Tensor();
    if (!ours[i].defined()) {
      EXPECT_TRUE(!wanted.defined() || wanted.abs().max().item<double>() == 0) << i;
    } else if (!wanted.defined()) {
      EXPECT_EQ(ours[i].abs().max().item<double>(), 0) << i;
    } else {
      const double size = std::max(wanted.norm().item<double>(), 1e-30);
      EXPECT_LT((ours[i].cpu().to(torch::kDouble) - wanted).norm().item<double>(), tolerance * size) << i;
    }
  }
}

TEST(FoldedNorms, AreTheFormulaAndItsGradients) {
  torch::manual_seed(1);
  const auto norms = random_norms(20);
  const auto ours = in(norms, torch::kCPU, torch::kDouble, torch::kDouble),
             theirs = in(norms, torch::kCPU, torch::kDouble, torch::kDouble);
  const Seen result = seen(ours, fold(ours, kEps)), expected = seen(theirs, literal(theirs));
  expect_alike(result.results, expected.results, 1e-13);
  expect_alike(result.gradients, expected.gradients, 1e-12);
}

TEST(FoldedNorms, OnCudaAreTheCpuTwin) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA device";
  torch::manual_seed(2);
  const auto norms = random_norms(150);  // more than a launch takes
  for (const auto type : {torch::kFloat, torch::kBFloat16}) {
    const auto rounded = in(norms, torch::kCPU, type, torch::kFloat);
    const auto ours = in(rounded, torch::kCUDA, type, torch::kFloat),
               theirs = in(rounded, torch::kCPU, torch::kDouble, torch::kDouble);
    const Seen result = seen(ours, fold(ours, kEps)), expected = seen(theirs, fold(theirs, kEps));
    const double tolerance = type == torch::kFloat ? 1e-5 : 2e-2;
    expect_alike(result.results, expected.results, tolerance);
    expect_alike(result.gradients, expected.gradients, tolerance);
  }
}

class FoldedConv : public testing::OnDevice {};
TPGM_ON_EVERY_DEVICE(FoldedConv);

TEST_P(FoldedConv, IsTheConvolutionAndItsNorm) {
  if (device().is_cuda() && !kernels::tuned_for(0)) GTEST_SKIP() << "nothing is folded on this GPU";
  torch::manual_seed(3);
  const bool tf32 = at::globalContext().allowTF32CuDNN();
  at::globalContext().setAllowTF32CuDNN(false);
  for (const int64_t side : {1, 3}) {
    Conv2d conv(16, 24, side, /*stride=*/side == 3 ? 2 : 1);
    BatchNorm2d norm(24);
    torch::NoGradGuard no_grad;
    for (Tensor each : {conv->weight, norm->weight, norm->bias, norm->running_mean}) each.normal_();
    norm->running_var.uniform_(0.1, 2);
    conv->to(device());
    norm->to(device());
    conv->weight.set_data(conv->weight.contiguous(torch::MemoryFormat::ChannelsLast));
    const torch::AutoGradMode with_grad(true);
    const auto options = torch::TensorOptions(device());
    const Tensor x = torch::randn({4, 16, 9, 9}, options)
                         .contiguous(torch::MemoryFormat::ChannelsLast)
                         .requires_grad_(true);
    const Tensor residual = torch::randn_like(conv->forward(x))
                                .contiguous(torch::MemoryFormat::ChannelsLast)
                                .requires_grad_(true);
    const std::vector<Tensor> leaves{x, residual, conv->weight, norm->weight, norm->bias};
    const auto run = [&](bool training, bool folds) {
      norm->train(training);
      const FoldedNorms folded(folds ? FoldedNorms::Pairs{{conv.get(), norm.get()}} : FoldedNorms::Pairs{});
      EXPECT_EQ(FoldedNorms::of(*conv) != nullptr, folds && !training);
      const Tensor y = conv_norm(*conv, *norm, x, {.residual = residual}).first;
      auto result = torch::autograd::grad({y.square().sum()}, leaves);
      result.push_back(y.detach());
      return result;
    };
    expect_alike(run(false, true), run(false, false), 1e-4);
    const Tensor mean = norm->running_mean.clone();
    run(true, true);
    EXPECT_FALSE(torch::equal(mean, norm->running_mean)) << "a norm that trains is left alone";
    EXPECT_EQ(FoldedNorms::of(*conv), nullptr);
  }
  at::globalContext().setAllowTF32CuDNN(tf32);
}

// The gradients of all parameters in evaluation, and what the loss was.
std::vector<Tensor> evaluated(ResNet& model, const Tensor& images, bool amp) {
  model.eval();
  std::optional<Autocast> autocast;
  if (amp) autocast.emplace(images.device().type());
  const CastWeights cast(matrix_weights(model));
  const Tensor loss = model.forward(images).to(torch::kFloat).square().mean();
  autocast.reset();
  auto result = torch::autograd::grad({loss}, model.parameters(), {}, std::nullopt, false, true);
  result.push_back(loss.detach());
  return result;
}

// A whole network, with every kind of stem, pool and shortcut, against the same in float64 operations.
TEST_P(FoldedConv, AWholeNetworkHasTheGradientsOfItsOperations) {
  torch::manual_seed(4);
  const bool tf32 = at::globalContext().allowTF32CuDNN();
  at::globalContext().setAllowTF32CuDNN(false);
  for (const Stem stem : {Stem::kImageNet, Stem::kThree}) {
    const auto shared = std::make_shared<ResNet>(ResNetOptions()
                                                     .layers({1, 2})
                                                     .width(16)
                                                     .bottleneck(true)
                                                     .stem(stem)
                                                     .antialias(stem == Stem::kThree)
                                                     .image_size(32));
    auto& model = *shared;
    model.reset_parameters();
    {
      const torch::NoGradGuard no_grad;
      for (auto& item : model.named_buffers()) {
        if (item.key().ends_with("mean")) item.value().normal_(0, 0.3);
        if (item.key().ends_with("var")) item.value().uniform_(0.5, 2);
      }
      for (auto& item : model.named_parameters()) {
        if (item.value().dim() == 1) item.value().uniform_(0.5, 1.5);
      }
    }
    model.to(device());
    to_channels_last(model);
    const Tensor images = torch::randn({6, 3, 32, 32}, torch::TensorOptions(device()))
                              .contiguous(torch::MemoryFormat::ChannelsLast);
    const auto ours = evaluated(model, images, false);
    // The first layer's gradient, seen through all the others, came to 0.105 of its norm away.
    const auto in_bf16 = device().is_cuda() ? evaluated(model, images, true) : ours;
    // Nothing is folded by float64 weights.
    model.to(torch::kDouble);
    const auto expected = evaluated(model, images.to(torch::kDouble), false);
    expect_alike(ours, expected, 1e-4);
    for (size_t i = 0; i < expected.size(); ++i) {
      const auto wanted = expected[i].cpu();
      EXPECT_LT((in_bf16[i].cpu().to(torch::kDouble) - wanted).norm().item<double>(),
                (device().is_cuda() ? 0.2 : 1e-4) * wanted.norm().item<double>())
          << i;
    }
  }
  at::globalContext().setAllowTF32CuDNN(tf32);
}

// What takes no gradient keeps none: a frozen network's first layers are not gone through.
TEST_P(FoldedConv, FrozenLayersStayOutOfTheGraph) {
  Conv2d frozen(8, 8, 1), trained(8, 8, 1);
  BatchNorm2d first(8), second(8);
  for (auto* module :
       std::initializer_list<torch::nn::Module*>{frozen.get(), trained.get(), first.get(), second.get()}) {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : module->parameters()) parameter.fill_(0.5);
    for (auto& buffer : module->buffers()) buffer.fill_(1);
    module->to(device());
    module->eval();
  }
  for (auto* module : std::initializer_list<torch::nn::Module*>{frozen.get(), first.get()}) {
    for (auto& parameter : module->parameters()) parameter.set_requires_grad(false);
  }
  const FoldedNorms folded({{frozen.get(), first.get()}, {trained.get(), second.get()}});
  const Tensor x = torch::randn({2, 8, 4, 4}, torch::TensorOptions(device()))
                       .contiguous(torch::MemoryFormat::ChannelsLast);
  const Tensor y = conv_norm(*frozen, *first, x, {}).first;
  EXPECT_FALSE(y.requires_grad());
  EXPECT_TRUE(conv_norm(*trained, *second, y, {}).first.requires_grad());
}

}  // namespace
}  // namespace tpgm::test_folded_norm
