// GEMMs against ATen's in double precision, however their operands lie.
#include <ATen/Context.h>

#include <optional>
#include <random>

#include "tests/support.h"
#include "tpgm/nn/gemm.h"
#include "tpgm/nn/one_dnn.h"
#include "tpgm/nn/testing.h"

namespace tpgm::testing::test_gemm {
namespace {

using at::Tensor;

class Gemms : public OnDevice {
 protected:
  // Where ATen has to do it, it may add parts of a sum in bf16.
  void SetUp() override {
    OnDevice::SetUp();
    at::globalContext().setAllowBF16ReductionCuBLAS(false);
  }
  void TearDown() override {
    at::globalContext().setAllowBF16ReductionCuBLAS(true);
    at::globalContext().setBenchmarkCuDNN(false);
  }

  std::mt19937 random_{7};

  int64_t one_of(const std::vector<int64_t>& choices) { return choices[random_() % choices.size()]; }

  // [rows, cols] as it lies by itself, transposed, as columns of something wider, or every second row.
  Tensor matrix(int64_t rows, int64_t cols, at::ScalarType type) {
    const auto make = [&](int64_t r, int64_t c) { return at::randn({r, c}).to(device(), type); };
    switch (random_() % 5) {
      case 0:
        return make(cols, rows).t();
      case 1:
        return make(rows, 3 * cols).narrow(1, cols, cols);
      case 2:
        return make(2 * rows, cols).slice(0, 0, 2 * rows, 2);
      default:
        return make(rows, cols);
    }
  }

  // On the CPU bf16 is ATen's, and dies where a virtual machine shows AMX and does not lend it.
  std::vector<at::ScalarType> types() const {
    return device().is_cuda() ? std::vector{at::kBFloat16, at::kFloat} : std::vector{at::kFloat};
  }

  static Tensor exact(const Tensor& x) { return x.detach().cpu().to(at::kDouble); }

  // Sums are in fp32 at least. The result is rounded once, and so is the sum with what it is added to.
  static void expect_rounded(const char* what, const Tensor& actual, const Tensor& matmul,
                             const Tensor& added, const Tensor& scale) {
    SCOPED_TRACE(what);
    const double unit = actual.scalar_type() == at::kBFloat16 ? 0x1p-8 : 0x1p-20;
    const Tensor expected = matmul + added, away = (exact(actual) - expected).abs();
    const Tensor limit = 1.01 * unit * (expected.abs() + (added != 0) * matmul.abs()) + 1e-5 * scale;
    EXPECT_TRUE((away <= limit).all().item<bool>()) << "off by " << (away - limit).max().item<double>();
  }
};
TPGM_ON_EVERY_DEVICE(Gemms);

TEST_P(Gemms, AgreeWithAtenInDoublePrecision) {
  for (const auto type : types()) {
    for (int round = 0; round < 60; ++round) {
      std::optional<AlwaysOneDnn> one_dnn;
      if (round % 3 != 0) one_dnn.emplace();
      at::globalContext().setBenchmarkCuDNN(round % 2 == 0);  // chosen by timing, and not
      const bool large = round % 10 == 0;                     // enough for a search
      const auto sizes = [&] { return large ? 768 : one_of({1, 8, 24, 50, 64, 200, 768}); };
      const int64_t rows = sizes(), cols = sizes(), inner = sizes();
      SCOPED_TRACE(::testing::Message() << rows << " × " << inner << " × " << cols << ", round " << round);
      const Tensor a = matrix(rows, inner, type), b = matrix(inner, cols, type);
      Tensor bias = at::randn({2 * cols}).to(device(), type);
      bias = round % 2 == 0 ? bias.narrow(0, 0, cols) : bias.slice(0, 0, 2 * cols, 2);
      const Tensor expected = exact(a).mm(exact(b)), scale = exact(a).abs().mm(exact(b).abs());
      const Tensor nothing = at::zeros_like(expected);
      Tensor out;
      ASSERT_NO_THROW(out = gemm(a, b));
      ASSERT_EQ(out.scalar_type(), type);
      expect_rounded("matmul", out, expected, nothing, scale);
      ASSERT_NO_THROW(out = weight_gradient(a.t(), b));
      expect_rounded("a gradient", out, expected, nothing, scale);
      ASSERT_NO_THROW(out = gemm(a, b, bias));
      expect_rounded("with a bias", out, expected, exact(bias).expand_as(expected), scale);
      out = matrix(rows, cols, type);
      if (rows == 1) out = out.clone(at::MemoryFormat::Contiguous);  // ATen's addmm_ takes no column as a row
      const Tensor held = exact(out);
      ASSERT_NO_THROW(gemm_into(out, a, b, /*add=*/true));
      expect_rounded("added", out, expected, held, scale);
      ASSERT_NO_THROW(gemm_into(out, a, b));
      expect_rounded("in place", out, expected, nothing, scale);
    }
  }
}

TEST_P(Gemms, LinearHasTheGradientsOfItsOperation) {
  for (const auto type : types()) {
    const Tensor x = at::randn({5, 7, 48}).to(device(), type).requires_grad_();
    const Tensor weight = at::randn({32, 48}).to(device(), type).requires_grad_();
    const Tensor bias = at::randn({32}).to(device(), type).requires_grad_();
    const AlwaysOneDnn one_dnn;
    for (const auto& dy :
         {at::randn({5, 7, 32}).to(device(), type), at::randn({5, 32, 7}).to(device(), type).mT(),
          at::randn({1}).to(device(), type).expand({5, 7, 32})}) {
      const Tensor y = linear_gemm(x, weight);
      x.mutable_grad().reset();
      weight.mutable_grad().reset();
      y.backward(dy);
      const Tensor rows = exact(x).view({-1, 48}), d_rows = exact(dy).reshape({-1, 32});
      const Tensor shifted = linear_gemm(x, weight, bias);
      EXPECT_LT((exact(shifted) - exact(y) - exact(bias)).abs().max().item<double>(),
                type == at::kFloat ? 1e-5 : 0.3);
      const auto d_bias = torch::autograd::grad({shifted}, {bias}, {dy})[0];
      const Tensor positive = linear_gemm(x, weight).relu_();  // in place, as autograd allows
      const auto d_x = torch::autograd::grad({positive}, {x}, {dy})[0];
      const Tensor expected = (d_rows * (exact(y).view({-1, 32}) > 0)).mm(exact(weight)).view({5, 7, 48});
      EXPECT_LT((exact(d_x) - expected).abs().max().item<double>(), type == at::kFloat ? 1e-4 : 0.5);
      EXPECT_LT((exact(d_bias) - d_rows.sum(0)).abs().max().item<double>(), type == at::kFloat ? 1e-5 : 0.3);
      const auto expect = [](const char* what, const Tensor& actual, const Tensor& a, const Tensor& b) {
        const Tensor expected = a.mm(b);
        expect_rounded(what, actual.reshape(expected.sizes()), expected, at::zeros_like(expected),
                       a.abs().mm(b.abs()));
      };
      expect("forward", y, rows, exact(weight).t());
      expect("x", x.grad(), d_rows, exact(weight));
      expect("weight", weight.grad(), d_rows.t(), rows);
    }
  }
}

TEST_P(Gemms, LinearKeepsWhatItsGradientsNeed) {
  const AlwaysOneDnn one_dnn;
  const auto type = types().front();
  const auto make = [&](at::IntArrayRef sizes) { return at::randn(sizes).to(device(), type); };
  const Tensor x = make({6, 16}), weight = make({8, 16}), bias = make({8}), dy = make({6, 8});
  const std::vector<Tensor> expected{exact(dy).mm(exact(weight)), exact(dy).t().mm(exact(x)),
                                     exact(dy).sum(0)};
  for (size_t trains = 0; trains < 3; ++trains) {
    std::vector<Tensor> all{x.detach(), weight.detach(), bias.detach()};
    all[trains].requires_grad_();
    linear_gemm(all[0], all[1], all[2]).backward(dy);
    const Tensor found = exact(all[trains].grad());
    EXPECT_LT((found - expected[trains]).norm().item<double>(),
              (type == at::kFloat ? 1e-5 : 2e-2) * expected[trains].norm().item<double>())
        << trains;
  }
}

TEST_P(Gemms, LinearCanBeDifferentiatedTwice) {
  for (const auto type : types()) {
    const auto leaf = [&](at::IntArrayRef sizes) { return at::randn(sizes).to(device(), type); };
    const Tensor x = leaf({6, 16}), weight = leaf({8, 16}), bias = leaf({8}), dy = leaf({6, 8});
    const auto second = [&](const auto& linear, at::ScalarType in) {
      const auto own = [&](const Tensor& tensor) { return tensor.to(in).detach().requires_grad_(); };
      const Tensor a = own(x), w = own(weight), b = own(bias), d = own(dy);
      const auto first = torch::autograd::grad({linear(a, w, b)}, {a, w, b}, {d}, std::nullopt,
                                               /*create_graph=*/true);
      const Tensor sum = first[0].pow(2).sum() + first[1].pow(2).sum() + first[2].pow(2).sum();
      return torch::autograd::grad({sum}, {a, w, d});
    };
    const AlwaysOneDnn one_dnn;
    const auto ours = second([](auto&... all) { return linear_gemm(all...); }, type);
    const auto theirs = second([](auto&... all) { return at::linear(all...); }, at::kDouble);
    for (size_t i = 0; i < ours.size(); ++i) {
      const double away = (exact(ours[i]) - exact(theirs[i])).norm().item<double>();
      EXPECT_LT(away, (type == at::kFloat ? 1e-5 : 2e-2) * exact(theirs[i]).norm().item<double>()) << i;
    }
  }
}

TEST_P(Gemms, OfShapesThatDoNotFitAreRefused) {
  const auto type = types().front();
  const auto make = [&](int64_t rows, int64_t cols) { return at::zeros({rows, cols}).to(device(), type); };
  EXPECT_FALSE(error_of([&] { gemm(make(8, 16), make(8, 16)); }).empty());
  EXPECT_FALSE(error_of([&] { gemm(make(8, 16), make(16, 8), make(1, 16).view({16})); }).empty());
  Tensor out = make(16, 16);
  EXPECT_FALSE(error_of([&] { gemm_into(out, make(8, 16), make(16, 8), /*add=*/true); }).empty());
}

}  // namespace
}  // namespace tpgm::testing::test_gemm
