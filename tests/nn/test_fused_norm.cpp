// BatchNorm and what follows it as one operation, against ATen's operations one after the other, against
// finite differences, and CUDA against the CPU.
#include "tpgm/nn/fused_norm.h"

#include <fmt/format.h>

#include <random>

#include "tests/support.h"
#include "tpgm/nn/precision.h"

namespace tpgm::test_fused_norm {
namespace {

using kernels::Pool;
using torch::Tensor;

struct Case {
  int64_t images, channels, height, width;
  bool residual, relu;
  Pool pool;
  bool training, two_readers;
  bool shift = false;  // the norm is x + bias
};

std::string name_of(const Case& each) {
  return fmt::format("[{}, {}, {}, {}]{}{} pool {}{}{}", each.images, each.channels, each.height, each.width,
                     each.residual ? " residual" : "", each.relu ? " relu" : "", static_cast<int>(each.pool),
                     each.training ? " training"
                     : each.shift  ? " shift"
                                   : "",
                     each.two_readers ? " two readers" : "");
}

// Every kind of operation on random shapes, channels in eights.
std::vector<Case> random_cases(int64_t most_channels) {
  std::mt19937 random(7);
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  std::vector<Case> cases;
  for (const auto& [training, shift] : {std::pair(true, false), {false, false}, {false, true}}) {
    for (const auto& [residual, relu, pool] :
         {std::tuple(false, true, Pool::kNone), std::tuple(false, false, Pool::kNone),
          std::tuple(true, true, Pool::kNone), std::tuple(false, true, Pool::kMax),
          std::tuple(false, true, Pool::kMean)}) {
      for (int i = 0; i < 4; ++i) {
        cases.push_back({draw(1, 5), 8 * draw(1, most_channels / 8), draw(2, 9), draw(2, 9), residual, relu,
                         pool, training, draw(0, 1) == 1, shift});
      }
    }
  }
  for (const bool residual : {true, false}) {  // one pixel: as few values as a last stage has
    for (const bool training : {true, false})
      cases.push_back({8, 16, 1, 1, residual, true, Pool::kNone, training, residual});
  }
  return cases;
}

// Everything that goes in, and the gradient that comes back.
struct Inputs {
  Tensor x, residual;
  NormTensors norm;
  Tensor grad_first, grad_second;  // of y

  Inputs(const Case& each, torch::ScalarType type) {
    const auto map = [&](int64_t height, int64_t width) {
      return torch::randn({each.images, each.channels, height, width}, type)
          .contiguous(torch::MemoryFormat::ChannelsLast);
    };
    const auto wide = type == torch::kDouble ? torch::kDouble : torch::kFloat;
    x = (2 * map(each.height, each.width) + torch::randn({1, each.channels, 1, 1}, type)).to(type);
    if (each.residual) residual = map(each.height, each.width);
    norm.bias = torch::randn({each.channels}, wide);
    if (!each.shift) {
      norm.weight = torch::randn({each.channels}, wide);
      norm.running_mean = torch::randn({each.channels}, wide);
      norm.running_var = torch::rand({each.channels}, wide) + 0.5;
    }
    norm.num_batches_tracked = torch::zeros({}, torch::kLong);
    const int64_t more = each.pool == Pool::kMax ? 1 : 0;
    const bool pools = each.pool != Pool::kNone;
    const int64_t height = pools ? (each.height + more) / 2 : each.height;
    const int64_t width = pools ? (each.width + more) / 2 : each.width;
    grad_first = map(height, width);
    if (each.two_readers) grad_second = map(height, width);
  }

  // A copy of other values or elsewhere; gradients flow to it.
  Inputs to(torch::Device device, torch::ScalarType type) const {
    Inputs copy = *this;
    const auto wide = type == torch::kDouble ? torch::kDouble : torch::kFloat;
    for (Tensor* map : {&copy.x, &copy.residual, &copy.grad_first, &copy.grad_second}) {
      if (map->defined())
        *map = map->detach().to(device, type).clone().contiguous(torch::MemoryFormat::ChannelsLast);
    }
    for (Tensor* each :
         {&copy.norm.weight, &copy.norm.bias, &copy.norm.running_mean, &copy.norm.running_var}) {
      if (each->defined()) *each = each->detach().to(device, wide).clone();
    }
    copy.norm.num_batches_tracked = norm.num_batches_tracked.to(device).clone();
    for (Tensor* each : {&copy.x, &copy.residual, &copy.norm.weight, &copy.norm.bias}) {
      if (each->defined()) each->requires_grad_(true);
    }
    return copy;
  }

  std::vector<Tensor> leaves() const {
    std::vector<Tensor> result{x, norm.bias};
    if (norm.weight.defined()) result.push_back(norm.weight);
    if (residual.defined()) result.push_back(residual);
    return result;
  }
};

SharedOutput fused(const Inputs& in, const Case& each) {
  return fused_norm(in.x, in.norm, {in.residual, each.relu, each.pool}, {each.training, 0.1, 1e-5});
}

SharedOutput plain(const Inputs& in, const Case& each) {
  Tensor y = each.shift ? (in.x + in.norm.bias.view({-1, 1, 1})).to(in.x.scalar_type())
                        : at::batch_norm(in.x, in.norm.weight, in.norm.bias, in.norm.running_mean,
                                         in.norm.running_var, each.training, 0.1, 1e-5,
                                         /*cudnn_enabled=*/false);
  if (in.residual.defined()) y = y + in.residual;
  if (each.relu) y = y.relu();
  if (each.pool == Pool::kMax) y = at::max_pool2d(y, 3, 2, 1);
  if (each.pool == Pool::kMean) y = at::avg_pool2d(y, 2);
  return {y, y};
}

Tensor loss_of(const SharedOutput& y, const Inputs& in) {
  Tensor loss = (y.first * in.grad_first).sum();
  return in.grad_second.defined() ? loss + (y.second * in.grad_second).sum() : loss;
}

double away(const Tensor& actual, const Tensor& expected) {
  const Tensor wide = expected.detach().cpu().to(torch::kDouble);
  const double size = wide.norm().item<double>();
  return ((actual.detach().cpu().to(torch::kDouble) - wide).norm() / (size > 0 ? size : 1)).item<double>();
}

template <class Run>
void expect_alike(const Case& each, const Inputs& ours, const Inputs& theirs, Run run_theirs,
                  double tolerance) {
  SCOPED_TRACE(name_of(each));
  const SharedOutput y = fused(ours, each), expected = run_theirs(theirs, each);
  EXPECT_LT(away(y.first, expected.first), tolerance);
  EXPECT_TRUE(torch::equal(y.first, y.second));
  const auto gradients = torch::autograd::grad({loss_of(y, ours)}, ours.leaves());
  const auto wanted = torch::autograd::grad({loss_of(expected, theirs)}, theirs.leaves());
  for (size_t i = 0; i < wanted.size(); ++i)
    EXPECT_LT(away(gradients[i], wanted[i]), tolerance) << "gradient " << i;
  if (each.shift) return;
  EXPECT_LT(away(ours.norm.running_mean, theirs.norm.running_mean), tolerance);
  EXPECT_LT(away(ours.norm.running_var, theirs.norm.running_var), tolerance);
}

TEST(FusedNorm, IsBatchNormAndWhatFollowsIt) {
  torch::manual_seed(1);
  for (const Case& each : random_cases(24)) {
    const Inputs in(each, torch::kDouble);
    expect_alike(each, in.to(torch::kCPU, torch::kDouble), in.to(torch::kCPU, torch::kDouble), plain, 1e-10);
  }
}

TEST(FusedNorm, HasTheGradientsOfFiniteDifferences) {
  torch::manual_seed(2);
  constexpr double kStep = 1e-6;
  for (const Case& each : random_cases(8)) {
    SCOPED_TRACE(name_of(each));
    const Inputs in = Inputs(each, torch::kDouble).to(torch::kCPU, torch::kDouble);
    const auto leaves = in.leaves();
    const auto gradients = torch::autograd::grad({loss_of(fused(in, each), in)}, leaves);
    for (size_t i = 0; i < leaves.size(); ++i) {
      const Tensor direction = torch::randn_like(leaves[i]);
      const auto moved = [&](double by) {
        const torch::NoGradGuard no_grad;
        Tensor leaf = leaves[i];
        leaf.add_(direction, by);
        // Statistics of the batch must not move the running ones of the next call.
        Inputs fresh = in;
        if (each.training) {
          fresh.norm.running_mean = in.norm.running_mean.clone();
          fresh.norm.running_var = in.norm.running_var.clone();
        }
        const double loss = loss_of(fused(each.training ? fresh : in, each), in).item<double>();
        leaf.sub_(direction, by);
        return loss;
      };
      const double difference = (moved(kStep) - moved(-kStep)) / (2 * kStep);
      const double expected = (gradients[i] * direction).sum().item<double>();
      EXPECT_NEAR(difference, expected, 1e-5 * (1 + std::abs(expected))) << "of input " << i;
    }
  }
}

TEST(FusedNorm, CountsBatchesInTrainingAlone) {
  for (const bool training : {true, false}) {
    const Case each{2, 8, 3, 3, false, true, Pool::kNone, training, false};
    const Inputs in = Inputs(each, torch::kFloat).to(torch::kCPU, torch::kFloat);
    const Tensor mean = in.norm.running_mean.clone();
    fused(in, each);
    EXPECT_EQ(in.norm.num_batches_tracked.item<int64_t>(), training ? 1 : 0);
    EXPECT_EQ(torch::equal(mean, in.norm.running_mean), !training);
  }
}

TEST(FusedNorm, LetsNoNanThroughUnseen) {
  const Case each{2, 8, 4, 4, false, true, Pool::kMax, false, false};
  Inputs in(each, torch::kFloat);
  in.x[1][3][2][2] = std::nan("");
  const SharedOutput y = fused(in.to(torch::kCPU, torch::kFloat), each);
  EXPECT_TRUE(y.first.isnan().any().item<bool>());
}

TEST(FusedNorm, RefusesASecondDerivative) {
  const Case each{2, 8, 3, 3, false, true, Pool::kNone, true, false};
  const Inputs in = Inputs(each, torch::kDouble).to(torch::kCPU, torch::kDouble);
  const Tensor loss = loss_of(fused(in, each), in);
  EXPECT_THROW(torch::autograd::grad({loss}, in.leaves(), {}, true, /*create_graph=*/true), c10::Error);
}

TEST(FusedNorm, RefusesOneValuePerChannelInTraining) {
  const Case each{1, 8, 1, 1, false, true, Pool::kNone, true, false};
  const Inputs in = Inputs(each, torch::kFloat).to(torch::kCPU, torch::kFloat);
  EXPECT_THROW(fused(in, each), c10::Error);
}

Tensor map_of(int64_t images, int64_t channels, int64_t height, int64_t width) {
  return torch::randn({images, channels, height, width}).contiguous(torch::MemoryFormat::ChannelsLast);
}

TEST(MeanPool, HasATwinThatIsAtens) {
  for (const int64_t side : {2, 5, 8}) {
    const Tensor x = map_of(3, 8, side, side + 1).requires_grad_(true);
    const Tensor expected = at::avg_pool2d(x, 2), dy = torch::randn_like(expected);
    const Tensor dx_expected = torch::autograd::grad({expected}, {x}, {dy})[0];
    const Tensor y = torch::empty_like(expected), dx = torch::empty_like(x);
    const kernels::FeatureMap map{kernels::DType::kFloat32, 3, side, side + 1, 8};
    kernels::batch_norm_cpu().mean_pool(map, x.const_data_ptr(), y.mutable_data_ptr(), nullptr);
    kernels::batch_norm_cpu().mean_pool_backward(map, dy.const_data_ptr(), dx.mutable_data_ptr(), nullptr);
    EXPECT_LT(away(y, expected), 1e-6);
    EXPECT_LT(away(dx, dx_expected), 1e-6);
  }
}

Tensor folded(const Tensor& x, int64_t front, int64_t back) {
  kernels::SpaceToDepth call;
  call.images = x.size(0), call.channels = x.size(1), call.height = x.size(2), call.width = x.size(3);
  call.front = front, call.back = back;
  call.from = call.to = kernels::DType::kFloat32;
  const Tensor y = torch::full({call.images, 16, call.lines(), call.columns()}, 7.f)
                       .contiguous(torch::MemoryFormat::ChannelsLast);
  call.x = x.const_data_ptr(), call.y = y.mutable_data_ptr();
  kernels::batch_norm_cpu().space_to_depth(call, nullptr);
  return y;
}

TEST(SpaceToDepth, HasTheTwoByTwoPixelsInItsChannels) {
  const Tensor x = map_of(2, 3, 6, 4), y = folded(x, 2, 1);
  const Tensor padded = at::constant_pad_nd(x, {4, 2, 4, 2});
  const Tensor expected = padded.view({2, 3, 6, 2, 5, 2}).permute({0, 3, 5, 1, 2, 4}).reshape({2, 12, 6, 5});
  EXPECT_TRUE(torch::equal(y.narrow(1, 0, 12), expected));
  EXPECT_TRUE(torch::equal(y.narrow(1, 12, 4), torch::zeros({2, 4, 6, 5})));
}

class FusedNormCuda : public ::testing::Test {
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA device";
  }
};

TEST_F(FusedNormCuda, IsTheCpuTwin) {
  torch::manual_seed(3);
  auto cases = random_cases(600);
  for (auto each : random_cases(16)) {
    each.images = 40;
    cases.push_back(each);
  }
  for (const Case& each : cases) {
    const Inputs in(each, torch::kFloat);
    expect_alike(each, in.to(torch::kCUDA, torch::kFloat), in.to(torch::kCPU, torch::kDouble), fused, 1e-4);
  }
}

TEST_F(FusedNormCuda, IsTheCpuTwinInBfloat16) {
  torch::manual_seed(4);
  for (const Case& each : random_cases(600)) {
    if (each.pool == Pool::kMax) continue;  // rounded values tie; see below
    const Inputs in(each, torch::kBFloat16);
    expect_alike(each, in.to(torch::kCUDA, torch::kBFloat16), in.to(torch::kCPU, torch::kDouble), fused,
                 2e-2);
  }
}

// Rounded to bf16, several pixels of a window can be its largest. As ATen does, the first of them gets all.
TEST_F(FusedNormCuda, PoolsBfloat16AsAtenDoes) {
  torch::manual_seed(5);
  for (const Case& each : random_cases(600)) {
    if (each.pool != Pool::kMax) continue;
    const Inputs in(each, torch::kBFloat16);
    expect_alike(each, in.to(torch::kCUDA, torch::kBFloat16), in.to(torch::kCUDA, torch::kBFloat16), plain,
                 3e-2);
  }
}

TEST_F(FusedNormCuda, PoolsTheMeanAsTheCpuDoes) {
  for (const auto type : {torch::kFloat, torch::kBFloat16}) {
    for (const int64_t side : {2, 5, 8, 30}) {
      const Tensor x = map_of(3, 24, side, side + 1).to(torch::kCUDA, type).requires_grad_(true);
      const Tensor twin = x.detach().cpu().to(torch::kDouble).requires_grad_(true);
      const Tensor y = mean_pool(x), expected = at::avg_pool2d(twin, 2), dy = torch::randn_like(y);
      EXPECT_LT(away(y, expected), type == torch::kFloat ? 1e-6 : 5e-3);
      const Tensor dx = torch::autograd::grad({y}, {x}, {dy})[0];
      const Tensor dx_expected = torch::autograd::grad({expected}, {twin}, {dy.cpu().to(torch::kDouble)})[0];
      EXPECT_LT(away(dx, dx_expected), type == torch::kFloat ? 1e-6 : 5e-3);
    }
  }
}

TEST_F(FusedNormCuda, FoldsStridesOfImagesAway) {
  torch::manual_seed(6);
  for (const int64_t side : {3, 7}) {
    for (const int64_t channels : {1, 2, 3, 4}) {
      const Tensor x = map_of(3, channels, 10, 14);
      const Tensor w = torch::randn({16, channels, side, side});
      const Tensor ours = w.to(torch::kCUDA, torch::kBFloat16)
                              .contiguous(torch::MemoryFormat::ChannelsLast)
                              .requires_grad_(true);
      const Tensor theirs = ours.detach().cpu().to(torch::kDouble).requires_grad_(true);
      const Tensor images = x.to(torch::kCUDA).contiguous(torch::MemoryFormat::ChannelsLast);
      ASSERT_TRUE(uses_space_to_depth(images, ours, 2));
      const Tensor y = space_to_depth_conv2d(images, ours);
      const Tensor expected = at::conv2d(x.to(torch::kBFloat16).to(torch::kDouble), theirs, {}, 2, side / 2);
      ASSERT_EQ(y.sizes(), expected.sizes());
      EXPECT_LT(away(y, expected), 1e-2);
      const Tensor dy = torch::randn_like(y);
      const Tensor dw = torch::autograd::grad({y}, {ours}, {dy})[0];
      const Tensor dw_expected =
          torch::autograd::grad({expected}, {theirs}, {dy.cpu().to(torch::kDouble)})[0];
      EXPECT_LT(away(dw, dw_expected), 1e-2);
    }
  }
}

TEST_F(FusedNormCuda, CastsWeightsTogetherAsAutocastDoesOneByOne) {
  const auto options = torch::TensorOptions(torch::kCUDA);
  const Tensor a = torch::randn({5, 7}, options).requires_grad_(true);
  const Tensor b =
      torch::randn({8, 3, 2, 2}, options).contiguous(torch::MemoryFormat::ChannelsLast).requires_grad_(true);
  const Tensor frozen = torch::randn({4, 4}, options),
               unused = torch::randn({6}, options).requires_grad_(true);
  const Autocast autocast(torch::kCUDA);
  const Tensor bias = torch::randn({7}, options).requires_grad_(true);
  const CastWeights cast({a, b, frozen, unused}, {bias});
  for (const Tensor& weight : {a, b, frozen}) {
    const Tensor copy = autocasted(weight);
    EXPECT_TRUE(torch::equal(copy, weight.to(torch::kBFloat16)));
    EXPECT_EQ(copy.requires_grad(), weight.requires_grad());
    EXPECT_TRUE(copy.is_same(autocasted(weight)));
  }
  EXPECT_EQ(autocasted(torch::ones({2}, options)).scalar_type(), torch::kBFloat16);
  const Tensor value = value_in(torch::kBFloat16, bias);
  EXPECT_TRUE(torch::equal(value, bias.to(torch::kBFloat16)));
  EXPECT_TRUE(value.is_same(value_in(torch::kBFloat16, bias)));
  EXPECT_FALSE(value.requires_grad());
  EXPECT_TRUE(autocasted(bias).requires_grad());
  EXPECT_TRUE(torch::equal(value_in(torch::kFloat, bias), bias));
  const Tensor da = torch::randn({5, 7}, options).to(torch::kBFloat16);
  const auto grads = torch::autograd::grad({(autocasted(a) * da).sum() + autocasted(b).sum()}, {a, b, unused},
                                           {}, false, false, /*allow_unused=*/true);
  EXPECT_TRUE(torch::equal(grads[0], da.to(torch::kFloat)));
  EXPECT_TRUE(torch::equal(grads[1], torch::ones_like(b)));
  EXPECT_FALSE(grads[2].defined());
}

TEST_F(FusedNormCuda, GivesTheSameBitsTwice) {
  const Case each{30, 64, 28, 28, true, true, Pool::kNone, true, true};
  const Inputs in(each, torch::kBFloat16);
  std::vector<Tensor> first;
  for (int run = 0; run < 3; ++run) {
    const Inputs copy = in.to(torch::kCUDA, torch::kBFloat16);
    const SharedOutput y = fused(copy, each);
    auto all = torch::autograd::grad({loss_of(y, copy)}, copy.leaves());
    all.push_back(y.first);
    if (run == 0) first = all;
    for (size_t i = 0; i < all.size(); ++i) EXPECT_TRUE(torch::equal(all[i], first[i])) << i;
  }
}

}  // namespace
}  // namespace tpgm::test_fused_norm
