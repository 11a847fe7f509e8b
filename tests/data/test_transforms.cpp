// Views against torchvision's and Pillow's: sizes and pixels, where crops fall, and what chance decides.
#include "tpgm/data/transforms.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "tests/io/scratch.h"
#include "tpgm/io/state_dict.h"

namespace tpgm {
namespace {

std::filesystem::path folder() {
  return std::filesystem::path(TPGM_TEST_DATA) / "data" / "goldens" / "images";
}

std::string bytes_of(const std::string& name) { return test::read_bytes(folder() / name); }

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> result;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) result.push_back(part);
  return result;
}

struct Difference {
  double mean = 0, beyond_one = 0;  // the share of values that differ by more than 1
  int largest = 0;
};

Difference difference(const Image& image, const uint8_t* expected) {
  Difference result;
  const auto count = static_cast<double>(image.pixels.size());
  for (size_t i = 0; i < image.pixels.size(); ++i) {
    const int each = std::abs(image.pixels[i] - expected[i]);
    result.mean += each / count;
    result.beyond_one += (each > 1) / count;
    result.largest = std::max(result.largest, each);
  }
  return result;
}

double mean_difference(const Image& a, const Image& b) {
  EXPECT_EQ(a.pixels.size(), b.pixels.size());
  return difference(a, b.pixels.data()).mean;
}

// Within a level on 99.9 %, and never by more than `largest`.
void expect_near(const Image& image, const at::Tensor& expected, int largest = 2) {
  ASSERT_EQ(image.height, expected.size(0));
  ASSERT_EQ(image.width, expected.size(1));
  ASSERT_EQ(image.channels, expected.size(2));
  const auto found = difference(image, expected.contiguous().const_data_ptr<uint8_t>());
  EXPECT_LE(found.beyond_one, 0.001);
  EXPECT_LE(found.largest, largest);
  EXPECT_LT(found.mean, 0.25);
}

const nlohmann::json& crops() {
  static const auto json = nlohmann::json::parse(std::ifstream(folder() / "cases.json"));
  return json.at("crops");
}

TEST(Transforms, ResizeAsPillow) {
  int count = 0;
  const auto views = load_state_dict(folder() / "views.safetensors");
  for (const auto& item : views) {
    const auto parts = split(item.key(), '/');  // resize/<source>/<interpolation>/<w>x<h>
    if (parts[0] != "resize") continue;
    SCOPED_TRACE(item.key());
    const std::string bytes = bytes_of(parts[1]);
    const auto size = split(parts[3], 'x');
    const Image image = resize(EncodedImage(bytes).decode(), std::stoll(size[0]), std::stoll(size[1]),
                               parsed<Interpolation>(parts[2]));
    // Pillow 13 takes the columns first where that is cheaper; LibTorch, as Pillow before, never does. Both
    // clip what overshoots in between.
    const auto* rows_first = views.find("rows_first/" + item.key());
    expect_near(image, item.value(), rows_first == nullptr ? 2 : 5);
    if (rows_first != nullptr) expect_near(image, *rows_first);
    ++count;
  }
  EXPECT_GT(count, 30);
}

TEST(Transforms, ResizeTakesGray) {
  const std::string bytes = bytes_of("grey_8.png");
  const Image colour = EncodedImage(bytes).decode();
  Image grey(colour.width, colour.height, 1);
  for (size_t i = 0; i < grey.pixels.size(); ++i) grey.pixels[i] = colour.pixels[3 * i];
  const Image a = resize(grey, 20, 13, Interpolation::kBicubic),
              b = resize(colour, 20, 13, Interpolation::kBicubic);
  ASSERT_EQ(a.channels, 1);
  for (size_t i = 0; i < a.pixels.size(); ++i) ASSERT_NEAR(a.pixels[i], b.pixels[3 * i], 1);
}

TEST(Transforms, EvalViewAsTorchvision) {
  int count = 0;
  for (const auto& item : load_state_dict(folder() / "views.safetensors")) {
    const auto parts = split(item.key(), '/');  // eval/<source>/<interpolation>/<image_size>/<crop_pct>
    if (parts[0] != "eval") continue;
    SCOPED_TRACE(item.key());
    const std::string bytes = bytes_of(parts[1]);
    const auto options = EvalViewOptions()
                             .interpolation(parsed<Interpolation>(parts[2]))
                             .image_size(std::stoll(parts[3]))
                             .crop_pct(std::stod(parts[4]));
    EncodedImage encoded(bytes);
    const Image view = eval_view(encoded, options);
    expect_near(view, item.value());
    EncodedImage in_memory(std::make_shared<Image>(encoded.decode()));
    EXPECT_EQ(eval_view(in_memory, options).pixels, view.pixels);
    ++count;
  }
  EXPECT_GT(count, 40);
}

TEST(Transforms, FastEvalViewIsNear) {
  for (const std::string name : {"calm_420.jpg", "calm_444.jpg", "calm_cmyk.jpg", "calm_progressive.jpg"}) {
    SCOPED_TRACE(name);
    const std::string bytes = bytes_of(name);
    EncodedImage encoded(bytes);
    for (const int64_t size : {16, 32, 48, 100}) {
      const auto options = EvalViewOptions().image_size(size);
      EXPECT_LT(mean_difference(eval_view(encoded, EvalViewOptions(options).decode(Decode::kFast)),
                                eval_view(encoded, options)),
                3);
    }
  }
}

TEST(Transforms, RefuseOptionsOutOfRange) {
  const std::string bytes = bytes_of("rgb_8.png");
  EncodedImage encoded(bytes);
  Random random(0, 0, 0);
  const auto eval = [&](const EvalViewOptions& options) {
    test::error_of([&] { eval_view(encoded, options); });
  };
  eval(EvalViewOptions().image_size(0));
  eval(EvalViewOptions().image_size(-5));
  eval(EvalViewOptions().crop_pct(0));
  eval(EvalViewOptions().crop_pct(-1));
  eval(EvalViewOptions().crop_pct(std::nan("")));
  // Each would take gigabytes.
  EXPECT_NE(test::error_of([&] {
              eval_view(encoded, EvalViewOptions().image_size(2000).crop_pct(0.01));
            }).find("`image_size` 2000 and `crop_pct` 0.01 resize an image to"),
            std::string::npos);
  eval(EvalViewOptions().image_size(100'000));
  eval(EvalViewOptions().image_size(int64_t{1} << 40));
  eval(EvalViewOptions().image_size(16).crop_pct(1e9));  // nothing would be left of the image
  const auto train = [&](const TrainViewOptions& options) {
    test::error_of([&] { train_view(encoded, options, random); });
  };
  train(TrainViewOptions().image_size(0));
  train(TrainViewOptions().scale({0, 1}));
  train(TrainViewOptions().scale({0.5, 0.2}));
  train(TrainViewOptions().scale({std::nan(""), 1}));
  train(TrainViewOptions().ratio({0, 1}));
  train(TrainViewOptions().ratio({2, 1}));
  train(TrainViewOptions().ratio({-1, 1}));
}

TrainViewOptions crop_options(const nlohmann::json& golden) {
  return TrainViewOptions()
      .scale(golden.at("scale").get<std::array<double, 2>>())
      .ratio(golden.at("ratio").get<std::array<double, 2>>());
}

TEST(Transforms, CropsFallBackAsTorchvisions) {
  int count = 0;
  for (const auto& golden : crops()) {
    if (!golden.contains("box")) continue;
    SCOPED_TRACE(golden.dump());
    for (uint64_t i = 0; i < 100; ++i) {
      Random random(1, 0, i);
      const Box box = random_crop(golden["width"], golden["height"], crop_options(golden), random);
      ASSERT_EQ(nlohmann::json({box.left, box.top, box.width, box.height}), golden["box"]);
    }
    ++count;
  }
  EXPECT_GE(count, 5);
}

TEST(Transforms, CropsFallAsTorchvisions) {
  constexpr int kDraws = 20'000;
  int count = 0;
  for (const auto& golden : crops()) {
    if (golden.contains("box")) continue;
    ++count;
    const int64_t width = golden["width"], height = golden["height"];
    const auto w = static_cast<double>(width), h = static_cast<double>(height);
    std::map<std::string, std::vector<double>> drawn;
    bool left_edge = false, right_edge = false;
    for (uint64_t i = 0; i < kDraws; ++i) {
      Random random(2, 1, i);
      const Box box = random_crop(width, height, crop_options(golden), random);
      ASSERT_TRUE(box.left >= 0 && box.top >= 0 && box.width > 0 && box.height > 0 &&
                  box.left + box.width <= width && box.top + box.height <= height);
      const auto box_w = static_cast<double>(box.width), box_h = static_cast<double>(box.height);
      drawn["area"].push_back(box_w * box_h / (w * h));
      drawn["log_ratio"].push_back(std::log(box_w / box_h));
      drawn["left"].push_back(static_cast<double>(box.left) / w);
      drawn["top"].push_back(static_cast<double>(box.top) / h);
      left_edge |= box.left == 0 && box.width < width;
      right_edge |= box.left > 0 && box.left + box.width == width;
    }
    EXPECT_TRUE(width == 1 || (left_edge && right_edge)) << "the ends of the range are part of it";
    for (const auto& [name, values] : drawn) {
      SCOPED_TRACE(fmt::format("{} of {} x {}", name, width, height));
      const auto& expected = golden.at(name);
      double mean = 0;
      for (const double value : values) mean += value / kDraws;
      // Five standard errors of a difference of two such means.
      const double error = 5 * expected.at("std").get<double>() * std::sqrt(2.0 / kDraws);
      EXPECT_NEAR(mean, expected.at("mean").get<double>(), error + 1e-5);
      for (size_t decile = 1; decile <= 9; ++decile) {
        // Many draws may share the value of a decile: it lies among them.
        const double at = expected.at("deciles")[decile - 1], share = static_cast<double>(decile) / 10;
        double below = 0, not_above = 0;
        for (const double value : values) {
          below += (value < at - 2e-5) / double{kDraws};
          not_above += (value <= at + 2e-5) / double{kDraws};
        }
        EXPECT_LE(below, share + 0.025);
        EXPECT_GE(not_above, share - 0.025);
      }
    }
  }
  EXPECT_GE(count, 5);
}

Image flipped(const Image& image) {
  Image result = image;
  for (int64_t y = 0; y < image.height; ++y) {
    for (int64_t x = 0; x < image.width; ++x) {
      std::copy_n(image.row(y) + image.channels * (image.width - 1 - x), image.channels,
                  result.row(y) + image.channels * x);
    }
  }
  return result;
}

TEST(Transforms, TrainViewIsTheCropResized) {
  for (const std::string name :
       {"view_landscape.jpg", "parts_progressive.jpg", "parts_rgb.png", "view_wide.png"}) {
    const std::string bytes = bytes_of(name);
    EncodedImage encoded(bytes);
    const Image whole = encoded.decode();
    const auto in_memory = std::make_shared<Image>(whole);
    int flips = 0;
    for (uint64_t i = 0; i < 100; ++i) {
      SCOPED_TRACE(fmt::format("{}, {}", name, i));
      const auto options = TrainViewOptions().image_size(24).decode(Decode::kExact);
      Random crop_only(3, 2, i), all(3, 2, i), again(3, 2, i);
      const Box box = random_crop(encoded.width(), encoded.height(), options, crop_only);
      Image part(box.width, box.height);
      for (int64_t y = 0; y < box.height; ++y) {
        std::copy_n(whole.row(box.top + y) + 3 * box.left, 3 * box.width, part.row(y));
      }
      const Image expected = resize(part, 24, 24, Interpolation::kBicubic);
      const Image view = train_view(encoded, options, all);
      const bool flip = view.pixels != expected.pixels;
      if (flip) {
        ASSERT_EQ(view.pixels, flipped(expected).pixels);
      }
      flips += flip;
      EncodedImage decoded(in_memory);
      ASSERT_EQ(train_view(decoded, options, again).pixels, view.pixels);
    }
    EXPECT_GT(flips, 25);
    EXPECT_LT(flips, 75);
  }
}

TEST(Transforms, TrainViewFlipsAsOftenAsAsked) {
  const std::string bytes = bytes_of("view_square.png");
  EncodedImage encoded(bytes);
  const auto in_memory = std::make_shared<Image>(encoded.decode());
  EncodedImage decoded(in_memory);
  for (const double share : {0.0, 0.25, 0.5, 1.0}) {
    int flips = 0;
    constexpr int kDraws = 2000;
    for (uint64_t i = 0; i < kDraws; ++i) {
      const auto options = TrainViewOptions().image_size(8).hflip(share);
      Random a(4, 0, i), b(4, 0, i);
      const Image view = train_view(decoded, options, a);
      const Image plain = train_view(decoded, TrainViewOptions(options).hflip(0), b);
      const bool flip = view.pixels != plain.pixels;
      if (flip) {
        ASSERT_EQ(view.pixels, flipped(plain).pixels);
      }
      flips += flip;
    }
    EXPECT_NEAR(flips, share * kDraws, 5 * std::sqrt(share * (1 - share) * kDraws));
  }
}

TEST(Transforms, TrainViewIsAFunctionOfSeedEpochAndIndex) {
  const std::string bytes = bytes_of("view_landscape.jpg");
  const auto options =
      TrainViewOptions()
          .image_size(24)
          .color_jitter(ColorJitterOptions().brightness(0.4).contrast(0.4).saturation(0.4).hue(0.1))
          .rand_augment(RandAugmentOptions().num_ops(2));
  const auto view = [&](uint64_t seed, uint64_t epoch, uint64_t index) {
    EncodedImage encoded(bytes);
    Random random(seed, epoch, index);
    return train_view(encoded, options, random).pixels;
  };
  const auto first = view(5, 6, 7);
  EXPECT_EQ(view(5, 6, 7), first);
  EXPECT_NE(view(6, 6, 7), first);
  EXPECT_NE(view(5, 7, 7), first);
  EXPECT_NE(view(5, 6, 8), first);
}

TEST(Transforms, FastTrainViewIsNear) {
  for (const std::string name : {"calm_420.jpg", "calm_444.jpg", "calm_cmyk.jpg", "calm_progressive.jpg"}) {
    SCOPED_TRACE(name);
    const std::string bytes = bytes_of(name);
    EncodedImage encoded(bytes);
    double sum = 0;
    constexpr int kDraws = 200;
    for (uint64_t i = 0; i < kDraws; ++i) {
      const auto options = TrainViewOptions().image_size(32);
      Random a(8, 0, i), b(8, 0, i);
      sum += mean_difference(train_view(encoded, TrainViewOptions(options).decode(Decode::kFast), a),
                             train_view(encoded, TrainViewOptions(options).decode(Decode::kExact), b));
    }
    EXPECT_LT(sum / kDraws, 3);
    RecordProperty(name, fmt::format("{:.2f}", sum / kDraws));
  }
}

}  // namespace
}  // namespace tpgm
