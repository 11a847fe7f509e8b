// TorchScript modules as backbones.
#include "tests/torch_nn.h"
#include "tpgm/models/script.h"

#include <gtest/gtest.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>

#include "tests/models/model_files.h"
#include "tpgm/io/safetensors.h"
#include "tpgm/methods/ft.h"
#include "tpgm/methods/tpgm.h"
#include "tpgm/train/step.h"
#include "tpgm/weights/load_classifier.h"

namespace tpgm::testing {
namespace {

class Script : public ModelFiles {
 protected:
  static std::string golden() { return (golden_folder() / "torchvision-resnet-basic/script.pt").string(); }
  // A script of one parameter, with this for its forward().
  std::string save(const std::string& forward, bool with_parameter = true) const {
    torch::jit::Module module("M");
    if (with_parameter) module.register_parameter("scale", at::ones({1}), false);
    module.define("def forward(self, x):\n" + forward);
    module.save(file("script.pt"));
    return "script:" + file("script.pt").string();
  }
};

TEST_F(Script, ComputesWhatItsModuleDid) {
  ScriptBackbone script(golden(), 64);
  const NamedTensors expected =
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
  ScriptBackbone script(file("nested.pt"), 2);
  EXPECT_EQ(block_globs(script),
            (std::vector<std::string>{"encoder.position", "encoder.0.*", "encoder.1.*"}));
}

TEST_F(Script, MayHaveAHeadOfItsOwn) {
  torch::jit::Module head("H"), module("M");
  head.register_parameter("weight", at::randn({1}), false);
  module.register_module("head", head);
  module.define("def forward(self, x):\n    return x.flatten(1) * self.head.weight\n");
  module.save(file("own.pt"));
  const std::string model = "script:" + file("own.pt").string() + ":image_size=2";
  ScriptBackbone script(file("own.pt"), 2);
  script.parameters()[0].data().fill_(7);
  save_weights(script, file("tuned.safetensors"));
  const auto fresh = LoadOptions().head(Head::kFresh).classifier(ClassifierOptions().num_classes(2));
  const auto loaded = load_classifier(model, file("tuned.safetensors"), fresh);
  EXPECT_EQ(loaded.model->backbone->parameters()[0].item<float>(), 7);
}

TEST_F(Script, BatchNormsThatAreFrozenStayAsTheyAre) {
  const auto script = std::make_shared<ScriptBackbone>(golden(), 64);
  for (const auto& item : script->named_parameters()) {
    auto parameter = item.value();
    parameter.set_requires_grad(!item.key().starts_with("layer1."));
  }
  // Which statistics a forward pass moves: of bn1, which trains, and of a frozen one.
  const auto moved = [&] {
    const auto buffers = script->named_buffers();
    std::vector<bool> result;
    std::vector<at::Tensor> before;
    const std::vector<std::string> names = {"bn1.running_mean", "layer1.0.bn1.running_mean"};
    for (const auto& name : names) before.push_back(buffers[name].clone());
    script->forward(at::randn({2, 3, 64, 64}));
    for (size_t i = 0; i < names.size(); ++i) result.push_back(!buffers[names[i]].equal(before[i]));
    return result;
  };
  train_mode(*script);
  EXPECT_EQ(moved(), (std::vector<bool>{true, false}));
  script->eval();
  EXPECT_EQ(moved(), (std::vector<bool>{false, false}));
  script->train();
  EXPECT_EQ(moved(), (std::vector<bool>{true, true}));
}

// It has no parameters, so only the script knows it.
TEST_F(Script, DropoutFollowsItsOwner) {
  torch::jit::Module drop("D"), block("B"), module("M");
  drop.register_attribute("training", c10::BoolType::get(), true);
  drop.define("def forward(self, x):\n    return torch.dropout(x, 0.5, self.training)\n");
  block.register_parameter("scale", at::ones({1}), false);
  block.register_module("drop", drop);
  block.define("def forward(self, x):\n    return self.drop.forward(x) * self.scale\n");
  module.register_module("block", block);
  module.define("def forward(self, x):\n    return self.block.forward(x.flatten(1))\n");
  module.save(file("drop.pt"));
  ScriptBackbone script(file("drop.pt"), 8);
  const at::Tensor images = at::ones({1, 3, 8, 8});
  const auto drops = [&] { return script.forward(images).eq(0).any().item<bool>(); };
  EXPECT_TRUE(drops());
  script.eval();
  EXPECT_FALSE(drops());
  script.train();
  EXPECT_TRUE(drops());
  script.children()[0]->eval();
  EXPECT_FALSE(drops());
}

TEST_F(Script, MovesWithItsOwner) {
  ScriptBackbone script(golden(), 64);
  script.to(at::kDouble);
  EXPECT_EQ(script.forward(at::randn({2, 3, 64, 64}, at::kDouble)).scalar_type(), at::kDouble);
}

TEST_F(Script, IsOfSinglePrecision) {
  torch::jit::Module half = torch::jit::load(golden());
  half.to(at::kHalf);
  half.save(file("half.pt"));
  ScriptBackbone script(file("half.pt"), 64), whole(golden(), 64);
  script.eval();
  whole.eval();
  const at::NoGradGuard no_grad;
  const at::Tensor images = at::randn({2, 3, 64, 64});
  EXPECT_LT(difference(script.forward(images), whole.forward(images)), 1e-2);
  for (const auto& parameter : script.parameters()) EXPECT_EQ(parameter.scalar_type(), at::kFloat);
}

TEST_F(Script, SaysWhatIsFrozenInItsFile) {
  torch::jit::Module module = torch::jit::load(golden());
  module.attr("fc").toModule().attr("weight").toTensor().set_requires_grad(false);
  module.save(file("frozen.pt"));
  const auto options = LoadOptions().head(Head::kFresh).classifier(ClassifierOptions().num_classes(4));
  const auto notes = [&](const std::string& path) {
    return load_classifier("script:" + path + ":image_size=64", "", options).notes;
  };
  const auto about_frozen = [&](const std::vector<std::string>& all) {
    return std::count_if(all.begin(), all.end(), [&](const std::string& note) {
      return has(note, "1 of ") && has(note, " parameters of the script are frozen");
    });
  };
  EXPECT_EQ(about_frozen(notes(file("frozen.pt").string())), 1);
  EXPECT_EQ(about_frozen(notes(golden())), 0);
}

// As torch.jit.trace writes it for a module in training mode.
TEST_F(Script, TracedInTrainingModeIsRefused) {
  torch::jit::Module norm("N"), module("M");
  norm.register_parameter("weight", at::ones({3}), false);
  norm.register_parameter("bias", at::zeros({3}), false);
  norm.register_buffer("running_mean", at::zeros({3}));
  norm.register_buffer("running_var", at::ones({3}));
  module.register_module("norm", norm);
  module.define(
      "def forward(self, x):\n"
      "    x = torch.batch_norm(x, self.norm.weight, self.norm.bias, self.norm.running_mean, "
      "self.norm.running_var, True, 0.1, 1e-5, False)\n"
      "    return x.flatten(1)\n");
  module.save(file("traced.pt"));
  EXPECT_TRUE(has(error_of([&] { ScriptBackbone script(file("traced.pt"), 4); }),
                  "updates BatchNorm's 'norm.running_var' in evaluation, too, because it was traced"));
}

TEST_F(Script, ThatWaitsAbortsACaptureOnCuda) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA device";
  const std::string model = save(
      "    x = x.flatten(1) * self.scale\n    if float(x.max()) > 1e9:\n        x = x * 0.5\n    return x\n");
  const auto loaded =
      load_classifier(model + ":image_size=4", "",
                      LoadOptions().head(Head::kFresh).classifier(ClassifierOptions().num_classes(4)));
  auto& classifier = *loaded.model;
  classifier.to(at::kCUDA);
  Ft method(classifier);
  Optimizer optimizer({{classifier.named_parameters()}}, OptimOptions());
  const auto cuda = at::TensorOptions(at::kCUDA);
  const at::Tensor images = at::randn({8, 3, 4, 4}, cuda), labels = at::zeros({8}, cuda.dtype(at::kLong));
  const auto steps = [&](bool graph) {
    TrainingStep step(classifier, method, optimizer, StepOptions().cuda_graph(graph));
    for (int i = 0; i < 5; ++i) step.step(images, labels, labels, 1e-3);
  };
  const std::string error = error_of([&] { steps(true); });
  EXPECT_TRUE(has(error, "could not be captured, as something in it waits for the device"));
  EXPECT_TRUE(has(error, "`no-cuda-graph`"));
  EXPECT_FALSE(has(error, "other sizes"));
  EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  steps(false);
}

TEST_F(Script, WhatIsNoModelIsRefused) {
  const auto error = [&](const std::string& model) {
    return error_of([&] { make_backbone(parse_model(model)); });
  };
  EXPECT_TRUE(
      has(error(save("    return x.flatten(1) * self.scale, x\n")), "returns a Tuple, expected one tensor"));
  EXPECT_TRUE(has(error(save("    return x.flatten(1)\n", false)), "has no parameters"));
  EXPECT_TRUE(has(error(save("    return x * self.scale\n")), "returns Float [1,3,224,224] for 1 images"));
  EXPECT_TRUE(has(error(save("    return x.flatten(1) @ x.flatten(1) * self.scale\n")),
                  "fails on images [1,3,224,224]: mat1 and mat2 shapes cannot be multiplied"));
  EXPECT_TRUE(has(error("script:" + file("nowhere.pt").string()), "is not a file"));
  write("text.pt", "hello");
  EXPECT_TRUE(has(error("script:" + file("text.pt").string()), "is not a TorchScript module"));
  EXPECT_TRUE(has(error("script:" + golden() + ":image_size=0"), "expected a whole number"));
  EXPECT_TRUE(has(error("script:" + golden() + ":width=3"), "a script has no 'width'"));
  save("    return x.flatten(1) * self.scale\n");
  ScriptBackbone root(file("script.pt"), 2, 1);
  EXPECT_EQ(block_globs(root), std::vector<std::string>{"scale"});
  EXPECT_TRUE(has(error_of([&] { root.features(at::zeros({1, 1, 2, 2}), "scale"); }), "no layer 'scale'"));
  for (const auto& text : {error("script:" + file("text.pt").string()),
                           error(save("    return x.flatten(1) @ x.flatten(1) * self.scale\n"))}) {
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace tpgm::testing
