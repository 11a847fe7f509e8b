// Checkpoints as weights of a model: what is known, refused, assumed and said, and the way back.
#include <gtest/gtest.h>

#include "tests/models/model_files.h"
#include "tests/torch_nn.h"
#include "tpgm/io/safetensors.h"
#include "tpgm/weights/load_classifier.h"
#include "tpgm/weights/read.h"
#include "tpgm/weights/save.h"

namespace tpgm::testing {
namespace {

class Weights : public ModelFiles {};

TEST_F(Weights, AnotherArchitectureIsNamed) {
  const auto error = [&](const std::string& golden, const std::string& model) {
    return error_of([&] { read_weights(Checkpoint(golden_folder() / golden), parse_model(model)); });
  };
  const auto family = error("torchvision-resnet-basic/model.pth", "clip-vit-b-32");
  EXPECT_TRUE(has(family, "is a resnet (layout: torchvision), not a clip-vit")) << family;
  const auto size = error("hf-clip", "clip-vit-b-32");
  EXPECT_TRUE(has(size, "width is 768 in `model`, 32 in the weights")) << size;
  const auto heads = error("torchvision-vit/model.pth", "vit");
  EXPECT_TRUE(has(heads, "give heads=N")) << heads;

  NamedTensors strange("Tensor");
  strange.insert("encoder.weight", at::ones({3}));
  save_safetensors(strange, file("strange.safetensors"));
  const auto unknown = error_of([&] { read_weights(Checkpoint(file("strange.safetensors"))); });
  EXPECT_TRUE(has(unknown, "'encoder.weight', are those of no model known here") &&
              has(unknown, "TorchScript"))
      << unknown;
}

TEST_F(Weights, UnknownAndMissingTensorsAreListed) {
  NamedTensors tensors = Checkpoint(golden_folder() / "timm-vit/model.pth").tensors();
  NamedTensors more("Tensor");
  for (const auto& item : tensors) more.insert(item.key(), item.value());
  more.insert("blocks.0.ls1.gamma", at::ones({3}));
  save_safetensors(more, file("more.safetensors"));
  const auto extra = error_of([&] { read_weights(Checkpoint(file("more.safetensors"))); });
  EXPECT_TRUE(has(extra, "'blocks.0.ls1.gamma' is in the file, but not in a vit (timm)")) << extra;
  NamedTensors fewer("Tensor");
  for (const auto& item : tensors) {
    if (item.key() != "blocks.1.mlp.fc2.bias") fewer.insert(item.key(), item.value());
  }
  save_safetensors(fewer, file("fewer.safetensors"));
  const auto missing =
      error_of([&] { load_classifier("vit:heads=2", file("fewer.safetensors"), LoadOptions()); });
  EXPECT_TRUE(has(missing, "'blocks.1.mlp.fc2.bias' is in the model, but not in the file") &&
              has(missing, "fewer.safetensors"))
      << missing;
}

TEST_F(Weights, WhatWasLeftOutOrAssumedIsSaid) {
  const auto notes = [&](const std::string& golden, const std::string& model) {
    std::string all;
    for (const auto& note : read_weights(Checkpoint(golden_folder() / golden), parse_model(model)).notes)
      all += note + "\n";
    return all;
  };
  const auto moco = notes("moco-v3-resnet/model.pth.tar", "resnet");
  EXPECT_TRUE(has(moco, "'fc.*.*': a projection head") && has(moco, "momentum_encoder.*") &&
              has(moco, "predictor.*"))
      << moco;
  EXPECT_TRUE(has(notes("mae-vit/model.pth", "vit:heads=2"), "MAE's decoder"));
  EXPECT_TRUE(has(notes("openai-clip-vit/model.pt", "clip-vit"), "quick_gelu is assumed"));
  EXPECT_FALSE(has(notes("hf-clip", "clip-vit"), "assumed"));
  const auto resized =
      notes("open-clip-vit/model.pt", "clip-vit:heads=3,text_heads=2,activation=gelu,image_size=48");
  EXPECT_TRUE(has(resized, "from 17 to 37, for images of 48 pixels")) << resized;
}

TEST_F(Weights, TheUserComesFirstThenMetadataThenConfigJson) {
  const ModelWeights clip = read_weights(Checkpoint(golden_folder() / "hf-clip"));
  ModelWeights changed = clip;
  changed.config.activation = Activation::kGelu;
  std::filesystem::create_directories(file("clip"));
  save_as(changed, file("clip/tuned.safetensors"), SaveOptions());
  std::filesystem::copy_file(golden_folder() / "hf-clip/config.json", file("clip/config.json"));
  EXPECT_EQ(read_weights(Checkpoint(file("clip/tuned.safetensors"))).config.activation, Activation::kGelu);
  const auto wanted = parse_model("clip-vit:activation=quick_gelu,recompute=true");
  const ModelWeights asked = read_weights(Checkpoint(file("clip/tuned.safetensors")), wanted);
  EXPECT_EQ(asked.config.activation, Activation::kQuickGelu);
  EXPECT_EQ(asked.config.recompute, true);

  const auto resnet = golden_folder() / "torchvision-resnet-basic/model.pth";
  save_as(read_weights(Checkpoint(resnet), parse_model("resnet:image_size=64")), file("r.safetensors"),
          SaveOptions());
  EXPECT_EQ(read_weights(Checkpoint(file("r.safetensors"))).config.image_size, 64);
  EXPECT_EQ(
      read_weights(Checkpoint(file("r.safetensors")), parse_model("resnet:image_size=32")).config.image_size,
      32);
}

TEST_F(Weights, HeadsAndScalesMustBeWhole) {
  const auto error = [&](const std::string& golden, const std::string& model, const auto& change) {
    NamedTensors tensors("Tensor");
    for (const auto& item : Checkpoint(golden_folder() / golden).tensors())
      change(tensors, item.key(), item.value());
    save_safetensors(tensors, file("changed.safetensors"));
    return error_of([&] { read_weights(Checkpoint(file("changed.safetensors")), parse_model(model)); });
  };
  const auto without = [](const std::string& dropped) {
    return [dropped](NamedTensors& all, const std::string& name, const at::Tensor& tensor) {
      if (name != dropped) all.insert(name, tensor);
    };
  };
  EXPECT_TRUE(has(error("torchvision-resnet-basic/model.pth", "resnet", without("fc.weight")),
                  "a bias of the head, and no weight"));
  EXPECT_TRUE(
      has(error("hf-clip", "clip-vit:heads=2,text_heads=3", without("logit_scale")), "no 'logit_scale'"));
  EXPECT_TRUE(has(error("torchvision-resnet-basic/model.pth", "resnet",
                        [](NamedTensors& all, const std::string& name, const at::Tensor& tensor) {
                          all.insert(name, name == "fc.weight" ? at::ones({7, 5}) : tensor);
                        }),
                  "the head is [7, 5], expected [classes,32]"));
}

TEST_F(Weights, ConfigsOfWhatIsNotKnownHereAreRefused) {
  const auto error = [&](const std::string& golden, const std::string& config, const std::string& weights,
                         const auto& change) {
    std::filesystem::create_directories(file(golden));
    const auto from = golden_folder() / golden;
    std::filesystem::copy_file(from / weights, file(golden + "/" + weights),
                               std::filesystem::copy_options::overwrite_existing);
    auto json = nlohmann::json::parse(std::ifstream(from / config));
    change(json);
    write(golden + "/" + config, json.dump());
    return error_of([&] { read_weights(Checkpoint(file(golden))); });
  };
  EXPECT_TRUE(has(error("hf-clip", "config.json", "model.safetensors",
                        [](auto& json) { json["text_config"]["hidden_act"] = "gelu"; }),
                  "differs between the two towers"));
  EXPECT_TRUE(has(error("hf-clip", "config.json", "model.safetensors",
                        [](auto& json) { json["vision_config"]["hidden_act"] = "relu"; }),
                  "hidden_act is \"relu\", expected gelu or quick_gelu; this is not known here"));
  EXPECT_TRUE(has(error("hf-clip", "config.json", "model.safetensors",
                        [](auto& json) { json["vision_config"]["num_hidden_layers"] = 7; }),
                  "depth is 7 in 'config.json', 2 in the weights"));
  EXPECT_TRUE(has(error("open-clip-vit-hf", "open_clip_config.json", "open_clip_model.safetensors",
                        [](auto& json) { json["model_cfg"]["text_cfg"]["no_causal_mask"] = true; }),
                  "text_cfg has 'no_causal_mask'"));
}

TEST_F(Weights, TimmsConfigSaysThePoolAndTheActivation) {
  std::filesystem::copy_file(golden_folder() / "timm-vit-clip/model.safetensors", file("model.safetensors"));
  write("config.json", R"({"architecture": "vit_base_patch16_clip_quickgelu_224", "global_pool": "token"})");
  EXPECT_EQ(read_weights(Checkpoint(folder_), parse_model("vit:heads=2")).config.activation,
            Activation::kQuickGelu);
  write("config.json", R"({"architecture": "vit_base_patch16_224", "global_pool": "avg"})");
  EXPECT_TRUE(has(error_of([&] { read_weights(Checkpoint(folder_), parse_model("vit:heads=2")); }),
                  "mean of normalized patches"));
}

TEST_F(Weights, MocosSmallVitHasTwelveHeads) {
  auto config = parse_model("vit:width=384,depth=1,heads=12,patch=16,image_size=32");
  const auto backbone = make_backbone(config);
  backbone->reset_parameters();
  NamedTensors tensors("Tensor");
  for (const auto& item : from_ours(state_dict(*backbone), config, Layout::kTimm).tensors) {
    tensors.insert("module.base_encoder." + item.key(), item.value());
  }
  save_safetensors(tensors, file("moco.safetensors"));
  EXPECT_EQ(read_weights(Checkpoint(file("moco.safetensors"))).config.heads, 12);
}

TEST_F(Weights, WhatALibraryCannotBeIsNotWrittenForIt) {
  const ModelWeights mean =
      read_weights(Checkpoint(golden_folder() / "timm-vit-avg/model.pth"), parse_model("vit:heads=4"));
  EXPECT_TRUE(
      has(error_of([&] { save_as(mean, file("x.safetensors"), SaveOptions().layout(Layout::kTorchvision)); }),
          "torchvision's ViT has the class token"));
  ModelWeights large = mean;
  large.tensors["norm.weight"] = large.tensors["norm.weight"] * 1e6;
  const auto saved =
      save_as(large, file("half.safetensors"), SaveOptions().layout(Layout::kTimm).dtype(at::kHalf));
  ASSERT_EQ(saved.notes.size(), 1U);
  EXPECT_TRUE(has(saved.notes[0], "beyond the range of the type, first in 'fc_norm.weight'"))
      << saved.notes[0];
}

TEST_F(Weights, OldFilesWithoutCountersLoad) {
  NamedTensors old("Tensor");
  for (const auto& item : Checkpoint(golden_folder() / "torchvision-resnet-basic/model.pth").tensors()) {
    if (!item.key().ends_with("num_batches_tracked")) old.insert(item.key(), item.value());
  }
  save_safetensors(old, file("old.safetensors"));
  const auto loaded = load_classifier("", file("old.safetensors"), {});
  ASSERT_FALSE(loaded.notes.empty());
  EXPECT_TRUE(has(loaded.notes.back(), "counters"));
}

TEST_F(Weights, EveryLayoutIsWrittenWithWhatItsLibraryNeeds) {
  const ModelWeights weights = read_weights(Checkpoint(golden_folder() / "openai-clip-vit/model.pt"));
  std::filesystem::create_directories(file("hf"));
  save_as(weights, file("hf"), SaveOptions().layout(Layout::kHuggingFace).dtype(at::kFloat));
  const ModelWeights again = read_weights(Checkpoint(file("hf")));
  EXPECT_EQ(again.layout, Layout::kHuggingFace);
  EXPECT_EQ(again.config.activation, Activation::kQuickGelu);
  EXPECT_EQ(SafetensorsFile(file("hf/model.safetensors")).metadata().at("format"), "pt");
  for (const auto& item : weights.tensors)
    EXPECT_TRUE(again.tensors[item.key()].equal(item.value().to(at::kFloat))) << item.key();
  EXPECT_TRUE(
      has(error_of([&] { save_as(weights, file("x.safetensors"), SaveOptions().layout(Layout::kTimm)); }),
          "a clip-vit has no layout timm; it has tpgm, openai, hf"));
  EXPECT_FALSE(std::filesystem::exists(file("x.safetensors")));
}

}  // namespace
}  // namespace tpgm::testing
