// Metadata: values go out as they came in, in the text that files of earlier versions have.
#include "tpgm/io/metadata.h"

#include "tests/support.h"

namespace tpgm::test_metadata {
namespace {

using testing::error_of;

TEST(Metadata, TextOfEachType) {
  Metadata metadata;
  keys::kModel.set(metadata, "clip-vit:image_size=32");
  keys::kNormalize.set(metadata, true);
  keys::kRatio.set(metadata, 0.25);
  keys::kClasses.set(metadata, {"cat", "golden \"retriever\""});
  keys::kView.set(metadata, {{0.5, 0.25}, {1, 2}, 0.875, "bicubic"});
  EXPECT_EQ(
      metadata,
      (Metadata{{"tpgm.model", "clip-vit:image_size=32"},
                {"tpgm.normalize", "true"},
                {"tpgm.ratio", "0.25"},
                {"tpgm.classes", R"(["cat","golden \"retriever\""])"},
                {"tpgm.view",
                 R"({"crop_pct":0.875,"interpolation":"bicubic","mean":[0.5,0.25],"std":[1.0,2.0]})"}}));
  EXPECT_EQ(keys::kModel.at(metadata), "clip-vit:image_size=32");
  EXPECT_TRUE(keys::kNormalize.of(metadata));
  EXPECT_EQ(keys::kRatio.of(metadata), 0.25);
  EXPECT_EQ(keys::kClasses.of(metadata), (std::vector<std::string>{"cat", "golden \"retriever\""}));
  const ImageView view = keys::kView.of(metadata);
  EXPECT_EQ(view.mean, (std::vector<double>{0.5, 0.25}));
  EXPECT_EQ(view.std, (std::vector<double>{1, 2}));
  EXPECT_EQ(view.crop_pct, 0.875);
  EXPECT_EQ(view.interpolation, "bicubic");

  keys::kNormalize.set(metadata, false);
  EXPECT_FALSE(keys::kNormalize.in(metadata));
}

TEST(Metadata, WhatIsNotThereIsEmpty) {
  EXPECT_EQ(keys::kModel.of({}), "");
  EXPECT_FALSE(keys::kFinished.of({}));
  EXPECT_TRUE(keys::kClasses.of({}).empty());
  EXPECT_FALSE(keys::kView.of({}).crop_pct.has_value());
  EXPECT_EQ(error_of([] { keys::kModel.at({}); }),
            "[MetadataKey] there is no 'tpgm.model' in a checkpoint's metadata");
}

TEST(Metadata, WhatIsNoSuchValueIsNamed) {
  for (const char* text : {"cat", "{}", "[1]", R"(["cat",)"}) {
    EXPECT_EQ(error_of([&] { keys::kClasses.of({{"tpgm.classes", text}}); }),
              "[MetadataKey] 'tpgm.classes' in a checkpoint's metadata is not a list of texts; save it again")
        << text;
  }
  for (const char* text : {"", "1", "True", "false"}) {
    EXPECT_EQ(error_of([&] { keys::kNormalize.of({{"tpgm.normalize", text}}); }),
              "[MetadataKey] 'tpgm.normalize' in a checkpoint's metadata is not \"true\"; save it again")
        << text;
  }
  EXPECT_NE(error_of([] { keys::kRatio.of({{"tpgm.ratio", "0.5x"}}); }).find("not a number"),
            std::string::npos);
  EXPECT_NE(error_of([] { keys::kView.of({{"tpgm.view", R"({"mean":"grey"})"}}); }).find("the mean, std"),
            std::string::npos);
}

// Version 0.1.0 wrote a sentence beside predictions.
TEST(Metadata, ViewInWordsSaysNothing) {
  const Metadata old{{"tpgm.view", "224 pixels, crop_pct 0.875, bicubic, decode exact, mean 0.5, std 0.5"}};
  EXPECT_TRUE(keys::kView.of(old).mean.empty());
  Metadata copy;
  keys::kView.copy(old, copy);
  EXPECT_EQ(copy, old);
  keys::kModel.copy(old, copy);
  EXPECT_EQ(copy, old);
}

TEST(Metadata, WhatTheTensorsAreIsInherited) {
  for (const char* key : {"tpgm.model", "tpgm.layout", "tpgm.layer", "tpgm.normalize", "tpgm.classes",
                          "tpgm.templates", "tpgm.view", "format", "license"})
    EXPECT_TRUE(is_inherited(key)) << key;
  for (const char* key : {"tpgm.version", "tpgm.command", "tpgm.inputs", "tpgm.ratio", "tpgm.finished",
                          "tpgm.state", "tpgm.new"})
    EXPECT_FALSE(is_inherited(key)) << key;
}

}  // namespace
}  // namespace tpgm::test_metadata
