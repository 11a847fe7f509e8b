// Mixup, cutmix and smoothed labels against timm's: tests/data/goldens/make_augment_goldens.py.
#include "tpgm/data/mix.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>

#include "tests/support.h"
#include "tpgm/io/safetensors.h"

namespace tpgm::testing {
namespace {

Mix mix_of(const at::Tensor& values) {
  const auto value = [&](int64_t i) { return values[i].item<double>(); };
  const auto side = [&](int64_t i) { return values[i].item<int64_t>(); };
  return {value(0) != 0, value(1), side(2), side(3), side(4), side(5)};
}

Mix box_mix() { return {true, 1 - 6.0 / 64, 1, 4, 5, 7}; }

double difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kCPU, at::kDouble) - b.to(at::kCPU, at::kDouble)).abs().max().item<double>();
}

class MixOn : public OnDevice {
 protected:
  at::Tensor images(int64_t count = 4, at::ScalarType dtype = at::kFloat) const {
    return at::randn({count, 3, 8, 8}).to(device(), dtype);
  }
};

TEST_P(MixOn, IsTimms) {
  const SafetensorsFile file(std::filesystem::path(TPGM_TEST_DATA) / "data/goldens/mix.safetensors");
  const at::Tensor images = file.tensor("images").to(device()), labels = file.tensor("labels").to(device());
  size_t compared = 0;
  for (const auto& entry : file.entries()) {
    if (!entry.key().ends_with("/mix")) continue;
    const std::string name = entry.key().substr(0, entry.key().size() - 4);
    const at::Tensor values = file.tensor(entry.key());
    const Mix mix = mix_of(values);
    EXPECT_LT(difference(mix_images(images, mix), file.tensor(name + "/images")), mix.cutmix ? 1e-30 : 1e-6)
        << name;
    const at::Tensor targets = mix_targets(labels, 5, mix, values[6].item<double>());
    EXPECT_EQ(targets.scalar_type(), at::kFloat);
    EXPECT_EQ(targets.device(), images.device());
    EXPECT_LT(difference(targets, file.tensor(name + "/targets")), 1e-6) << name;
    ++compared;
  }
  EXPECT_EQ(compared, 7U);
}

TEST_P(MixOn, KeepsMemoryFormatAndDtypeAndTheImages) {
  for (const auto dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
      const at::Tensor original = images(4, dtype).contiguous(format), before = original.clone();
      for (const Mix& mix : {Mix{.lambda = 0.3}, box_mix()}) {
        const at::Tensor mixed = mix_images(original, mix);
        EXPECT_EQ(mixed.scalar_type(), dtype);
        EXPECT_TRUE(mixed.is_contiguous(format));
        EXPECT_EQ(mixed.strides(), original.strides());
        EXPECT_EQ(difference(original, before), 0);
        EXPECT_GT(difference(mixed, before), 0.1);
      }
    }
  }
}

TEST_P(MixOn, LeavesTheMiddleOfAnOddBatch) {
  const at::Tensor original = images(5);
  const at::Tensor labels = at::tensor({0, 1, 2, 3, 4}, at::kLong).to(device());
  for (const Mix& mix : {Mix{.lambda = 0.3}, box_mix()}) {
    EXPECT_EQ(difference(mix_images(original, mix)[2], original[2]), 0);
    EXPECT_EQ(mix_targets(labels, 5, mix)[2][2].item<float>(), 1);
  }
}

TEST_P(MixOn, ChangesNothingButSmoothsWithoutAMix) {
  const at::Tensor original = images();
  EXPECT_TRUE(mix_images(original, Mix()).is_same(original));
  const at::Tensor labels = at::tensor({0, 1, 1, 3}, at::kLong).to(device());
  const at::Tensor targets = mix_targets(labels, 4, Mix(), 0.2);
  EXPECT_NEAR(targets[0][0].item<float>(), 0.85, 1e-6);
  EXPECT_NEAR(targets[0][3].item<float>(), 0.05, 1e-6);
}

TPGM_ON_EVERY_DEVICE(MixOn);

TEST(DrawMix, DrawsFromTheBetaDistribution) {
  for (const double alpha : {0.2, 0.8, 3.0}) {
    double sum = 0, squares = 0;
    constexpr int kDraws = 40'000;
    for (uint64_t i = 0; i < kDraws; ++i) {
      Random random(1, 0, i);
      const Mix mix = draw_mix(MixOptions().mixup(alpha), 224, 224, random);
      EXPECT_FALSE(mix.cutmix);
      EXPECT_TRUE(mix.lambda >= 0 && mix.lambda <= 1);
      sum += mix.lambda, squares += (mix.lambda - 0.5) * (mix.lambda - 0.5);
    }
    const double variance = 1 / (4 * (2 * alpha + 1));
    EXPECT_NEAR(sum / kDraws, 0.5, 5 * std::sqrt(variance / kDraws));
    EXPECT_NEAR(squares / kDraws, variance, 5 * std::sqrt(2.0 / kDraws) * variance);  // kurtosis < 3
  }
}

TEST(DrawMix, LeavesTheAreaOutsideTheBox) {
  double mean = 0;
  bool edge = false;
  for (uint64_t i = 0; i < 2000; ++i) {
    Random random(1, 0, i);
    const Mix mix = draw_mix(MixOptions().cutmix(1), 30, 45, random);
    EXPECT_TRUE(mix.cutmix);
    EXPECT_TRUE(0 <= mix.top && mix.top <= mix.bottom && mix.bottom <= 30);
    EXPECT_TRUE(0 <= mix.left && mix.left <= mix.right && mix.right <= 45);
    EXPECT_EQ(mix.lambda,
              1 - static_cast<double>((mix.bottom - mix.top) * (mix.right - mix.left)) / (30 * 45));
    mean += mix.lambda / 2000;
    edge |= mix.right == 45;
  }
  EXPECT_TRUE(edge);
  EXPECT_GT(mean, 0.55);  // over 0.5, as boxes are cut off at the edge
  EXPECT_LT(mean, 0.85);
}

TEST(DrawMix, HeedsBothProbabilities) {
  int mixed = 0, cut = 0;
  for (uint64_t i = 0; i < 10'000; ++i) {
    Random random(1, 0, i);
    const auto options = MixOptions().mixup(5).cutmix(5).prob(0.6).switch_prob(0.25);
    const Mix mix = draw_mix(options, 224, 224, random);
    mixed += mix.lambda < 1 ? 1 : 0;
    cut += mix.cutmix ? 1 : 0;
  }
  EXPECT_NEAR(mixed, 6000, 250);
  EXPECT_NEAR(cut, 1500, 180);
  Random random(1, 0, 0);
  EXPECT_EQ(draw_mix(MixOptions(), 8, 8, random).lambda, 1);
  EXPECT_EQ(draw_mix(MixOptions().mixup(1).prob(0), 8, 8, random).lambda, 1);
}

TEST(DrawMix, IsAFunctionOfSeedEpochAndIndex) {
  const auto lambda = [](uint64_t seed, uint64_t epoch, uint64_t index) {
    Random random(seed, epoch, index);
    return draw_mix(MixOptions().mixup(1), 8, 8, random).lambda;
  };
  EXPECT_EQ(lambda(1, 2, 3), lambda(1, 2, 3));
  EXPECT_NE(lambda(1, 2, 3), lambda(2, 2, 3));
  EXPECT_NE(lambda(1, 2, 3), lambda(1, 3, 3));
  EXPECT_NE(lambda(1, 2, 3), lambda(1, 2, 4));
}

TEST(Mix, ThrowsForWhatItCannotDo) {
  const auto option_error = [](const MixOptions& options) {
    Random random(1, 0, 0);
    return error_of([&] { draw_mix(options, 8, 8, random); });
  };
  EXPECT_NE(option_error(MixOptions().mixup(-0.1)).find("mixup is -0.1"), std::string::npos);
  EXPECT_NE(option_error(MixOptions().cutmix(NAN)).find("cutmix"), std::string::npos);
  EXPECT_NE(option_error(MixOptions().prob(1.1)).find("prob is 1.1"), std::string::npos);
  EXPECT_NE(option_error(MixOptions().switch_prob(-1)).find("switch_prob"), std::string::npos);
  EXPECT_NE(option_error(MixOptions().smoothing(1)).find("smoothing is 1"), std::string::npos);

  const auto label_error = [](const at::Tensor& labels, double smoothing = 0) {
    return error_of([&] { mix_targets(labels, 5, Mix(), smoothing); });
  };
  EXPECT_NE(label_error(at::tensor({0, 5}, at::kLong)).find("the label 5 is out of range"),
            std::string::npos);
  EXPECT_NE(label_error(at::tensor({0, -1}, at::kLong)).find("the label -1"), std::string::npos);
  EXPECT_NE(label_error(at::tensor({0, 1}, at::kInt)).find("int64"), std::string::npos);
  EXPECT_NE(label_error(at::tensor({0, 1}, at::kLong), -0.1).find("smoothing"), std::string::npos);

  const at::Tensor bytes = at::zeros({2, 3, 8, 8}, at::kByte);
  EXPECT_NE(error_of([&] { mix_images(bytes, Mix{.lambda = 0.3}); }).find("takes floats"), std::string::npos);
  EXPECT_NE(error_of([&] { mix_images(bytes[0], box_mix()); }).find("expected [batch"), std::string::npos);
  EXPECT_NE(error_of([&] { mix_images(bytes.slice(3, 0, 6), box_mix()); }).find("is not within"),
            std::string::npos);
}

}  // namespace
}  // namespace tpgm::testing
