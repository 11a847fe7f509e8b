// A transformer's fused passes: against ATen's operations one after the other, against finite differences,
// CUDA against the CPU, and whole models with them and without.
#include "tpgm/nn/residual.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "tests/nn/trace.h"
#include "tests/support.h"
#include "tpgm/models/clip.h"
#include "tpgm/models/named_models.h"
#include "tpgm/nn/precision.h"
#include "tpgm/nn/testing.h"

namespace tpgm::test_residual {
namespace {

using kernels::Unit;
using testing::error_of;
using torch::Tensor;

using Tensors = std::vector<Tensor>;
using Call = std::function<Tensors(const Tensors&)>;

// A fixed random combination of all results, so that every element has a gradient of its own.
Tensor combined(const Tensors& results) {
  Tensor total;
  for (size_t i = 0; i < results.size(); ++i) {
    auto generator = at::detail::createCPUGenerator(100 + i);
    const Tensor weights =
        torch::randn(results[i].sizes(), generator, torch::kDouble).to(results[i].device());
    const Tensor part = (results[i].to(torch::kDouble) * weights).sum();
    total = total.defined() ? total + part : part;
  }
  return total;
}

struct Outcome {
  Tensors results, gradients;
};

Outcome run(const Call& call, const Tensors& inputs) {
  Tensors leaves;
  for (const auto& input : inputs) leaves.push_back(input.detach().clone().requires_grad_());
  const auto results = call(leaves);
  return {results, torch::autograd::grad({combined(results)}, leaves)};
}

void expect_close(const Tensors& actual, const Tensors& expected, double limit) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    const Tensor a = actual[i].detach().to(torch::kCPU, torch::kDouble);
    const Tensor b = expected[i].detach().to(torch::kCPU, torch::kDouble);
    ASSERT_EQ(a.sizes(), b.sizes()) << i;
    EXPECT_LE((a - b).abs().max().item<double>(), limit * std::max(1.0, b.abs().max().item<double>())) << i;
  }
}

void expect_close(const Outcome& actual, const Outcome& expected, double limit) {
  expect_close(actual.results, expected.results, limit);
  expect_close(actual.gradients, expected.gradients, limit);
}

// Central differences of the combined results, element by element.
Tensors differences(const Call& call, const Tensors& inputs) {
  const at::NoGradGuard no_grad;
  constexpr double kStep = 1e-5;
  Tensors result;
  for (size_t k = 0; k < inputs.size(); ++k) {
    Tensor difference = torch::empty_like(inputs[k]);
    for (int64_t i = 0; i < inputs[k].numel(); ++i) {
      const auto shifted = [&](double by) {
        Tensors moved = inputs;
        moved[k] = inputs[k].clone();
        moved[k].view(-1)[i] += by;
        return combined(call(moved)).item<double>();
      };
      difference.view(-1)[i] = (shifted(kStep) - shifted(-kStep)) / (2 * kStep);
    }
    result.push_back(difference);
  }
  return result;
}

// x, weight, shift, branch, bias; as many as asked for.
Tensors norm_inputs(at::IntArrayRef sizes, size_t count) {
  const int64_t width = sizes.back();
  const auto make = [](at::IntArrayRef of) { return torch::randn(of, torch::kDouble); };
  Tensors inputs{make(sizes), make({width}), make({width}), make(sizes), make({width})};
  inputs.resize(count);
  return inputs;
}

constexpr double kEps = 1e-2;

Call fused_stream(at::ScalarType branches) {
  return [branches](const Tensors& in) -> Tensors {
    const auto [sum, normed] = add_layer_norm(in[0], in.size() > 3 ? in[3] : Tensor(),
                                              in.size() > 4 ? in[4] : Tensor(), in[1], in[2], kEps, branches);
    return {sum, normed};
  };
}

Tensors plain_stream(const Tensors& in) {
  Tensor sum = in[0];
  if (in.size() > 3) sum = sum + in[3];
  if (in.size() > 4) sum = sum + in[4];
  return {sum, at::layer_norm(sum, {sum.size(-1)}, in[1], in[2], kEps)};
}

Call only(const Call& call, size_t which) {
  return [call, which](const Tensors& in) -> Tensors { return {call(in)[which]}; };
}

Call fused_act(Unit unit) {
  return [unit](const Tensors& in) -> Tensors { return {linear_act(in[0], in[1], in[2], unit)}; };
}

Call plain_act(Unit unit) {
  return [unit](const Tensors& in) -> Tensors {
    const Tensor x = at::linear(in[0], in[1], in[2]);
    return {unit == Unit::kGelu ? at::gelu(x) : x * at::sigmoid(1.702 * x)};
  };
}

Tensors act_inputs(at::IntArrayRef sizes, int64_t out) {
  return {torch::randn(sizes, torch::kDouble), torch::randn({out, sizes.back()}, torch::kDouble) * 0.3,
          torch::randn({out}, torch::kDouble)};
}

const std::vector<std::vector<int64_t>> kShapes{{1, 1, 3}, {1, 7}, {2, 3, 8}, {5, 11}};

TEST(FusedResidual, AgreesWithAtenAndWithFiniteDifferences) {
  torch::manual_seed(3);
  for (const auto& sizes : kShapes) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(sizes, " x ")));
    for (const size_t count : {3, 4, 5}) {
      const auto inputs = norm_inputs(sizes, count);
      const auto fused = fused_stream(torch::kDouble);
      const auto outcome = run(fused, inputs);
      expect_close(outcome, run(plain_stream, inputs), 1e-11);
      expect_close(outcome.gradients, differences(fused, inputs), 1e-7);
      expect_close(run(only(fused, 1), inputs), run(only(plain_stream, 1), inputs), 1e-11);
    }
    for (const auto unit : {Unit::kGelu, Unit::kQuickGelu}) {
      for (const int64_t out : {1, 5, 16}) {
        const auto inputs = act_inputs(sizes, out);
        const auto outcome = run(fused_act(unit), inputs);
        expect_close(outcome, run(plain_act(unit), inputs), 1e-11);
        expect_close(outcome.gradients, differences(fused_act(unit), inputs), 1e-7);
      }
    }
    const Tensor packed = torch::randn({sizes.front(), 3 * sizes.back()}, torch::kDouble);
    const Tensor beside = torch::empty_like(packed);
    expect_close({column_sums(packed.chunk(3, 1), beside)}, {packed.sum(0)}, 1e-11);
    EXPECT_TRUE(beside.equal(packed));
    expect_close({column_sums({packed.t()})}, {packed.sum(1)}, 1e-11);
  }
}

TEST(FusedResidual, TakesTheGradientOfTheSumAlone) {
  const auto inputs = norm_inputs({3, 5}, 5);
  const auto sum = only(fused_stream(torch::kDouble), 0);
  const auto outcome = run([&](const Tensors& in) { return sum(in); }, inputs);
  expect_close({outcome.gradients[0], outcome.gradients[4]},
               {outcome.gradients[3], outcome.gradients[3].sum(0)}, 1e-12);
  EXPECT_EQ(outcome.gradients[1].abs().max().item<double>(), 0);
}

TEST(FusedResidual, RefusesASecondDerivative) {
  auto inputs = norm_inputs({3, 5}, 3);
  for (auto& input : inputs) input.requires_grad_();
  const Tensor result = combined(fused_stream(torch::kDouble)(inputs));
  const auto error = error_of(
      [&] { torch::autograd::grad({result}, inputs, {}, /*retain_graph=*/true, /*create_graph=*/true); });
  EXPECT_NE(error.find("twice"), std::string::npos) << error;
}

TEST(FusedResidual, IsForWhatItWasMadeFor) {
  const Tensor x = torch::randn({2, 16});
  EXPECT_FALSE(fuses_stream(x, at::kFloat));
  const FuseOnCpu fuse;
  EXPECT_TRUE(fuses_stream(x, at::kFloat));
  EXPECT_TRUE(fuses_stream(x, at::kBFloat16));
  EXPECT_FALSE(fuses_stream(x, at::kHalf));
  EXPECT_FALSE(fuses_stream(x.to(at::kBFloat16), at::kBFloat16));
  EXPECT_FALSE(fuses_columns(x, at::kHalf, 16));
}

// With the fused passes, on the CPU, or without. Under autocast, if asked for.
Outcome run_model(torch::nn::Module& model, const std::function<Tensor()>& forward, bool fused, bool bf16) {
  std::optional<FuseOnCpu> fuse;
  if (fused) fuse.emplace();
  model.zero_grad();
  Tensor features;
  {
    const Trace trace;
    std::optional<Autocast> autocast;
    if (bf16) autocast.emplace(at::kCPU);
    features = forward();
    EXPECT_EQ(Trace::seen().count("aten::layer_norm") == 0, fused);
  }
  combined({features}).backward();
  Outcome outcome{{features.detach()}, {}};
  for (const auto& parameter : model.parameters()) outcome.gradients.push_back(parameter.grad().clone());
  return outcome;
}

void expect_same_model(torch::nn::Module& model, const std::function<Tensor()>& forward) {
  {
    const at::NoGradGuard no_grad;
    for (auto& parameter : model.parameters()) parameter.add_(0.1 * torch::randn_like(parameter));
  }
  const auto plain = run_model(model, forward, false, false);
  expect_close(run_model(model, forward, true, false), plain, 2e-5);
  // oneDNN's bf16 needs instructions that some virtual machines show and do not lend.
  const bool before = at::globalContext().userEnabledMkldnn();
  at::globalContext().setUserEnabledMkldnn(false);
  const auto rounded = run_model(model, forward, false, true), fused = run_model(model, forward, true, true);
  at::globalContext().setUserEnabledMkldnn(before);
  EXPECT_EQ(fused.results[0].scalar_type(), rounded.results[0].scalar_type());
  // Both round in every layer, here and there in another place: neither may be farther from the exact result.
  const auto distance = [&](const Outcome& outcome) {
    double squares = 0, of = 0;
    for (size_t i = 0; i < plain.gradients.size(); ++i) {
      squares += (outcome.gradients[i] - plain.gradients[i]).pow(2).sum().item<double>();
      of += plain.gradients[i].pow(2).sum().item<double>();
    }
    return std::sqrt(squares / of);
  };
  EXPECT_LT(distance(fused), 1.3 * distance(rounded));
  EXPECT_LT(distance(fused), 0.1);
}

TEST(FusedResidual, MakesTheSameModels) {
  torch::manual_seed(5);
  for (const std::string model : {"vit:width=24,depth=3,heads=3,patch=8,image_size=24",
                                  "vit:width=24,depth=2,heads=2,patch=8,image_size=24,pool=mean",
                                  "vit:width=24,depth=2,heads=2,patch=8,image_size=24,recompute=true",
                                  "clip-vit:width=24,depth=2,heads=2,patch=8,image_size=24,embedding=16"}) {
    SCOPED_TRACE(model);
    const auto backbone = make_backbone(parse_model(model));
    backbone->reset_parameters();
    const Tensor images = torch::randn({3, 3, 24, 24});
    expect_same_model(*backbone, [&] { return backbone->forward(images); });
    for (const auto& layer : backbone->blocks()) {
      const Tensor plain = backbone->features(images, layer);
      const FuseOnCpu fuse;
      expect_close({backbone->features(images, layer)}, {plain}, 1e-5);
    }
  }
  ClipText text(ClipTextOptions().context(9).vocab(30).width(24).depth(2).heads(2).embedding(16));
  text.reset_parameters();
  const Tensor tokens = torch::randint(30, {4, 9}, torch::kLong);
  expect_same_model(text, [&] { return text.forward(tokens); });
}

TEST(FusedResidual, LeavesOutTokensThatNobodyWants) {
  torch::manual_seed(6);
  torch::nn::Module owner;
  auto blocks = make_blocks(
      owner, {.width = 8, .depth = 2, .heads = 2, .mlp = 16, .activation = Activation::kGelu, .eps = 1e-5});
  {
    const at::NoGradGuard no_grad;
    for (auto& parameter : owner.parameters()) parameter.normal_(0, 0.5);
  }
  const Tensor x = torch::randn({3, 5, 8});
  for (const bool fused : {false, true}) {
    std::optional<FuseOnCpu> fuse;
    if (fused) fuse.emplace();
    for (const bool recompute : {false, true}) {
      const auto first = [&](int64_t wanted) {
        return [&, wanted](const Tensors& in) -> Tensors {
          return {run_blocks(blocks, in[0], 2, recompute, wanted).narrow(1, 0, 2)};
        };
      };
      expect_close(run(first(2), {x}), run(first(0), {x}), 1e-5);
      EXPECT_EQ(run_blocks(blocks, x, 2, recompute, 2).size(1), 2);
    }
  }
}

class FusedResidualCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA device";
    torch::manual_seed(7);
  }
};

Tensors moved(const Tensors& inputs, at::ScalarType branches, const std::set<size_t>& in_branches) {
  Tensors result;
  for (size_t i = 0; i < inputs.size(); ++i) {
    result.push_back(inputs[i].to(torch::kCUDA, in_branches.count(i) ? branches : torch::kFloat));
  }
  return result;
}

TEST_F(FusedResidualCuda, AgreesWithTheCpu) {
  for (const auto branches : {torch::kFloat, torch::kBFloat16}) {
    const double limit = branches == torch::kFloat ? 1e-4 : 2e-2;
    for (const auto& sizes :
         std::vector<std::vector<int64_t>>{{1, 8}, {3, 17, 64}, {5, 40, 768}, {300, 1280}}) {
      SCOPED_TRACE(fmt::format("{} {}", c10::toString(branches), fmt::join(sizes, " x ")));
      for (const size_t count : {3, 4, 5}) {
        const auto inputs = norm_inputs(sizes, count);
        expect_close(run(fused_stream(branches), moved(inputs, branches, {3})),
                     run(fused_stream(torch::kDouble), inputs), limit);
      }
      for (const auto unit : {Unit::kGelu, Unit::kQuickGelu}) {
        const auto inputs = act_inputs(sizes, 24);
        expect_close(run(fused_act(unit), moved(inputs, branches, {0, 1})), run(fused_act(unit), inputs),
                     3 * limit);
      }
    }
  }
}

TEST_F(FusedResidualCuda, MakesTheSameModels) {
  for (const std::string model : {"vit:width=64,depth=3,heads=2,patch=8,image_size=32",
                                  "clip-vit:width=64,depth=2,heads=2,patch=8,image_size=32,embedding=16"}) {
    SCOPED_TRACE(model);
    const auto backbone = make_backbone(parse_model(model));
    backbone->reset_parameters();
    const Tensor images = torch::randn({5, 3, 32, 32});
    const Tensor plain = backbone->forward(images);
    backbone->to(torch::kCUDA);
    expect_close({backbone->forward(images.cuda())}, {plain}, 1e-4);
    const Autocast bf16(at::kCUDA);
    expect_close({backbone->forward(images.cuda())}, {plain}, 5e-2);
  }
}

}  // namespace
}  // namespace tpgm::test_residual
