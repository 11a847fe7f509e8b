// The average of weights against timm's, and what may be done with it in the middle of training.

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "tests/support.h"
#include "tests/torch_nn.h"
#include "tpgm/io/state_dict.h"
#include "tpgm/train/ema.h"

namespace tpgm::testing::test_ema {
namespace {

constexpr double kTolerance = 1e-6;  // relative to the largest of a tensor

// timm's module of the goldens.
struct SmallImpl : torch::nn::Module {
  SmallImpl() {
    linear = register_module("linear", torch::nn::Linear(5, 7));
    norm = register_module("norm", torch::nn::BatchNorm1d(7));
  }
  torch::nn::Linear linear{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(Small);

NamedTensors copy(const NamedTensors& tensors) {
  NamedTensors result;
  for (const auto& item : tensors) {
    result.insert(item.key(), item.value().detach().cpu().clone());
  }
  return result;
}

void expect_identical(const NamedTensors& a, const NamedTensors& b) {
  ASSERT_EQ(a.keys(), b.keys());
  for (const auto& item : a) {
    EXPECT_TRUE(torch::equal(item.value(), b[item.key()])) << item.key();
  }
}

class EmaTest : public OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    if (IsSkipped()) return;
    goldens_ = load_state_dict(TPGM_TEST_DATA "/train/goldens/ema.safetensors");
    net_->to(device());
    assign("start/", -1);
  }
  // The golden's weights before training (update < 0) or at an update.
  void assign(const std::string& prefix, int64_t update) {
    const torch::NoGradGuard no_grad;
    for (auto& item : named_tensors(*net_)) {
      const auto& value = goldens_[prefix + item.key()];
      item.value().copy_(update < 0 ? value : value[update]);
    }
  }
  void train(Ema& ema, int64_t begin, int64_t end) {
    for (auto update = begin; update < end; ++update) {
      assign("weights/", update);
      ema.update();
    }
  }

  NamedTensors goldens_;
  Small net_;
};
TPGM_ON_EVERY_DEVICE(EmaTest);

TEST_P(EmaTest, IsThatOfTimm) {
  std::ifstream file(TPGM_TEST_DATA "/train/goldens/ema.json");
  const auto golden = nlohmann::json::parse(file);
  const int64_t updates = golden["updates"];
  for (const auto& [name, decay] : golden["decays"].items()) {
    SCOPED_TRACE(name);
    assign("start/", -1);
    Ema ema(*net_, decay);
    for (int64_t update = 0; update < updates; ++update) {
      train(ema, update, update + 1);
      if (update != 0 && update + 1 != updates) continue;
      for (const auto& item : ema.state_dict()) {
        if (!item.value().is_floating_point()) continue;
        const auto& expected = goldens_[name + "/" + std::to_string(update + 1) + "/" + item.key()];
        const double difference =
            ((item.value() - expected).abs().max() / expected.abs().max()).item<double>();
        EXPECT_LE(difference, kTolerance) << item.key();
      }
    }
    EXPECT_TRUE(torch::equal(ema.state_dict()["norm.num_batches_tracked"],
                             goldens_["copied/norm.num_batches_tracked"]));
  }
}

// timm's ModelEmaV3 with use_warmup and step = 1, 2, ...: its get_decay(), written out.
double timms_decay(int64_t step, double decay) {
  const int64_t after = std::max<int64_t>(0, step - 1);
  if (after <= 0) return 0;
  return std::min(1 - std::pow(1 + static_cast<double>(after), -2.0 / 3), decay);
}

TEST_P(EmaTest, WarmsUpAsTimms) {
  // The author's own words: 0.999 at 31.6K steps, 0.9999 at a million.
  EXPECT_NEAR(timms_decay(31'600, 1), 0.999, 1e-6);
  EXPECT_NEAR(timms_decay(1'000'000, 1), 0.9999, 1e-8);
  Ema ema(*net_, 0.6, /*warmup=*/true);
  NamedTensors expected;
  for (int64_t update = 0; update < 12; ++update) {
    train(ema, update, update + 1);
    const double decay = timms_decay(update + 1, 0.6);
    for (const auto& item : copy(named_tensors(*net_))) {
      if (!item.value().is_floating_point()) continue;
      const auto weights = item.value().to(torch::kDouble);
      if (update == 0) {
        expected.insert(item.key(), weights);  // and nothing of what it began with
      } else {
        expected[item.key()] = decay * expected[item.key()] + (1 - decay) * weights;
      }
    }
    const auto state = ema.state_dict();
    for (const auto& item : expected)
      EXPECT_TRUE(torch::allclose(state[item.key()].to(torch::kDouble), item.value(), 1e-5, 1e-6))
          << item.key() << " at " << update;
  }
}

TEST_P(EmaTest, WarmsUpOnceOverASeriesOfProcesses) {
  Ema whole(*net_, 0.9, true), part(*net_, 0.9, true);
  train(whole, 0, 3);
  const auto state = whole.state_dict();
  EXPECT_EQ(state[".updates"].item<int64_t>(), 3);
  part.load_state_dict(state);
  train(whole, 3, 8);
  train(part, 3, 8);
  expect_identical(part.state_dict(), whole.state_dict());

  // A state of a version without warm-up resumes with the constant decay that it began with.
  auto old = copy(state);
  old.erase(".updates");
  Ema constant(*net_, 0.9), resumed(*net_, 0.9, true);
  constant.load_state_dict(old);
  resumed.load_state_dict(old);
  train(constant, 3, 8);
  train(resumed, 3, 8);
  auto after = resumed.state_dict();
  after.erase(".updates");
  expect_identical(after, constant.state_dict());

  auto damaged = copy(state);
  damaged[".updates"] = torch::zeros({2});
  EXPECT_NE(error_of([&] { resumed.load_state_dict(damaged); }).find("'.updates' is not a count"),
            std::string::npos);
}

TEST_P(EmaTest, SwapsValuesInPlace) {
  Ema ema(*net_, 0.7);
  train(ema, 0, 3);
  const auto weights = copy(named_tensors(*net_));
  const auto average = ema.state_dict();
  std::vector<const void*> addresses;
  for (const auto& item : named_tensors(*net_)) {
    addresses.push_back(item.value().data_ptr());
  }
  ema.swap();
  expect_identical(copy(named_tensors(*net_)), average);
  expect_identical(ema.state_dict(), average);  // still the average
  EXPECT_NE(error_of([&] { ema.update(); }).find("[Ema::update] the module holds the average"),
            std::string::npos);
  EXPECT_NE(error_of([&] { ema.load_state_dict(average); }).find("the module holds the average"),
            std::string::npos);
  ema.swap();
  expect_identical(copy(named_tensors(*net_)), weights);
  expect_identical(ema.state_dict(), average);
  size_t k = 0;
  for (const auto& item : named_tensors(*net_)) {
    EXPECT_EQ(item.value().data_ptr(), addresses[k++]) << item.key();
  }
  EXPECT_TRUE(net_->linear->weight.requires_grad());
}

TEST_P(EmaTest, ResumesFromItsState) {
  Ema whole(*net_, 0.7);
  train(whole, 0, 6);
  const auto state = whole.state_dict();
  const auto then = copy(state);
  train(whole, 6, 12);
  expect_identical(state, then);  // a copy
  Ema second(*net_, 0.7);
  second.load_state_dict(state);
  expect_identical(second.state_dict(), then);
  train(second, 6, 12);
  expect_identical(second.state_dict(), whole.state_dict());
}

TEST_P(EmaTest, WorksOnEveryTypeAndLayout) {
  net_->linear->to(torch::kDouble);
  net_->norm->to(torch::kBFloat16);
  auto image = net_->register_parameter(
      "image", torch::randn({4, 3, 5, 5}, device()).contiguous(torch::MemoryFormat::ChannelsLast));
  Ema ema(*net_, 0.75);
  const auto before = ema.state_dict();
  {
    const torch::NoGradGuard no_grad;
    net_->linear->weight.add_(1);
    net_->norm->bias.add_(1);
    image.add_(1);
  }
  ema.update();
  const auto after = ema.state_dict();
  for (const auto& name : {"linear.weight", "norm.bias", "image"}) {
    EXPECT_TRUE(torch::allclose(after[name], before[name] + 0.25, 0, 1e-2)) << name;
    EXPECT_EQ(after[name].dtype(), named_tensors(*net_)[name].dtype());
  }
  // Weights that stand still leave the average's bits alone.
  Ema still(*net_, 0.9);
  const auto first = still.state_dict();
  still.update();
  expect_identical(still.state_dict(), first);
}

TEST_P(EmaTest, CountsATiedTensorOnce) {
  net_->register_parameter("tied", net_->linear->weight);
  Ema ema(*net_, 0.5);
  const auto before = net_->linear->weight.detach().clone();
  {
    const torch::NoGradGuard no_grad;
    net_->linear->weight.add_(1);
  }
  ema.update();
  const auto state = ema.state_dict();
  EXPECT_EQ(state.contains("tied") + state.contains("linear.weight"), 1);
  const auto& average = state.contains("tied") ? state["tied"] : state["linear.weight"];
  EXPECT_TRUE(torch::allclose(average, before.cpu() + 0.5));
  ema.swap();
  EXPECT_TRUE(torch::equal(net_->linear->weight.detach().cpu(), average));
}

TEST(EmaErrors, ADecayOutsideOfItsRange) {
  Small net;
  for (const double decay : {-0.1, 1.0, std::nan("")}) {
    EXPECT_NE(error_of([&] { Ema(*net, decay); }).find("[Ema] decay must be at least 0 and less than 1"),
              std::string::npos);
  }
}

TEST(EmaErrors, AStateOfAnotherModelIsRefused) {
  Small net;
  Ema ema(*net, 0.5);
  const auto before = ema.state_dict();
  const auto refusal = [&](const std::function<void(NamedTensors&)>& damage) {
    auto state = copy(before);
    damage(state);
    const auto message = error_of([&] { ema.load_state_dict(state); });
    expect_identical(ema.state_dict(), before);
    return message;
  };
  const auto says = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find("[Ema::load_state_dict] " + part), std::string::npos) << message;
  };
  says(refusal([](auto& state) { state.erase("norm.weight"); }), "the state has no 'norm.weight'");
  says(refusal([](auto& state) { state.insert("linear.wieght", torch::zeros({1})); }),
       "the model has no 'linear.wieght'; the nearest is 'linear.weight'");
  says(refusal([](auto& state) { state["linear.weight"] = torch::zeros({7, 4}); }),
       "'linear.weight' is Float [7, 4] in the state and Float [7, 5] in the model");
  says(refusal([](auto& state) { state["norm.bias"] = torch::zeros({7}, torch::kDouble); }),
       "'norm.bias' is Double [7] in the state and Float [7] in the model");
}

}  // namespace
}  // namespace tpgm::testing::test_ema
