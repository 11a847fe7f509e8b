// Backbone and head together: heads of every origin, zero-shot heads from text, methods on top.
#include <gtest/gtest.h>

#include "tests/models/model_files.h"
#include "tests/torch_nn.h"
#include "tpgm/io/safetensors.h"
#include "tpgm/methods/tpgm.h"
#include "tpgm/text/zero_shot.h"
#include "tpgm/weights/load_classifier.h"
#include "tpgm/weights/save.h"

namespace tpgm::testing {
namespace {

class ClassifierTest : public ModelFiles {};

TEST_F(ClassifierTest, AFreshHeadHasNoAnchorAndAPretrainedOneHas) {
  Classifier fresh(vit(), ClassifierOptions().num_classes(5));
  EXPECT_EQ(fresh.forward(at::randn({2, 3, 32, 32})).sizes(), (std::vector<int64_t>{2, 5}));
  EXPECT_EQ(fresh.unanchored(), std::vector<std::string>{"head.*"});
  const at::Tensor weight = at::randn({5, 32});
  Classifier pretrained(vit(), weight, {}, {});
  EXPECT_TRUE(pretrained.unanchored().empty());
  EXPECT_TRUE(pretrained.head->weight.equal(weight));
  EXPECT_FALSE(pretrained.head->bias.defined());
  EXPECT_EQ(pretrained.block_globs().front(), "backbone.stem.*");
  EXPECT_EQ(pretrained.block_globs().back(), "head.*");
}

TEST_F(ClassifierTest, FeaturesAreNormalizedWhereAsked) {
  Classifier model(vit(), ClassifierOptions().num_classes(5).normalize(true));
  const at::Tensor lengths = model.features(at::randn({4, 3, 32, 32})).norm(2, 1);
  EXPECT_LT(difference(lengths, at::ones({4})), 1e-5);
}

TEST_F(ClassifierTest, FeaturesOfALayerGoToTheHead) {
  Classifier model(vit(), ClassifierOptions().num_classes(5).layer("blocks.0"));
  model.eval();
  const at::Tensor images = at::randn({2, 3, 32, 32});
  EXPECT_TRUE(model.features(images).equal(model.backbone->features(images, "blocks.0")));
  EXPECT_TRUE(has(error_of([&] { Classifier(vit(), ClassifierOptions().num_classes(5).layer("blocks.7")); }),
                  "no layer 'blocks.7'"));
}

TEST_F(ClassifierTest, HeadsOfOtherSizesAreRefused) {
  EXPECT_TRUE(has(error_of([&] { Classifier(vit(), at::randn({5, 16}), {}, {}); }),
                  "expected [classes,32]: is it of another model?"));
  EXPECT_TRUE(
      has(error_of([&] { Classifier(vit(), at::randn({5, 32}), {}, ClassifierOptions().num_classes(7)); }),
          "the head has 5 classes, 7 were asked for"));
  EXPECT_TRUE(
      has(error_of([&] { Classifier(vit(), ClassifierOptions()); }), "a fresh head needs at least 1"));
  EXPECT_TRUE(
      has(error_of([&] { Classifier(vit(), at::randn({5, 32}), at::randn({4}), {}); }), "the head's bias"));
}

TEST_F(ClassifierTest, TpgmTakesItsGroupsAndItsExclusionFromTheModel) {
  auto model = std::make_shared<Classifier>(vit(), ClassifierOptions().num_classes(5));
  Tpgm tpgm(*model,
            TpgmOptions().radius_lr(1e-2).tv(0.1).groups(model->block_globs()).exclude(model->unanchored()));
  const at::Tensor images = at::randn({8, 3, 32, 32}), labels = at::randint(5, {8});
  const auto loss = [&] { return torch::nn::functional::cross_entropy(model->forward(images), labels); };
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  const at::Tensor head = model->head->weight.detach().clone();
  for (int i = 0; i < 3; ++i) {
    optimizer.zero_grad();
    loss().backward();
    optimizer.step();
    tpgm.step(loss);
  }
  EXPECT_FALSE(model->head->weight.equal(head));
  EXPECT_EQ(tpgm.displacements().names().size() + 2, model->parameters().size());
}

TEST_F(ClassifierTest, LoadsTheHeadOfACheckpoint) {
  const auto folder = golden_folder() / "torchvision-resnet-basic";
  const NamedTensors expected = SafetensorsFile(folder / "expected.safetensors").tensors();
  const auto loaded = load_classifier("", folder / "model.pth", {});
  loaded.model->eval();
  const at::NoGradGuard no_grad;
  EXPECT_LT(difference(loaded.model->forward(expected["images"]), expected["logits"]), 1e-4);
  EXPECT_TRUE(loaded.model->unanchored().empty());
  EXPECT_TRUE(has(error_of([&] {
                    load_classifier("", folder / "model.pth",
                                    LoadOptions().classifier(ClassifierOptions().num_classes(345)));
                  }),
                  "the head has 7 classes, 345 were asked for"));
  const auto fresh =
      load_classifier("", folder / "model.pth",
                      LoadOptions().head(Head::kFresh).classifier(ClassifierOptions().num_classes(345)));
  EXPECT_EQ(fresh.model->num_classes(), 345);
  EXPECT_TRUE(has(fresh.notes.back(), "left out the head of 7 classes"));
  EXPECT_TRUE(
      has(error_of([&] { load_classifier("", golden_folder() / "moco-v3-resnet/model.pth.tar", {}); }),
          "has no classification head"));
}

TEST_F(ClassifierTest, WhatIsSavedIsKnownAgain) {
  for (const std::string golden : {"hf-clip", "torchvision-vit/model.pth", "moco-v3-resnet/model.pth.tar"}) {
    SCOPED_TRACE(golden);
    const std::string model = golden == "torchvision-vit/model.pth" ? "vit:heads=2" : "";
    const auto options = LoadOptions().head(Head::kFresh).classifier(ClassifierOptions().num_classes(3));
    const auto first = load_classifier(model, golden_folder() / golden, options);
    save_weights(*first.model, file("tuned.safetensors"), first.metadata);
    const auto second = load_classifier("", file("tuned.safetensors"), {});
    first.model->eval();
    second.model->eval();
    const at::Tensor images =
        at::randn({2, 3, first.model->backbone->image_size(), first.model->backbone->image_size()});
    EXPECT_TRUE(first.model->forward(images).equal(second.model->forward(images)));
    // And back where it came from.
    const ModelWeights weights = read_weights(Checkpoint(file("tuned.safetensors")));
    const Layout layout = parse_layout(first.metadata.at("tpgm.layout"));
    save_as(weights, file("theirs.safetensors"), SaveOptions().layout(layout));
    const NamedTensors original = Checkpoint(golden_folder() / golden).tensors();
    size_t compared = 0;
    for (const auto& item : SafetensorsFile(file("theirs.safetensors")).tensors()) {
      const at::Tensor* tensor = original.find(item.key());
      if (tensor == nullptr) tensor = original.find("base_encoder." + item.key());
      if (tensor == nullptr || item.key().find("head") != std::string::npos || item.key().starts_with("fc."))
        continue;
      EXPECT_TRUE(item.value().equal(tensor->to(item.value().scalar_type()))) << item.key();
      ++compared;
    }
    EXPECT_GT(compared, 20U);
  }
}

TEST_F(ClassifierTest, ZeroShotIsHuggingFaces) {
  const auto folder = golden_folder() / "hf-clip";
  const NamedTensors expected = SafetensorsFile(folder / "zeroshot.safetensors").tensors();
  const ModelWeights weights = read_weights(Checkpoint(folder));
  const auto text = make_clip_text(weights.config);
  load_state_dict(*text, weights.text());
  std::vector<Tokenizer> tokenizers;
  try {
    tokenizers.emplace_back(find_vocabulary(folder));
  } catch (const c10::Error& error) {
    GTEST_SKIP() << error.what_without_backtrace();
  }
  const auto names = load_class_names(folder / "names.txt"),
             templates = load_templates(folder / "templates.txt");
  for (const int64_t batch : {1, 4, 256}) {
    size_t sentences = 0;
    const ZeroShotHead head =
        make_zero_shot(*text, weights.tensors["logit_scale"], tokenizers[0], names, templates,
                       ZeroShotOptions().batch_size(batch), [&](size_t count) { sentences += count; });
    EXPECT_LT(difference(head.weight, expected["head"]), 1e-5);
    EXPECT_EQ(sentences, names.size() * templates.size());
    save_zero_shot(head, file("head.safetensors"));
  }
  const auto loaded =
      load_classifier("", folder, LoadOptions().head(Head::kZeroShot).head_file(file("head.safetensors")));
  loaded.model->eval();
  const at::NoGradGuard no_grad;
  EXPECT_LT(difference(loaded.model->forward(expected["images"]), expected["logits"]), 1e-4);
  EXPECT_TRUE(loaded.model->unanchored().empty());  // it was pre-trained, in its way
  EXPECT_EQ(load_zero_shot(file("head.safetensors")).class_names, names);
  save_weights(*loaded.model, file("tuned.safetensors"), loaded.metadata);
  const auto again = load_classifier("", file("tuned.safetensors"), {});
  again.model->eval();
  EXPECT_TRUE(again.model->forward(expected["images"]).equal(loaded.model->forward(expected["images"])));

  const auto wrong =
      make_clip_text(parse_model("clip-vit:text_width=16,text_heads=2,text_depth=1,vocab=1015"));
  EXPECT_TRUE(has(error_of([&] { make_zero_shot(*wrong, at::zeros({}), tokenizers[0], names, templates); }),
                  "the vocabulary has 1014 tokens, the model 1015"));
}

TEST_F(ClassifierTest, BothTowersGiveHuggingFacesLogitsAndTrainTogether) {
  const auto folder = golden_folder() / "hf-clip";
  const NamedTensors expected = SafetensorsFile(folder / "zeroshot.safetensors").tensors();
  const ModelWeights weights = read_weights(Checkpoint(folder));
  const auto clip = make_clip(weights.config);
  load_state_dict(*clip, weights.tensors);
  std::vector<Tokenizer> tokenizers;
  try {
    tokenizers.push_back(find_tokenizer("", folder, *weights.config.vocab));
  } catch (const c10::Error& error) {
    GTEST_SKIP() << error.what_without_backtrace();
  }
  const auto [tokens, truncated] =
      tokenize_classes(*clip->text, tokenizers[0], load_class_names(folder / "names.txt"),
                       load_templates(folder / "templates.txt"));
  Classifier model(*clip, tokens);
  model.eval();
  const at::Tensor logits = model.forward(expected["images"]);
  EXPECT_LT(difference(logits.detach(), expected["logits"]), 1e-4);
  EXPECT_EQ(model.num_classes(), logits.size(1));
  EXPECT_TRUE(model.unanchored().empty());

  logits.square().sum().backward();
  for (const auto& item : model.named_parameters()) {
    ASSERT_TRUE(item.value().grad().defined()) << item.key();
    if (!item.key().ends_with("bias")) {
      EXPECT_GT(item.value().grad().abs().sum().item<double>(), 0) << item.key();
    }
  }

  // What is saved of it is a CLIP, with both towers.
  save_weights(model, file("both.safetensors"), {{"tpgm.model", to_text(weights.config)}});
  const ModelWeights again = read_weights(Checkpoint(file("both.safetensors")));
  ASSERT_EQ(again.tensors.size(), weights.tensors.size());
  for (const auto& item : weights.tensors)
    EXPECT_TRUE(again.tensors[item.key()].equal(item.value())) << item.key();
}

TEST_F(ClassifierTest, AZeroShotHeadOfAnotherModelIsRefused) {
  ZeroShotHead head;
  head.weight = at::randn({3, 24});
  head.class_names = {"a", "b", "c"};
  head.model = "clip-vit:patch=16";
  save_zero_shot(head, file("head.safetensors"));
  const auto load = [&] {
    load_classifier("", golden_folder() / "hf-clip",
                    LoadOptions().head(Head::kZeroShot).head_file(file("head.safetensors")));
  };
  EXPECT_TRUE(has(error_of(load), "was made with another model (patch 16, not 8)")) << error_of(load);
}

TEST_F(ClassifierTest, AHeadOnALayerInBetweenIsKnownAgain) {
  const auto first =
      load_classifier("vit:heads=2", golden_folder() / "torchvision-vit/model.pth",
                      LoadOptions()
                          .head(Head::kFresh)
                          .classifier(ClassifierOptions().num_classes(3).layer("blocks.0").normalize(true)));
  save_weights(*first.model, file("tuned.safetensors"), first.metadata);
  const auto second = load_classifier("", file("tuned.safetensors"), {});
  EXPECT_EQ(second.model->options().layer(), "blocks.0");
  first.model->eval();
  second.model->eval();
  const at::Tensor images = at::randn({2, 3, 32, 32});
  EXPECT_TRUE(first.model->forward(images).equal(second.model->forward(images)));
}

TEST_F(ClassifierTest, ClassNamesComeAsTextJsonOrFolders) {
  write("names.txt", "\xEF\xBB\xBFtabby cat\r\n golden retriever \ncrème brûlée\n\n");
  const std::vector<std::string> names{"tabby cat", "golden retriever", "crème brûlée"};
  EXPECT_EQ(load_class_names(file("names.txt")), names);
  write("names.json", R"(["tabby cat", "golden retriever", "crème brûlée"])");
  EXPECT_EQ(load_class_names(file("names.json")), names);
  write("index.json",
        R"({"10": ["n3", "crème brûlée"], "2": ["n2", "golden retriever"], "1": ["n1", "tabby cat"]})");
  EXPECT_EQ(load_class_names(file("index.json")), names);
  write("folders.json", R"({"n02": "golden retriever", "n03": "crème brûlée", "n01": "tabby cat"})");
  EXPECT_EQ(load_class_names(file("folders.json")), names);
  for (const char* name : {"data/tabby_cat", "data/aircraft_carrier", "data/.hidden"})
    std::filesystem::create_directories(file(name));
  write("data/readme.txt", "");
  EXPECT_EQ(load_class_names(file("data")), (std::vector<std::string>{"aircraft carrier", "tabby cat"}));

  const auto error = [&](const std::string& text) {
    write("bad", text);
    return error_of([&] { load_class_names(file("bad")); });
  };
  EXPECT_TRUE(has(error("cat\n\ndog\n"), "the name in line 2 is empty"));
  EXPECT_TRUE(has(error(R"(["cat", " "])"), "the name of class 1 is empty"));
  EXPECT_TRUE(has(error(""), "has no names in it"));
  EXPECT_TRUE(has(error("[\"cat\","), "begins like JSON but is not JSON"));
  EXPECT_TRUE(has(error("[\"cat\", 3]"), "entry 1 is number, expected a name"));
  EXPECT_TRUE(has(error("[" + std::string(300000, '[') + std::string(300001, ']')), "expected a name"));
  EXPECT_TRUE(has(error("caf\xe9\n"), "is not UTF-8"));
  write("bom.json", "\xEF\xBB\xBF[\"cat\", \"dog\"]");
  EXPECT_EQ(load_class_names(file("bom.json")), (std::vector<std::string>{"cat", "dog"}));
  EXPECT_TRUE(has(error_of([&] { load_class_names(file("data/tabby_cat")); }), "has no folders in it"));
  EXPECT_TRUE(has(error_of([&] { load_class_names(file("nowhere")); }), "nowhere"));
}

TEST_F(ClassifierTest, TemplatesNeedAPlace) {
  write("templates.txt", "a photo of a {}.\n\n{} and {}\n");
  EXPECT_EQ(load_templates(file("templates.txt")),
            (std::vector<std::string>{"a photo of a {}.", "{} and {}"}));
  write("bad.txt", "a photo of a {}.\na photo\n");
  EXPECT_TRUE(has(error_of([&] { load_templates(file("bad.txt")); }), "line 2, 'a photo', has no {}"));
  write("empty.txt", "\n");
  EXPECT_TRUE(has(error_of([&] { load_templates(file("empty.txt")); }), "has no templates"));
}

}  // namespace
}  // namespace tpgm::testing
