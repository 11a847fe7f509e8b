// The transforms of images: what decides each value, and that callers of the library get those of the commands.
#include "tpgm/train/image_setup.h"

#include <gtest/gtest.h>

#include "tests/data/data_files.h"
#include "tests/support.h"
#include "tpgm/io/file.h"
#include "tpgm/io/state_dict.h"
#include "tpgm/models/named_models.h"

namespace tpgm::test_image_setup {
namespace {

using Triple = LoaderOptions::Triple;

class ImageSetup : public test::Scratch {
 protected:
  // A classifier of ours for images of 8 pixels, with or without a view in its metadata.
  LoadedClassifier load(const std::string& view = "") const {
    ModelConfig config = parse_model("vit:image_size=8,channels=1,patch=4,width=8,depth=1,heads=1,mlp=8");
    set_defaults(config);
    auto backbone = make_backbone(config);
    backbone->reset_parameters();
    Metadata metadata{{"tpgm.model", to_text(config)}};
    if (!view.empty()) metadata["tpgm.view"] = view;
    save_weights(Classifier(backbone, ClassifierOptions().num_classes(2)), file("model.safetensors"),
                 metadata);
    return load_classifier("", file("model.safetensors"), {});
  }
  static Images images(const LoadedClassifier& loaded, const Settings& settings) {
    return make_images(make_options(settings), *loaded.model, loaded.metadata, at::kCPU);
  }
};

TEST_F(ImageSetup, TheUserComesFirstThenMetadataThenTheConfigThenTheFamily) {
  const auto usual = image_transforms(load());
  EXPECT_EQ(usual.eval.image_size(), 8);
  EXPECT_EQ(usual.train.image_size(), 8);
  EXPECT_EQ(usual.eval.crop_pct(), 0.875);
  EXPECT_EQ(usual.eval.interpolation(), Interpolation::kBicubic);
  EXPECT_EQ(usual.loader.channels(), 1);
  EXPECT_EQ(usual.loader.mean(), (Triple{0.485, 0.456, 0.406}));
  EXPECT_EQ(usual.loader.std(), (Triple{0.229, 0.224, 0.225}));

  write_file(file("preprocessor_config.json"), R"({"image_mean": [0.1, 0.2, 0.3], "image_std": 0.5,
      "resample": 2, "do_center_crop": true, "crop_size": 8, "size": {"shortest_edge": 10}})");
  const auto config = image_transforms(load());
  EXPECT_EQ(config.loader.mean(), (Triple{0.1, 0.2, 0.3}));
  EXPECT_EQ(config.loader.std(), (Triple{0.5, 0.5, 0.5}));
  EXPECT_EQ(config.eval.crop_pct(), 0.8);
  EXPECT_EQ(config.eval.interpolation(), Interpolation::kBilinear);
  EXPECT_EQ(config.train.interpolation(), Interpolation::kBilinear);

  const auto ours = load(R"({"mean": [0.6], "crop_pct": 0.7})");
  const auto metadata = image_transforms(ours);
  EXPECT_EQ(metadata.loader.mean(), (Triple{0.6, 0.6, 0.6}));
  EXPECT_EQ(metadata.loader.std(), (Triple{0.5, 0.5, 0.5}));
  EXPECT_EQ(metadata.eval.crop_pct(), 0.7);

  const auto given = images(ours, {{"mean", "0.9"}, {"interpolation", "bicubic"}});
  EXPECT_EQ(given.loader.mean(), (Triple{0.9, 0.9, 0.9}));
  EXPECT_EQ(given.loader.std(), (Triple{0.5, 0.5, 0.5}));
  EXPECT_EQ(given.eval.crop_pct(), 0.7);
  EXPECT_EQ(given.eval.interpolation(), Interpolation::kBicubic);
  EXPECT_EQ(given.train.interpolation(), Interpolation::kBicubic);
  EXPECT_EQ(image_transforms(*ours.model, ours.metadata, {{0.9}, {}, {}, {}}).loader.mean(),
            given.loader.mean());
}

TEST_F(ImageSetup, CommandsAddTheirOptions) {
  const auto loaded = load();
  const auto all =
      images(loaded, {{"crop-scale", "0.5,1"}, {"hflip", "0"}, {"no-aug", "true"}, {"workers", "3"}});
  EXPECT_EQ(all.loader.channels(), 1);
  EXPECT_EQ(all.loader.workers(), 3);
  EXPECT_EQ(all.train.scale(), (std::array<double, 2>{0.5, 1}));
  EXPECT_EQ(all.train.hflip(), 0);
  EXPECT_EQ(all.train.image_size(), 8);
  EXPECT_FALSE(all.augment);
  EXPECT_EQ(view_of(all), (ImageView{{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}, 0.875, "bicubic"}));
}

TEST_F(ImageSetup, WhatIsWrongIsNamed) {
  EXPECT_HAS(test::error_of([&] { image_transforms(load(R"({"mean": [0.1, 0.2]})")); }),
             "mean has 2 numbers, instead of 1 or 3; save it again");
  EXPECT_HAS(test::error_of([&] { image_transforms(*load().model, load().metadata, {{}, {0}, {}, {}}); }),
             "[image_transforms] std is 0, instead of above 0");
}

}  // namespace
}  // namespace tpgm::test_image_setup
