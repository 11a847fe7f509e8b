// Metadata: values go out as they came in, in the text that files of earlier versions have.
#include "tpgm/io/metadata.h"

#include <fstream>

#include "tests/io/scratch.h"
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
  keys::kView.set(metadata, {{0.5}, {1, 2, 3}, 0.875, "bicubic"});
  EXPECT_EQ(metadata,
            (Metadata{{"tpgm.model", "clip-vit:image_size=32"},
                      {"tpgm.normalize", "true"},
                      {"tpgm.ratio", "0.25"},
                      {"tpgm.classes", R"(["cat","golden \"retriever\""])"},
                      {"tpgm.view",
                       R"({"crop_pct":0.875,"interpolation":"bicubic","mean":[0.5],"std":[1.0,2.0,3.0]})"}}));
  EXPECT_EQ(keys::kModel.at(metadata), "clip-vit:image_size=32");
  EXPECT_TRUE(keys::kNormalize.of(metadata));
  EXPECT_EQ(keys::kRatio.of(metadata), 0.25);
  EXPECT_EQ(keys::kClasses.of(metadata), (std::vector<std::string>{"cat", "golden \"retriever\""}));
  const ImageView view = keys::kView.of(metadata);
  EXPECT_EQ(view.mean, (std::vector<double>{0.5}));
  EXPECT_EQ(view.std, (std::vector<double>{1, 2, 3}));
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

// Lists in lists take eighty times their text.
TEST(Metadata, NestingTakesLittleMemory) {
  const std::string open(4 << 20, '['), close(4 << 20, ']');
  const Metadata metadata{{"tpgm.classes", open + close}, {"tpgm.view", R"({"mean":)" + open + close + "}"}};
  std::ofstream("/proc/self/clear_refs") << "5";  // forgets the peak so far
  const int64_t before = test::status_kib("VmRSS");
  EXPECT_NE(error_of([&] { keys::kClasses.of(metadata); }).find("is not a list of texts"), std::string::npos);
  EXPECT_EQ(keys::kView.of(metadata), ImageView());
#ifndef __SANITIZE_ADDRESS__
  EXPECT_LT(test::status_kib("VmHWM") - before, 16 << 10);
#endif
}

TEST(Metadata, ViewsThatNoTransformCanUseAreRefused) {
  for (const auto& [text, why] :
       {std::pair{R"({"mean":[0.1,0.2]})", "mean has 2 numbers, instead of 1 or 3"},
        {R"({"std":[1,1,1,1]})", "std has 4 numbers, instead of 1 or 3"},
        {R"({"std":[0.5,0,0.5]})", "std is 0, instead of above 0"},
        {R"({"std":[1e-60]})", "std is 1e-60, instead of above 0"},
        {R"({"mean":[1e60]})", "mean has the value 1e+60"},
        {R"({"std":[-1]})", "std is -1, instead of above 0"},
        {R"({"crop_pct":0})", "crop_pct is 0, instead of 0.01 or more"},
        {R"({"crop_pct":-0.875})", "crop_pct is -0.875, instead of 0.01 or more"}}) {
    EXPECT_EQ(
        error_of([text = text] { keys::kView.of({{"tpgm.view", text}}); }),
        std::string("[MetadataKey] 'tpgm.view' in a checkpoint's metadata: ") + why + "; save it again");
  }
  EXPECT_EQ(complaint({{NAN}, {}, {}, {}}), "mean has the value nan");
  EXPECT_EQ(complaint({{}, {INFINITY}, {}, {}}), "std has the value inf");
  EXPECT_EQ(complaint({{}, {}, INFINITY, {}}), "crop_pct is inf, instead of 0.01 or more");
  EXPECT_EQ(complaint({{-3, 0, 124}, {58}, 0.01, {}}), "");
  EXPECT_EQ(complaint({}), "");
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
