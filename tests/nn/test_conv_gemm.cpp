// Convolutions of few pixels against ATen's in double precision.
#include <random>

#include "tests/support.h"
#include "tpgm/nn/folded_norm.h"
#include "tpgm/nn/gemm.h"
#include "tpgm/nn/layers.h"
#include "tpgm/nn/one_dnn.h"
#include "tpgm/nn/testing.h"

namespace tpgm::test_conv_gemm {
namespace {

using at::Tensor;

constexpr auto kLast = at::MemoryFormat::ChannelsLast;

struct Case {
  int64_t batch, in, out, height, width, side, stride;
  bool bias;

  friend std::ostream& operator<<(std::ostream& out, const Case& c) {
    return out << c.batch << "×" << c.in << "×" << c.height << "×" << c.width << " to " << c.out << ", side "
               << c.side << ", stride " << c.stride << (c.bias ? ", bias" : "");
  }
};

std::vector<Case> cases() {
  std::mt19937 random(11);
  const auto one_of = [&](std::vector<int64_t> choices) { return choices[random() % choices.size()]; };
  std::vector<Case> all;
  for (int i = 0; i < 60; ++i) {
    all.push_back({one_of({1, 2, 3}), one_of({1, 3, 16, 40}), one_of({1, 8, 24, 50}), one_of({1, 2, 5, 7, 8}),
                   one_of({1, 3, 7, 6}), one_of({1, 3, 5}), one_of({1, 2, 3}), random() % 2 == 0});
  }
  return all;
}

struct Operands {
  Tensor x, weight, bias;

  explicit Operands(const Case& c)
      : x(at::randn({c.batch, c.in, c.height, c.width}).contiguous(kLast)),
        weight(at::randn({c.out, c.in, c.side, c.side}).contiguous(kLast)),
        bias(c.bias ? at::randn({c.out}) : Tensor()) {}

  Operands in(at::ScalarType type) const {
    Operands copy = *this;
    for (Tensor* each : {&copy.x, &copy.weight, &copy.bias})
      if (each->defined())
        *each = each->detach().to(type, /*non_blocking=*/false, /*copy=*/true).requires_grad_(true);
    return copy;
  }
  std::vector<Tensor> leaves() const {
    return bias.defined() ? std::vector{x, weight, bias} : std::vector{x, weight};
  }
};

void expect_near(const Tensor& actual, const Tensor& expected) {
  ASSERT_EQ(actual.sizes(), expected.sizes());
  const double away = (actual.to(at::kDouble) - expected).abs().max().item<double>();
  EXPECT_LT(away, 1e-5 * (1 + expected.abs().max().item<double>()));
}

TEST(ConvGemm, AreTheConvolutionAndItsGradients) {
  const AlwaysOneDnn one_dnn;
  for (const auto& each : cases()) {
    SCOPED_TRACE(::testing::Message() << each);
    const Operands given(each), ours = given.in(at::kFloat), exact = given.in(at::kDouble);
    ASSERT_TRUE(conv_runs_as_gemm(ours.x, ours.weight, each.stride));
    const Tensor y = conv_gemm(ours.x, ours.weight, ours.bias, each.stride);
    const Tensor expected = at::conv2d(exact.x, exact.weight, exact.bias, each.stride, each.side / 2);
    expect_near(y, expected);
    EXPECT_TRUE(y.is_contiguous(kLast));
    const Tensor dy = at::randn_like(y);
    const auto grads = torch::autograd::grad({y}, ours.leaves(), {dy});
    const auto expected_grads = torch::autograd::grad({expected}, exact.leaves(), {dy.to(at::kDouble)});
    for (size_t i = 0; i < grads.size(); ++i) expect_near(grads[i], expected_grads[i]);
  }
}

TEST(ConvGemm, TakeOnlyTheGradientsThatAreWanted) {
  const AlwaysOneDnn one_dnn;
  const Operands given({2, 8, 16, 5, 5, 3, 2, true}), exact = given.in(at::kDouble);
  for (int wanted = 0; wanted < 3; ++wanted) {
    Operands ours = given;
    const Tensor leaf = std::vector{ours.x, ours.weight, ours.bias}[wanted].requires_grad_(true);
    const Tensor y = conv_gemm(ours.x, ours.weight, ours.bias, 2);
    const Tensor expected = at::conv2d(exact.x, exact.weight, exact.bias, 2, 1);
    expect_near(torch::autograd::grad({y.square().sum()}, {leaf})[0],
                torch::autograd::grad({expected.square().sum()}, exact.leaves())[wanted]);
    leaf.requires_grad_(false);
  }
}

TEST(ConvGemm, CanBeChangedInPlaceAndDifferentiatedTwice) {
  const AlwaysOneDnn one_dnn;
  for (const int64_t side : {1, 3}) {
    const Operands given({2, 8, 16, 5, 5, side, 1, true}), ours = given.in(at::kFloat),
                                                           exact = given.in(at::kDouble);
    const auto second = [&](const Operands& of, const Tensor& y) {
      const auto first =
          torch::autograd::grad({(y.relu_() * y).sum()}, of.leaves(), {}, /*retain_graph=*/true,
                                /*create_graph=*/true);
      return torch::autograd::grad({first[0].square().sum() + first[1].square().sum()}, of.leaves());
    };
    const auto actual = second(ours, conv_gemm(ours.x, ours.weight, ours.bias, 1));
    const auto expected = second(exact, at::conv2d(exact.x, exact.weight, exact.bias, 1, side / 2));
    for (size_t i = 0; i < actual.size(); ++i) expect_near(actual[i], expected[i]);
  }
}

TEST(ConvGemm, AreForFewPixelsInChannelsLastAndSinglePrecision) {
  const AlwaysOneDnn one_dnn;
  const auto feature_map = [](int64_t side) { return at::randn({2, 8, side, side}).contiguous(kLast); };
  const auto weight = [](int64_t side) { return at::randn({16, 8, side, side}).contiguous(kLast); };
  EXPECT_TRUE(conv_runs_as_gemm(feature_map(16), weight(1), 1));
  EXPECT_FALSE(conv_runs_as_gemm(feature_map(17), weight(1), 1));
  EXPECT_TRUE(conv_runs_as_gemm(feature_map(17), weight(1), 2));
  EXPECT_TRUE(conv_runs_as_gemm(feature_map(8), weight(3), 1));
  EXPECT_FALSE(conv_runs_as_gemm(feature_map(9), weight(3), 1));
  EXPECT_FALSE(conv_runs_as_gemm(feature_map(8), weight(2), 1));  // a pixel more than the feature map has
  EXPECT_FALSE(conv_runs_as_gemm(feature_map(8).contiguous(), weight(3), 1));
  EXPECT_FALSE(conv_runs_as_gemm(feature_map(8), weight(3).contiguous(), 1));
  EXPECT_FALSE(conv_runs_as_gemm(feature_map(8).to(at::kDouble), weight(3).to(at::kDouble), 1));
  EXPECT_FALSE(conv_runs_as_gemm(at::empty({0, 8, 4, 4}).contiguous(kLast), weight(3), 1));
}

TEST(ConvGemm, AreWhatALayerComputes) {
  const AlwaysOneDnn one_dnn;
  Conv2d conv(8, 16, 3, 2);
  {
    const at::NoGradGuard no_grad;
    conv->weight.set_data(at::randn_like(conv->weight).contiguous(kLast));
  }
  const Tensor x = at::randn({2, 8, 7, 7}).contiguous(kLast);
  const Tensor y = conv->forward(x);
  EXPECT_EQ(y.grad_fn()->name().find("onvolution"), std::string::npos) << y.grad_fn()->name();
  expect_near(y.detach(), at::conv2d(x.to(at::kDouble), conv->weight.detach().to(at::kDouble), {}, 2, 1));
}

TEST(Conv2dLayer, GroupsAndBiasAreThoseOfAten) {
  for (const int64_t kernel : {1, 3, 7}) {
    for (const int64_t stride : {1, 2}) {
      for (const int64_t groups : {1, 2, 8}) {
        SCOPED_TRACE(::testing::Message() << kernel << ' ' << stride << ' ' << groups);
        Conv2d conv(8, 16, kernel, stride, groups, /*with_bias=*/true);
        {
          const at::NoGradGuard no_grad;
          for (auto& parameter : conv->parameters()) parameter.normal_();
          conv->weight.set_data(conv->weight.contiguous(kLast));
        }
        const Tensor x = at::randn({2, 8, 7, 7}).contiguous(kLast);
        const auto exact = [](const Tensor& tensor) {
          return tensor.detach().to(at::kDouble).requires_grad_(true);
        };
        const Tensor weight = exact(conv->weight), bias = exact(conv->bias);
        const Tensor expected =
            at::conv2d(x.to(at::kDouble), weight, bias, stride, kernel / 2, /*dilation=*/1, groups);
        const Tensor actual = conv->forward(x);
        EXPECT_EQ(actual.size(2), conv->side_after(7));
        expect_near(actual.detach(), expected.detach());
        actual.sum().backward();
        expected.sum().backward();
        expect_near(conv->weight.grad(), weight.grad());
        expect_near(conv->bias.grad(), bias.grad());
      }
    }
  }
  EXPECT_THROW(Conv2d(8, 16, 2), c10::Error);
  EXPECT_THROW(Conv2d(8, 16, 3, 1, 3), c10::Error);
}

TEST(Conv2dLayer, ANormIsNotFoldedIntoAConvolutionWithABias) {
  const at::NoGradGuard no_grad;
  Conv2d conv(8, 16, 3, 1, /*groups=*/2, /*with_bias=*/true);
  BatchNorm2d norm(16);
  for (auto& parameter : conv->parameters()) parameter.normal_();
  for (Tensor each : {norm->weight, norm->bias, norm->running_mean}) each.normal_();
  norm->running_var.uniform_(0.1, 2);
  norm->eval();
  const FoldedNorms folded({{conv.get(), norm.get()}});
  EXPECT_EQ(FoldedNorms::of(*conv), nullptr);
  const Tensor x = at::randn({2, 8, 7, 7});
  expect_near(conv_norm(*conv, *norm, x, {.relu = false}).first,
              norm->forward(conv->forward(x)).to(at::kDouble));
}

}  // namespace
}  // namespace tpgm::test_conv_gemm
