// Backbone and head together: heads of every origin, zero-shot heads from text, TorchScript, methods on top.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <fstream>

#include "goldens.h"
#include "parity.h"
#include "tests/io/scratch.h"
#include "tests/support.h"
#include "tpgm/io/safetensors.h"
#include "tpgm/methods/tpgm.h"
#include "tpgm/models/script.h"
#include "tpgm/models/zero_shot.h"

namespace tpgm::testing {
namespace {

const std::string kClip =
    "clip-vit:width=32,depth=2,heads=2,patch=8,image_size=32,embedding=16,text_width=16,"
    "text_depth=1,text_heads=2,vocab=1014";

class ClassifierTest : public test::Scratch {
 protected:
  ClassifierTest() { torch::manual_seed(0); }
  void write(const std::string& name, const std::string& text) const { std::ofstream(file(name)) << text; }
  static std::shared_ptr<Backbone> vit() {
    auto backbone = make_backbone(parse_model("vit:width=32,depth=2,heads=2,patch=8,image_size=32"));
    backbone->reset_parameters();
    return backbone;
  }
  static bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }
};

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

TEST_F(ClassifierTest, FeaturesAreNormalisedWhereAsked) {
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
  EXPECT_EQ(tpgm.constraints().names().size() + 2, model->parameters().size());
}

TEST_F(ClassifierTest, LoadsTheHeadOfACheckpoint) {
  const auto folder = golden_folder() / "torchvision-resnet-basic";
  const StateDict expected = SafetensorsFile(folder / "expected.safetensors").tensors();
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
    const StateDict original = Checkpoint(golden_folder() / golden).tensors();
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
  const StateDict expected = SafetensorsFile(folder / "zeroshot.safetensors").tensors();
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
  EXPECT_TRUE(has(error("[\"cat\","), "begins as JSON and is none"));
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

class Script : public ClassifierTest {
 protected:
  static std::string golden() { return (golden_folder() / "torchvision-resnet-basic/script.pt").string(); }
  /// A script of one parameter, with this for its forward().
  std::string save(const std::string& forward, bool with_parameter = true) const {
    torch::jit::Module module("M");
    if (with_parameter) module.register_parameter("scale", at::ones({1}), false);
    module.define("def forward(self, x):\n" + forward);
    module.save(file("script.pt"));
    return "script:" + file("script.pt").string();
  }
};

TEST_F(Script, ComputesWhatItsModuleDid) {
  ScriptBackbone script("script:" + golden() + ":image_size=64");
  const StateDict expected =
      SafetensorsFile(golden_folder() / "torchvision-resnet-basic/expected.safetensors").tensors();
  EXPECT_EQ(script.num_features(""), 7);
  script.eval();
  {
    const at::NoGradGuard no_grad;
    EXPECT_LT(difference(script.forward(expected["images"]), expected["logits"]), 1e-4);
  }
  // Names, and gradients, are those of the same model as ours.
  const auto ours = load_classifier("", golden_folder() / "torchvision-resnet-basic/model.pth", {});
  script.train();
  const at::Tensor upstream = at::randn({3, 7});
  (script.forward(expected["images"]) * upstream).sum().backward();
  (ours.model->forward(expected["images"]) * upstream).sum().backward();
  const auto parameters = script.named_parameters();
  EXPECT_EQ(parameters.size(), ours.model->parameters().size());
  EXPECT_LT(difference(parameters["fc.weight"].grad(), ours.model->head->weight.grad()), 1e-3);
  EXPECT_LT(difference(parameters["layer1.0.conv1.weight"].grad(),
                       ours.model->named_parameters()["backbone.layer1.0.conv1.weight"].grad()),
            1e-3);
  EXPECT_LT(difference(script.named_buffers()["bn1.running_mean"],
                       ours.model->named_buffers()["backbone.stem.bn1.running_mean"]),
            1e-4);
}

TEST_F(Script, IsTunedAnchoredAndSavedAsAnyOther) {
  const std::string model = "script:" + golden() + ":image_size=64";
  const auto loaded = load_classifier(
      model, "", LoadOptions().head(Head::kFresh).classifier(ClassifierOptions().num_classes(4)));
  auto& classifier = *loaded.model;
  EXPECT_EQ(classifier.block_globs().front(), "backbone.conv1.*");
  Tpgm tpgm(classifier, TpgmOptions().radius_lr(1e-2).exclude(classifier.unanchored()));
  const at::Tensor images = at::randn({4, 3, 64, 64}), labels = at::randint(4, {4});
  const auto loss = [&] { return torch::nn::functional::cross_entropy(classifier.forward(images), labels); };
  torch::optim::SGD optimizer(classifier.parameters(), 0.05);
  const at::Tensor before = classifier.named_parameters()["backbone.fc.weight"].detach().clone();
  for (int i = 0; i < 2; ++i) {
    optimizer.zero_grad();
    loss().backward();
    optimizer.step();
    tpgm.step(loss);
  }
  EXPECT_FALSE(classifier.named_parameters()["backbone.fc.weight"].equal(before));
  save_weights(*classifier.backbone, file("tuned.safetensors"));
  const auto again =
      load_classifier(model, file("tuned.safetensors"),
                      LoadOptions().head(Head::kFresh).classifier(ClassifierOptions().num_classes(4)));
  classifier.eval();
  again.model->eval();
  EXPECT_TRUE(again.model->backbone->forward(images).equal(classifier.backbone->forward(images)));
  save_weights(classifier, file("whole.safetensors"), loaded.metadata);
  const auto whole = load_classifier(model, file("whole.safetensors"), {});
  whole.model->eval();
  EXPECT_TRUE(whole.model->forward(images).equal(classifier.forward(images)));
}

TEST_F(Script, NoBlockContainsAnother) {
  torch::jit::Module layer("L"), encoder("E"), module("M");
  layer.register_parameter("weight", at::ones({1}), false);
  encoder.register_parameter("position", at::ones({1}), false);
  encoder.register_module("0", layer);
  encoder.register_module("1", layer.deepcopy());
  module.register_module("encoder", encoder);
  module.define("def forward(self, x):\n    return x.flatten(1) * self.encoder.position\n");
  module.save(file("nested.pt"));
  ScriptBackbone script("script:" + file("nested.pt").string() + ":image_size=2");
  EXPECT_EQ(block_globs(script),
            (std::vector<std::string>{"encoder.position", "encoder.0.*", "encoder.1.*"}));
}

TEST_F(Script, MovesWithItsOwner) {
  ScriptBackbone script("script:" + golden() + ":image_size=64");
  script.to(at::kDouble);
  EXPECT_EQ(script.forward(at::randn({2, 3, 64, 64}, at::kDouble)).scalar_type(), at::kDouble);
}

TEST_F(Script, WhatIsNoModelIsRefused) {
  const auto error = [&](const std::string& model) {
    return error_of([&] { ScriptBackbone backbone(model); });
  };
  EXPECT_TRUE(
      has(error(save("    return x.flatten(1) * self.scale, x\n")), "returns a Tuple, expected one tensor"));
  EXPECT_TRUE(has(error(save("    return x.flatten(1)\n", false)), "has no parameters"));
  EXPECT_TRUE(has(error(save("    return x * self.scale\n")), "returns Float [1,3,224,224] for 1 images"));
  EXPECT_TRUE(has(error(save("    return x.flatten(1) @ x.flatten(1) * self.scale\n")),
                  "fails on images [1,3,224,224]"));
  EXPECT_TRUE(has(error("script:" + file("nowhere.pt").string()), "is no file"));
  write("text.pt", "hello");
  EXPECT_TRUE(has(error("script:" + file("text.pt").string()), "is no TorchScript module"));
  EXPECT_TRUE(has(error("script:" + golden() + ":image_size=0"), "expected a whole number"));
  EXPECT_TRUE(has(error("script:" + golden() + ":width=3"), "it has image_size and channels"));
  ScriptBackbone root(save("    return x.flatten(1) * self.scale\n") + ":image_size=2,channels=1");
  EXPECT_EQ(block_globs(root), std::vector<std::string>{"scale"});
  EXPECT_TRUE(has(error_of([&] { root.features(at::zeros({1, 1, 2, 2}), "scale"); }), "no layer 'scale'"));
  for (const auto& text : {error("script:" + file("text.pt").string()),
                           error(save("    return x.flatten(1) @ x.flatten(1) * self.scale\n"))}) {
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }
}

class Weights : public ClassifierTest {};

TEST_F(Weights, AnotherArchitectureIsNamed) {
  const auto error = [&](const std::string& golden, const std::string& model) {
    return error_of([&] { read_weights(Checkpoint(golden_folder() / golden), parse_model(model)); });
  };
  const auto family = error("torchvision-resnet-basic/model.pth", "clip-vit-b-32");
  EXPECT_TRUE(has(family, "is a resnet (layout: torchvision), not a clip-vit")) << family;
  const auto size = error("hf-clip", "clip-vit-b-32");
  EXPECT_TRUE(has(size, "width is 768 in --model, 32 in the weights")) << size;
  const auto heads = error("torchvision-vit/model.pth", "vit");
  EXPECT_TRUE(has(heads, "give heads=N")) << heads;

  StateDict strange("Tensor");
  strange.insert("encoder.weight", at::ones({3}));
  save_safetensors(strange, file("strange.safetensors"));
  const auto unknown = error_of([&] { read_weights(Checkpoint(file("strange.safetensors"))); });
  EXPECT_TRUE(has(unknown, "'encoder.weight', are those of no model known here") &&
              has(unknown, "TorchScript"))
      << unknown;
}

TEST_F(Weights, UnknownAndMissingTensorsAreListed) {
  StateDict tensors = Checkpoint(golden_folder() / "timm-vit/model.pth").tensors();
  StateDict more("Tensor");
  for (const auto& item : tensors) more.insert(item.key(), item.value());
  more.insert("blocks.0.ls1.gamma", at::ones({3}));
  save_safetensors(more, file("more.safetensors"));
  const auto extra = error_of([&] { read_weights(Checkpoint(file("more.safetensors"))); });
  EXPECT_TRUE(has(extra, "'blocks.0.ls1.gamma' is in the file, but not in a vit (timm)")) << extra;
  StateDict fewer("Tensor");
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
  changed.config.activation = "gelu";
  std::filesystem::create_directories(file("clip"));
  save_as(changed, file("clip/tuned.safetensors"), SaveOptions());
  std::filesystem::copy_file(golden_folder() / "hf-clip/config.json", file("clip/config.json"));
  EXPECT_EQ(read_weights(Checkpoint(file("clip/tuned.safetensors"))).config.activation, "gelu");
  const auto wanted = parse_model("clip-vit:activation=quick_gelu,recompute=true");
  const ModelWeights asked = read_weights(Checkpoint(file("clip/tuned.safetensors")), wanted);
  EXPECT_EQ(asked.config.activation, "quick_gelu");
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
    StateDict tensors("Tensor");
    for (const auto& item : Checkpoint(golden_folder() / golden).tensors())
      change(tensors, item.key(), item.value());
    save_safetensors(tensors, file("changed.safetensors"));
    return error_of([&] { read_weights(Checkpoint(file("changed.safetensors")), parse_model(model)); });
  };
  const auto without = [](const std::string& dropped) {
    return [dropped](StateDict& all, const std::string& name, const at::Tensor& tensor) {
      if (name != dropped) all.insert(name, tensor);
    };
  };
  EXPECT_TRUE(has(error("torchvision-resnet-basic/model.pth", "resnet", without("fc.weight")),
                  "a bias of the head, and no weight"));
  EXPECT_TRUE(
      has(error("hf-clip", "clip-vit:heads=2,text_heads=3", without("logit_scale")), "no 'logit_scale'"));
  EXPECT_TRUE(has(error("torchvision-resnet-basic/model.pth", "resnet",
                        [](StateDict& all, const std::string& name, const at::Tensor& tensor) {
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
  EXPECT_EQ(read_weights(Checkpoint(folder_), parse_model("vit:heads=2")).config.activation, "quick_gelu");
  write("config.json", R"({"architecture": "vit_base_patch16_224", "global_pool": "avg"})");
  EXPECT_TRUE(has(error_of([&] { read_weights(Checkpoint(folder_), parse_model("vit:heads=2")); }),
                  "mean of normalised patches"));
}

TEST_F(Weights, MocosSmallVitHasTwelveHeads) {
  auto config = parse_model("vit:width=384,depth=1,heads=12,patch=16,image_size=32");
  const auto backbone = make_backbone(config);
  backbone->reset_parameters();
  StateDict tensors("Tensor");
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
  StateDict old("Tensor");
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
  EXPECT_EQ(again.config.activation, "quick_gelu");
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
