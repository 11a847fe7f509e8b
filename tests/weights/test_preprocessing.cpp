// The preprocessing that other libraries write down beside the weights: what is read from it, what comes first,
// and the file that is written for transformers. Expected values are what the libraries compute from the files.
#include <gtest/gtest.h>

#include "tests/models/model_files.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/io/safetensors.h"
#include "tpgm/models/families.h"
#include "tpgm/weights/preprocessing.h"
#include "tpgm/weights/read.h"
#include "tpgm/weights/save.h"

namespace tpgm::testing {
namespace {

using Numbers = std::vector<double>;
const Numbers kHalf{0.5, 0.5, 0.5};

class PreprocessingFiles : public ModelFiles {
 protected:
  using Read = bool (*)(std::string_view, Preprocessing&);
  static Preprocessing parsed(Read read, const std::string& text) {
    Preprocessing result;
    EXPECT_TRUE(read(text, result)) << text;
    return result;
  }
  static Preprocessing huggingface(const std::string& text) {
    return parsed(read_huggingface_preprocessing, text);
  }
  static std::string refusal(Read read, const std::string& text) {
    try {
      Preprocessing result;
      read(text, result);
      return "";
    } catch (const Malformed& malformed) {
      return malformed.reason + "; " + malformed.advice;
    }
  }
  static std::string all(const std::vector<std::string>& notes) {
    std::string text;
    for (const auto& note : notes) text += note + "\n";
    return text;
  }
  // timm's ViT for images of 32 pixels, without any metadata.
  ModelWeights read_vit(const std::string& model = "vit:heads=2") const {
    if (!std::filesystem::exists(file("model.pth")))
      std::filesystem::copy_file(golden_folder() / "timm-vit/model.pth", file("model.pth"));
    return read_weights(Checkpoint(file("model.pth")), parse_model(model));
  }
};

TEST_F(PreprocessingFiles, OfTimm) {
  const std::string values = R"("input_size": [3, 224, 224], "interpolation": "bilinear", "crop_pct": 0.9,
      "crop_mode": "center", "mean": [0.5, 0.5, 0.5], "std": [0.25, 0.5, 0.75])";
  for (const auto& text : {R"({"architecture": "vit_base_patch16_224", "pretrained_cfg": {)" + values + "}}",
                           R"({"architecture": "vit_base_patch16_224", )" + values + "}"}) {
    const auto found = parsed(read_timm_preprocessing, text);
    EXPECT_EQ(found.view, (ImageView{kHalf, {0.25, 0.5, 0.75}, 0.9, "bilinear"}));
    EXPECT_EQ(found.image_size, 224);
    EXPECT_TRUE(found.differences.empty()) << all(found.differences);
  }
  const auto squash = parsed(read_timm_preprocessing, R"({"architecture": "x", "crop_mode": "squash",
      "interpolation": "random", "mean": 0.5, "input_size": [3, 224, 192]})");
  EXPECT_EQ(squash.view, (ImageView{{0.5}, {}, {}, {}}));
  const auto notes = all(squash.differences);
  for (const char* part : {"crop_mode is 'squash'", "interpolation 'random'", "not square"})
    EXPECT_TRUE(has(notes, part)) << notes;
  Preprocessing none;
  for (const char* other : {R"({"architecture": "vit"})", R"({"mean": [0.5], "name": "something else"})",
                            R"({"model_type": "clip"})"}) {
    EXPECT_FALSE(read_timm_preprocessing(other, none)) << other;
  }
}

TEST_F(PreprocessingFiles, OfOpenClip) {
  const auto found = parsed(read_open_clip_preprocessing, R"({"model_cfg": {}, "preprocess_cfg": {
      "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5], "interpolation": "bicubic", "resize_mode": "shortest"}})");
  EXPECT_EQ(found.view, (ImageView{kHalf, kHalf, 1, "bicubic"}));
  EXPECT_TRUE(found.differences.empty());
  const auto squash = parsed(read_open_clip_preprocessing,
                             R"({"preprocess_cfg": {"size": [256, 256], "resize_mode": "squash"}})");
  EXPECT_EQ(squash.image_size, 256);
  EXPECT_TRUE(has(all(squash.differences), "resize_mode is 'squash'; here the shorter side"));
  Preprocessing none;
  EXPECT_FALSE(read_open_clip_preprocessing(R"({"model_cfg": {}})", none));
}

TEST_F(PreprocessingFiles, OfTransformers) {
  // As openai/clip-vit-base-patch32 has it: sizes of old files are numbers.
  const auto old = huggingface(R"({"crop_size": 224, "do_center_crop": true, "do_normalize": true,
      "do_resize": true, "feature_extractor_type": "CLIPFeatureExtractor", "image_mean": [0.48, 0.46, 0.41],
      "image_std": [0.27, 0.26, 0.28], "resample": 3, "size": 224})");
  EXPECT_EQ(old.view, (ImageView{{0.48, 0.46, 0.41}, {0.27, 0.26, 0.28}, 1, "bicubic"}));
  EXPECT_EQ(old.image_size, 224);
  EXPECT_TRUE(old.differences.empty()) << all(old.differences);

  const std::string processor =
      R"({"crop_size": {"height": 224, "width": 224}, "size": {"shortest_edge": 256},
      "do_center_crop": true, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "resample": 2,
      "do_rescale": true, "rescale_factor": 0.00392156862745098})";
  for (const auto& text :
       {processor, R"({"processor_class": "CLIPProcessor", "image_processor": )" + processor + "}"}) {
    const auto found = huggingface(text);
    EXPECT_EQ(found.view, (ImageView{kHalf, kHalf, 0.875, "bilinear"}));
    EXPECT_TRUE(found.differences.empty()) << all(found.differences);
  }

  // Bytes / 127.5 have the mean 1 and std 1 where those / 255 have 0.5 and 0.5.
  const auto scaled =
      huggingface(R"({"image_mean": 1, "image_std": [1, 1, 1], "rescale_factor": 0.00784313725490196})");
  ASSERT_EQ(scaled.view.std.size(), 3U);
  EXPECT_NEAR(scaled.view.mean.at(0), 0.5, 1e-12);
  EXPECT_NEAR(scaled.view.std[2], 0.5, 1e-12);
  EXPECT_FALSE(scaled.view.crop_pct.has_value());
  const auto bare = huggingface(R"({"do_normalize": false, "image_mean": [9, 9, 9]})");
  EXPECT_EQ(bare.view, (ImageView{{0}, {1}, {}, {}}));
}

TEST_F(PreprocessingFiles, TheShorterSideIsThatOfTransformers) {
  // Also below the crop of 224 pixels: transformers pads, as we do. A crop is at most 8 times the image.
  for (int64_t edge = 28; edge <= 500; ++edge) {
    const auto found = huggingface(fmt::format(
        R"({{"do_center_crop": true, "crop_size": 224, "size": {{"shortest_edge": {}}}}})", edge));
    EXPECT_EQ(static_cast<int64_t>(224 / found.view.crop_pct.value()), edge);
  }
}

TEST_F(PreprocessingFiles, WhatIsDoneOtherwiseIsSaid) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {R"({"size": {"height": 224, "width": 224}, "image_mean": 0.5})", "it resizes both sides"},
      {R"({"size": 224, "do_center_crop": false})", "it resizes both sides"},
      {R"({"size": {"height": 256, "width": 192}})", "not square"},
      {R"({"size": {"longest_edge": 224}})", "it resizes the longer side"},
      {R"({"size": {"shortest_edge": 224}, "do_center_crop": false})", "do_center_crop is false"},
      {R"({"size": 224, "crop_size": 224, "do_resize": false})", "do_resize is false"},
      {R"({"do_rescale": false, "image_mean": 0.5})", "do_rescale is false"},
      {R"({"rescale_offset": true, "image_mean": 0.5})", "rescale_offset"},
      {R"({"resample": 1})", "interpolation 'lanczos' is not known here; it is bicubic"},
  };
  for (const auto& [text, part] : cases) {
    const auto found = huggingface(text);
    EXPECT_TRUE(has(all(found.differences), part)) << text << all(found.differences);
    const bool shaped = has(text, "size") && !has(text, "do_resize");
    EXPECT_EQ(found.view.crop_pct, shaped ? std::optional(1.0) : std::nullopt) << text;
  }
}

TEST_F(PreprocessingFiles, DamagedAndHostileOnesAreRefused) {
  const Read transformers = read_huggingface_preprocessing, timm = read_timm_preprocessing;
  const std::vector<std::tuple<Read, std::string, std::string>> attacks{
      {transformers, "", "not a JSON object"},
      {transformers, "[1, 2]", "not a JSON object"},
      {transformers, R"({"image_mean": [0.5, 0.5, 0.5)", "not a JSON object"},
      {transformers, std::string(1 << 20, ' '), "it has 1048576 bytes"},
      {transformers, R"({"image_mean": [0.5, 0.5]})", "image_mean is an array, expected one number or three"},
      {transformers, R"({"image_mean": "grey"})", R"(image_mean is "grey", expected one number or three)"},
      {transformers, R"({"image_mean": [0.5, null, 0.5]})",
       "image_mean is null, expected numbers for pixels in 0..1"},
      {transformers, R"({"image_std": [0.5, 0, 0.5]})", "image_std is 0, expected numbers"},
      {transformers, R"({"image_std": -1})", "image_std is -1"},
      {transformers, R"({"image_mean": [123.7, 116.3, 103.5], "do_rescale": false})", "image_mean is 123.7"},
      {transformers, R"({"image_mean": 1e999})", "not a JSON object"},
      {transformers, R"({"rescale_factor": 0, "image_mean": 0})",
       "rescale_factor is 0, expected a number from 1/255 to 1"},
      {transformers, R"({"resample": 6})", "resample is 6, expected a filter of Pillow"},
      {transformers, R"({"resample": 99999999999999999999})", "resample is"},
      {transformers, R"({"do_normalize": 3})", "do_normalize is 3, expected true or false"},
      {transformers, R"({"size": {"shortest_edge": 0}, "crop_size": 8})",
       "shortest_edge is 0, expected a size"},
      {transformers, R"({"size": [1, 2, 3]})", "size is an array"},
      {transformers, R"({"size": 1, "crop_size": 16000000})", "a crop of 16000000 pixels from 1"},
      {transformers, R"({"size": )" + std::string(100000, '[') + std::string(100000, ']') + "}",
       "size is an"},
      {transformers, R"({"image_mean": )" + std::string(100000, '[') + std::string(100000, ']') + "}",
       "expected numbers"},
      {timm, R"({"architecture": "x", "crop_pct": 0})", "crop_pct is 0, expected a share of the image"},
      {timm, R"({"architecture": "x", "mean": 0, "input_size": [3, [1], 2]})", "input_size is an array"},
      {timm, R"({"architecture": "x", "interpolation": 3})", "interpolation is 3, expected a keyword"},
  };
  for (const auto& [read, text, words] : attacks) {
    const auto refused = refusal(read, text);
    EXPECT_TRUE(has(refused, words)) << text.substr(0, 100) << " -> " << refused;
    EXPECT_TRUE(has(refused, "give `mean`, `std`, `crop-pct` and `interpolation`")) << refused;
  }
  write("config.json", R"({"architecture": "vit_tiny", "mean": {}})");
  const auto error = error_of([&] { read_vit(); });
  EXPECT_TRUE(has(error, file("config.json").string() + "': mean is an object")) << error;
  EXPECT_EQ(error.find('\n'), std::string::npos) << error;
}

// A training project has files of these names, too, which say nothing of the weights.
TEST_F(PreprocessingFiles, OfOtherProgramsAreLeftAlone) {
  const std::string bytes = R"({"architecture": "resnet50", "mean": [123.7, 116.3, 103.5]})";
  for (const auto& [text, why] :
       {std::pair<std::string, std::string>{"[1]", "it is not a JSON object"},
        {"{\"lr\": 1 // so far\n}", "it is not a JSON object"},
        {"{" + std::string(1 << 20, ' ') + "}", "it has 1048578 bytes, and a config at most 524288"},
        {bytes, "mean is 123.7, expected numbers for pixels in 0..1"}}) {
    for (const auto& [golden, model] :
         {std::pair{"torchvision-resnet-basic", "resnet"}, {"torchvision-vit", "vit:heads=2"}}) {
      std::filesystem::copy_file(golden_folder() / golden / "model.pth", file("model.pth"),
                                 std::filesystem::copy_options::overwrite_existing);
      write("config.json", text);
      const auto found = read_weights(Checkpoint(file("model.pth")), parse_model(model));
      EXPECT_EQ(found.view, ImageView()) << golden;
      const auto notes = all(found.notes), note = "'config.json' beside it is not used: " + why + "\n";
      EXPECT_TRUE(has(notes, note)) << golden << ": " << notes;
      EXPECT_EQ(notes.find(note), notes.rfind(note)) << "twice: " << notes;
    }
  }
}

TEST_F(PreprocessingFiles, AreFoundBesideTheWeights) {
  const ModelWeights alone = read_vit();
  EXPECT_EQ(alone.view, ImageView());
  EXPECT_FALSE(has(all(alone.notes), "preprocessing"));

  write("open_clip_config.json", R"({"preprocess_cfg": {"mean": 0.1, "std": 0.1}})");
  EXPECT_EQ(read_vit().view.mean, Numbers{0.1});
  // That of the checkpoint's own layout comes first.
  write("config.json", R"({"architecture": "vit_tiny", "pretrained_cfg": {"mean": [0.5, 0.5, 0.5],
      "std": [0.5, 0.5, 0.5], "crop_pct": 0.9, "interpolation": "bicubic", "input_size": [3, 48, 48]}})");
  const ModelWeights found = read_vit();
  EXPECT_EQ(found.view, (ImageView{kHalf, kHalf, 0.9, "bicubic"}));
  const auto notes = all(found.notes);
  EXPECT_TRUE(has(
      notes, "preprocessing of 'config.json': mean 0.5 0.5 0.5, std 0.5 0.5 0.5, crop_pct 0.9, bicubic\n"))
      << notes;
  EXPECT_TRUE(has(
      notes, "its images have 48 pixels on a side, here 32; `model` vit:image_size=48,heads=2 takes them"))
      << notes;
  EXPECT_FALSE(has(all(read_vit("vit:heads=2,image_size=48").notes), "its images have"));

  // Our own metadata come before it, each value by itself, and nothing is read if they have all.
  save_as(found, file("ours.safetensors"), SaveOptions());
  EXPECT_EQ(read_weights(Checkpoint(file("ours.safetensors"))).view, found.view);
  std::filesystem::remove(file("open_clip_config.json"));
  Metadata partly;
  keys::kView.set(partly, {{0.2}, {}, {}, {}});
  save_as(found, file("partly.safetensors"), SaveOptions().metadata(partly));
  EXPECT_EQ(read_weights(Checkpoint(file("partly.safetensors"))).view,
            (ImageView{{0.2}, kHalf, 0.9, "bicubic"}));
  write("config.json", "damaged");
  EXPECT_EQ(read_weights(Checkpoint(file("ours.safetensors"))).view, found.view);

  // The family's usual values are for the rest.
  const auto complete_one = complete({{0.2}, {}, {}, "bilinear"}, find_family("clip-vit"));
  EXPECT_EQ(complete_one, (ImageView{{0.2}, {0.26862954, 0.26130258, 0.27577711}, 1, "bilinear"}));
}

TEST_F(PreprocessingFiles, AreWrittenForTransformers) {
  ModelWeights weights = read_weights(Checkpoint(golden_folder() / "hf-clip"));
  const auto written = [&] {
    std::filesystem::create_directories(file("hf"));
    const auto saved = save_as(weights, file("hf"), SaveOptions().layout(Layout::kHuggingFace));
    EXPECT_EQ(saved.files.back(), file("hf/preprocessor_config.json"));
    return nlohmann::json::parse(std::ifstream(file("hf/preprocessor_config.json")));
  };
  // CLIP's usual values. The keys are those of CLIPImageProcessor.__init__().
  EXPECT_EQ(written(), nlohmann::json::parse(R"({"image_processor_type": "CLIPImageProcessor",
      "do_resize": true, "size": {"shortest_edge": 32}, "resample": 3,
      "do_center_crop": true, "crop_size": {"height": 32, "width": 32},
      "do_rescale": true, "rescale_factor": 0.00392156862745098,
      "do_normalize": true, "image_mean": [0.48145466, 0.4578275, 0.40821073],
      "image_std": [0.26862954, 0.26130258, 0.27577711], "do_convert_rgb": true})"));
  weights.view = {{0.5}, {0.25, 0.5, 0.75}, 0.9, "bilinear"};
  const auto json = written();
  EXPECT_EQ(json.at("size").at("shortest_edge"), 35);  // floor(32 / 0.9), as in timm
  EXPECT_EQ(json.at("resample"), 2);
  EXPECT_EQ(json.at("image_mean"), nlohmann::json(kHalf));

  // Read back, without our metadata, it is the same preprocessing.
  const auto again = huggingface(json.dump());
  EXPECT_EQ(again.view.std, weights.view.std);
  EXPECT_EQ(again.view.interpolation, "bilinear");
  EXPECT_EQ(static_cast<int64_t>(32 / again.view.crop_pct.value()), 35);
  for (const double share : {0.0, 1e-300}) {
    EXPECT_TRUE(has(error_of([&] { huggingface_preprocessing({{0}, {1}, share, "bicubic"}, 32, 3); }),
                    "[huggingface_preprocessing] crop_pct is"));
  }
  EXPECT_TRUE(again.differences.empty()) << all(again.differences);
}

}  // namespace
}  // namespace tpgm::testing
