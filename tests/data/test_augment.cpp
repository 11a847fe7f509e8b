// Colors and shapes against torchvision on PIL images: tests/data/goldens/make_augment_goldens.py.
#include "tpgm/data/augment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/support.h"
#include "tpgm/data/image_ops.h"
#include "tpgm/io/safetensors.h"

namespace tpgm::testing {
namespace {

const SafetensorsFile& goldens() {
  static const SafetensorsFile file(std::filesystem::path(TPGM_TEST_DATA) /
                                    "data/goldens/augment.safetensors");
  return file;
}

Image encoded(const std::string& name) {
  const at::Tensor pixels = goldens().tensor(name);
  Image image(pixels.size(1), pixels.size(0));
  std::memcpy(image.pixels.data(), pixels.data_ptr(), image.pixels.size());
  return image;
}

Image noise(int64_t width, int64_t height) {
  Image image(width, height);
  Random random(1, 2, 3);
  for (uint8_t& value : image.pixels) value = static_cast<uint8_t>(random.integer(256));
  return image;
}

using Change = std::function<void(Image&, double)>;
const std::map<std::string, Change>& functions() {
  static const std::map<std::string, Change> all{
      {"adjust_brightness", adjust_brightness},
      {"adjust_contrast", adjust_contrast},
      {"adjust_saturation", adjust_saturation},
      {"adjust_sharpness", adjust_sharpness},
      {"adjust_hue", adjust_hue},
      {"posterize", [](Image& image, double bits) { posterize(image, static_cast<int64_t>(bits)); }},
      {"solarize", solarize},
      {"autocontrast", [](Image& image, double) { autocontrast(image); }},
      {"equalize", [](Image& image, double) { equalize(image); }},
      {"shear_x", shear_x},
      {"shear_y", shear_y},
      {"translate_x", [](Image& image, double by) { translate(image, static_cast<int64_t>(by), 0); }},
      {"translate_y", [](Image& image, double by) { translate(image, 0, static_cast<int64_t>(by)); }},
      {"rotate", rotate},
  };
  return all;
}

class ImageOp : public ::testing::TestWithParam<std::string> {};

TEST_P(ImageOp, IsPillowsToTheByte) {
  const std::string name = GetParam();
  size_t compared = 0;
  for (const auto& entry : goldens().entries()) {
    if (!entry.key().starts_with(name + "/")) continue;
    const size_t slash = entry.key().find('/', name.size() + 1);
    Image image = encoded("image/" + entry.key().substr(name.size() + 1, slash - name.size() - 1));
    functions().at(name)(image, std::stod(entry.key().substr(slash + 1)));
    EXPECT_EQ(image.pixels, encoded(entry.key()).pixels) << entry.key();
    ++compared;
  }
  EXPECT_GE(compared, 5U);
}

TEST_P(ImageOp, WantsThreeChannels) {
  Image grey(4, 3, 1);
  EXPECT_NE(error_of([&] { functions().at(GetParam())(grey, 0); }).find("channels"), std::string::npos);
}

TEST_P(ImageOp, LeavesNothingAsNothing) {
  Image empty(0, 0);
  functions().at(GetParam())(empty, GetParam() == "posterize" ? 4 : 0.3);
  EXPECT_TRUE(empty.pixels.empty());
}

INSTANTIATE_TEST_SUITE_P(Each, ImageOp, ::testing::ValuesIn([] {
                           std::vector<std::string> names;
                           for (const auto& each : functions()) names.push_back(each.first);
                           return names;
                         }()),
                         [](const auto& info) { return info.param; });

TEST(ImageOps, RefuseWhatPillowRefuses) {
  Image image = noise(3, 3);
  EXPECT_NE(error_of([&] { adjust_hue(image, 0.51); }).find("[adjust_hue]"), std::string::npos);
  EXPECT_NE(error_of([&] { posterize(image, 0); }).find("[posterize]"), std::string::npos);
  EXPECT_NE(error_of([&] { posterize(image, 9); }).find("[posterize]"), std::string::npos);
}

// The result of each case <prefix>/<i>, with changes that `parse` makes of rows.
template <class Parse>
void compare_sequences(const std::string& prefix, Parse&& parse) {
  size_t compared = 0;
  for (;; ++compared) {
    const std::string name = prefix + "/" + std::to_string(compared);
    if (goldens().entries().find(name + "/changes") == nullptr) break;
    const at::Tensor changes = goldens().tensor(name + "/changes");
    Image image = encoded("image/natural");
    for (int64_t i = 0; i < changes.size(0); ++i) apply(image, parse(changes[i]));
    EXPECT_EQ(image.pixels, encoded(name + "/result").pixels) << name;
  }
  EXPECT_GT(compared, 3U);
}

TEST(RandomAffine, DoesWhatTorchvisionDoes) {
  compare_sequences("affine", [](const at::Tensor& row) {
    return AffineChange{row[0].item<double>(), static_cast<int64_t>(row[1].item<double>()),
                        static_cast<int64_t>(row[2].item<double>()), row[3].item<double>()};
  });
}

TEST(RandomAffine, DrawsWithinItsRanges) {
  const auto options = AffineOptions().degrees(8).translate(0.1).scale(0.15);
  std::array<std::pair<double, double>, 4> seen;
  seen.fill({1e9, -1e9});
  for (uint64_t i = 0; i < 4000; ++i) {
    Random random(1, 2, i);
    const auto change = draw_affine(options, 40, 20, random);
    size_t at = 0;
    for (const double value : {change.degrees, static_cast<double>(change.right),
                               static_cast<double>(change.down), change.scale}) {
      auto& [low, high] = seen[at++];
      low = std::min(low, value), high = std::max(high, value);
    }
  }
  const std::array<std::pair<double, double>, 4> ranges{{{-8, 8}, {-4, 4}, {-2, 2}, {0.85, 1.15}}};
  for (size_t i = 0; i < 4; ++i) {
    const double near = 0.01 * (ranges[i].second - ranges[i].first);
    EXPECT_NEAR(seen[i].first, ranges[i].first, near) << i;
    EXPECT_NEAR(seen[i].second, ranges[i].second, near) << i;
  }
}

TEST(RandomAffine, WithoutStrengthLeavesImageAndStream) {
  Image image = noise(5, 4);
  const auto before = image.pixels;
  Random random(1, 2, 3), other(1, 2, 3);
  random_affine(image, AffineOptions(), random);
  EXPECT_EQ(image.pixels, before);
  EXPECT_EQ(random.bits(), other.bits());
  EXPECT_NE(error_of([&] { random_affine(image, AffineOptions().degrees(-1), random); }).find("degrees"),
            std::string::npos);
  EXPECT_NE(error_of([&] { random_affine(image, AffineOptions().translate(1.1), random); }).find("translate"),
            std::string::npos);
  EXPECT_NE(error_of([&] { random_affine(image, AffineOptions().scale(1), random); }).find("scale"),
            std::string::npos);
}

TEST(ColorJitter, DoesWhatTorchvisionDoes) {
  compare_sequences("color_jitter", [](const at::Tensor& row) {
    return ColorChange{static_cast<ColorProperty>(row[0].item<int64_t>()), row[1].item<double>()};
  });
}

TEST(ColorJitter, DrawsWithinItsRangesInAnyOrder) {
  const auto options = ColorJitterOptions().brightness(0.4).contrast(1.5).saturation(0.2).hue(0.1);
  const std::map<ColorProperty, std::pair<double, double>> ranges{{ColorProperty::kBrightness, {0.6, 1.4}},
                                                                  {ColorProperty::kContrast, {0, 2.5}},
                                                                  {ColorProperty::kSaturation, {0.8, 1.2}},
                                                                  {ColorProperty::kHue, {-0.1, 0.1}}};
  std::map<ColorProperty, std::pair<double, double>> seen;
  std::set<std::vector<ColorProperty>> orders;
  for (uint64_t i = 0; i < 2000; ++i) {
    Random random(7, 0, i);
    std::vector<ColorProperty> order;
    for (const auto& [property, factor] : draw_color_jitter(options, random)) {
      order.push_back(property);
      EXPECT_GE(factor, ranges.at(property).first);
      EXPECT_LE(factor, ranges.at(property).second);
      auto& [low, high] = seen.try_emplace(property, factor, factor).first->second;
      low = std::min(low, factor), high = std::max(high, factor);
    }
    EXPECT_EQ(order.size(), 4U);
    orders.insert(order);
  }
  EXPECT_EQ(orders.size(), 24U);
  for (const auto& [property, range] : ranges) {
    const double width = range.second - range.first;
    EXPECT_LT(seen[property].first, range.first + 0.01 * width);
    EXPECT_GT(seen[property].second, range.second - 0.01 * width);
  }
}

TEST(ColorJitter, LeavesAloneWhatIsZero) {
  Image image = noise(12, 9);
  const Image before = image;
  Random random(1, 0, 0);
  color_jitter(image, ColorJitterOptions(), random);
  EXPECT_EQ(image.pixels, before.pixels);
  const auto changes = draw_color_jitter(ColorJitterOptions().contrast(0.3), random);
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(changes[0].property, ColorProperty::kContrast);
}

TEST(ColorJitter, ThrowsForOptionsOutOfRange) {
  Image image = noise(4, 4);
  const auto error = [&](const ColorJitterOptions& options) {
    Random random(1, 0, 0);
    return error_of([&] { color_jitter(image, options, random); });
  };
  EXPECT_NE(error(ColorJitterOptions().brightness(-0.1)).find("brightness is -0.1"), std::string::npos);
  EXPECT_NE(error(ColorJitterOptions().contrast(-1)).find("contrast"), std::string::npos);
  EXPECT_NE(error(ColorJitterOptions().saturation(NAN)).find("saturation"), std::string::npos);
  EXPECT_NE(error(ColorJitterOptions().hue(0.6)).find("0 to 0.5"), std::string::npos);
  EXPECT_NE(error(ColorJitterOptions().hue(-0.1)).find("hue"), std::string::npos);
}

TEST(RandAugment, DoesWhatTorchvisionDoes) {
  compare_sequences("rand_augment", [](const at::Tensor& row) {
    return RandAugmentChange{static_cast<RandAugmentOp>(row[0].item<int64_t>()), row[1].item<int64_t>(),
                             row[2].item<int64_t>() != 0};
  });
}

TEST(RandAugment, HasTorchvisionsMagnitudes) {
  size_t tables = 0;
  for (const auto& entry : goldens().entries()) {
    const std::string prefix = "magnitudes/";
    if (!entry.key().starts_with(prefix)) continue;
    const int64_t width = std::stoll(entry.key().substr(prefix.size()));
    const int64_t height = std::stoll(entry.key().substr(entry.key().rfind('/') + 1));
    const at::Tensor table = goldens().tensor(entry.key());
    ASSERT_EQ(table.sizes(), at::IntArrayRef({kRandAugmentOps, kRandAugmentMagnitudes}));
    for (int64_t op = 0; op < kRandAugmentOps; ++op) {
      for (int64_t magnitude = 0; magnitude < kRandAugmentMagnitudes; ++magnitude) {
        EXPECT_EQ(rand_augment_amount(static_cast<RandAugmentOp>(op), magnitude, width, height),
                  table[op][magnitude].item<double>())
            << entry.key() << ", operation " << op << ", magnitude " << magnitude;
      }
    }
    ++tables;
  }
  EXPECT_EQ(tables, 3U);
}

TEST(RandAugment, DrawsEveryOperationAndSignEquallyOften) {
  constexpr int64_t kDraws = 28'000;
  std::map<RandAugmentOp, std::array<int64_t, 2>> counts;
  for (uint64_t i = 0; i < kDraws / 2; ++i) {
    Random random(3, 1, i);
    const auto changes = draw_rand_augment(RandAugmentOptions().num_ops(2).magnitude(11), random);
    ASSERT_EQ(changes.size(), 2U);
    for (const auto& change : changes) {
      EXPECT_EQ(change.magnitude, 11);
      ++counts[change.op][change.negative ? 1 : 0];
    }
  }
  EXPECT_EQ(counts.size(), static_cast<size_t>(kRandAugmentOps));
  for (const auto& [op, signs] : counts) {
    // Five deviations of a binomial distribution about 2000, and about 1000.
    EXPECT_NEAR(signs[0] + signs[1], kDraws / kRandAugmentOps, 220) << static_cast<int>(op);
    EXPECT_NEAR(signs[1], has_sign(op) ? kDraws / kRandAugmentOps / 2 : 0, has_sign(op) ? 160 : 0)
        << static_cast<int>(op);
  }
}

TEST(RandAugment, LeavesAloneImagesWithoutOperations) {
  Image image = noise(12, 9);
  const Image before = image;
  Random random(1, 0, 0);
  rand_augment(image, RandAugmentOptions(), random);
  EXPECT_EQ(image.pixels, before.pixels);
}

TEST(RandAugment, ThrowsForOptionsOutOfRange) {
  Image image = noise(4, 4);
  const auto error = [&](const RandAugmentOptions& options) {
    Random random(1, 0, 0);
    return error_of([&] { rand_augment(image, options, random); });
  };
  EXPECT_NE(error(RandAugmentOptions().num_ops(-1)).find("num_ops is -1"), std::string::npos);
  EXPECT_NE(error(RandAugmentOptions().num_ops(2).magnitude(31)).find("from 0 to 30"), std::string::npos);
  EXPECT_NE(error(RandAugmentOptions().num_ops(2).magnitude(-1)).find("magnitude"), std::string::npos);
}

TEST(Augment, IsAFunctionOfSeedEpochAndIndex) {
  const auto bytes = [](uint64_t seed, uint64_t epoch, uint64_t index) {
    Image image = noise(30, 20);
    Random random(seed, epoch, index);
    color_jitter(image, ColorJitterOptions().brightness(0.4).contrast(0.4).saturation(0.4).hue(0.1), random);
    rand_augment(image, RandAugmentOptions().num_ops(2), random);
    return image.pixels;
  };
  EXPECT_EQ(bytes(1, 2, 3), bytes(1, 2, 3));
  EXPECT_NE(bytes(1, 2, 3), bytes(2, 2, 3));
  EXPECT_NE(bytes(1, 2, 3), bytes(1, 3, 3));
  EXPECT_NE(bytes(1, 2, 3), bytes(1, 2, 4));
}

}  // namespace
}  // namespace tpgm::testing
