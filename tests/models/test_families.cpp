// The table of families: what its rows say, what they must not leave out, and an architecture that is added
// to it and goes through the library like those that are built in.
#include "tpgm/models/families.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "tests/models/model_files.h"
#include "tpgm/data/formats/encode.h"
#include "tpgm/io/safetensors.h"
#include "tpgm/methods/tpgm.h"
#include "tpgm/models/named_models.h"
#include "tpgm/models/script.h"
#include "tpgm/nn/layers.h"
#include "tpgm/train/from_options.h"
#include "tpgm/train/setup.h"
#include "tpgm/weights/load_classifier.h"
#include "tpgm/weights/read.h"
#include "tpgm/weights/save.h"

namespace tpgm::testing {
namespace {

using RunSetup = Setup;  // tests have a Setup() of their own

// The mean over the pixels, times a matrix.
class Mean : public Backbone {
 public:
  explicit Mean(const ModelConfig& config)
      : image_size_(*config.image_size),
        weight_(register_module("mix", std::make_shared<torch::nn::Module>())
                    ->register_parameter("weight", allocate({*config.width, *config.channels}))) {}
  at::Tensor features(const at::Tensor& images, const std::string&) override {
    check_images(images, /*any_size=*/true);
    return images.mean({2, 3}).matmul(weight_.t());
  }
  int64_t num_features(const std::string&) const override { return weight_.size(0); }
  std::vector<std::string> blocks() const override { return {"mix"}; }
  int64_t image_size() const override { return image_size_; }
  int64_t channels() const override { return weight_.size(1); }
  int64_t multiply_adds() const override { return weight_.numel(); }
  void reset_parameters() override {
    const at::NoGradGuard no_grad;
    weight_.normal_();
  }

 private:
  int64_t image_size_;
  at::Tensor weight_;
};

void read_mean(const Shapes& shapes, ModelConfig& config) {
  config.width = shapes.size("mix.weight", 0, 2);
  config.channels = shapes.size("mix.weight", 1, 2);
}

Family mean_family(const std::string& name) {
  return {.name = name,
          .sizes = {{"image_size", "pixels on a side", &ModelConfig::image_size},
                    {"channels", "image channels", &ModelConfig::channels},
                    {"width", "features", &ModelConfig::width}},
          .set_defaults =
              [](ModelConfig& config) {
                config.image_size = config.image_size.value_or(16);
                config.channels = config.channels.value_or(3);
                config.width = config.width.value_or(5);
              },
          .make_backbone = [](const ModelConfig& config) -> std::shared_ptr<Backbone> {
            return std::make_shared<Mean>(config);
          },
          .make_text = nullptr,
          .recognition = Recognition{"mix.weight", read_mean},
          .positions = std::nullopt,
          .normalization = Normalization{{0.1, 0.2, 0.3}, {0.4, 0.5, 0.6}},
          .crop_pct = 0.9,
          .channels_last = true,
          .library = std::nullopt,
          .file = ""};
}

// A row that leaves something out does not compile.
template <typename Row>
concept NeedsNoDefaults = requires { Row{.name = "half", .sizes = {}}; };
static_assert(!NeedsNoDefaults<Family>);
static_assert(!std::is_default_constructible_v<Required<double>>);
static_assert(!std::is_default_constructible_v<Family>);

class Families : public ModelFiles {
 protected:
  // Two classes of six images, each of one color.
  std::string data() const {
    for (const int color : {40, 200}) {
      const auto folder = file("data") / std::to_string(color);
      std::filesystem::create_directories(folder);
      for (int i = 0; i < 6; ++i) {
        Image image(8, 8);
        std::fill(image.pixels.begin(), image.pixels.end(), static_cast<uint8_t>(color + i));
        test::write_bytes(folder / (std::to_string(i) + ".png"), encode_png(image));
      }
    }
    return file("data").string();
  }
  // What `tpgm train --dry-run` asks for.
  RunSetup prepared(const std::string& model, Settings more = {}) const {
    more.insert(
        {{"data-dir", data()}, {"model", model}, {"method", "ft"}, {"device", "cpu"}, {"workers", "1"}});
    return prepare_run(make_options(more));
  }
};

TEST_F(Families, OneThatIsAddedGoesAllTheWay) {
  const Family& family = add_family(mean_family("mean"));

  // `tpgm list models`.
  EXPECT_EQ(&families().back(), &family);
  const ModelConfig config = parse_model("mean:width=7");
  const ModelCost cost = cost_of(config);
  EXPECT_EQ(cost.parameters, 21);
  EXPECT_EQ(cost.text_parameters, 0);
  EXPECT_DOUBLE_EQ(cost.gflops, 21e-9);
  EXPECT_EQ(layouts_of(family), std::vector<Layout>{Layout::kTpgm});
  ModelConfig usual = parse_model("mean");
  set_defaults(usual);
  EXPECT_EQ(to_text(usual), "mean:image_size=16,channels=3,width=5");
  EXPECT_TRUE(has(error_of([] { parse_model("mean:depth=2"); }), "a mean has no 'depth'"));
  EXPECT_TRUE(has(error_of([] { parse_model("maen"); }), "did you mean 'mean'"));
  // One that is here now is no unknown architecture any more.
  const std::string unknown = "its architecture is not one of those here";
  EXPECT_TRUE(has(error_of([] { parse_model("pvt_v2_b0"); }), unknown));
  add_family(mean_family("pvt"));
  EXPECT_FALSE(has(error_of([] { parse_model("pvt_v2_b0"); }), unknown));
  EXPECT_TRUE(has(error_of([&] { make_clip_text(config); }), "a mean has no text tower"));

  // `tpgm train`.
  const RunSetup setup = prepared("mean:width=7,image_size=8");
  EXPECT_EQ(setup.options.model, "mean:image_size=8,channels=3,width=7");
  EXPECT_EQ(setup.options.channels_last, true);
  EXPECT_EQ(setup.options.crop_pct, 0.9);
  EXPECT_EQ(setup.options.mean, (std::vector<double>{0.1, 0.2, 0.3}));
  EXPECT_EQ(setup.options.std, (std::vector<double>{0.4, 0.5, 0.6}));
  EXPECT_NE(dynamic_cast<Mean*>(setup.model->backbone.get()), nullptr);

  // What is saved is known again: by its metadata, and by its names alone.
  const at::Tensor images = at::randn({4, 3, 8, 8});
  setup.model->eval();
  const at::Tensor logits = setup.model->forward(images);
  save_weights(*setup.model, file("run.safetensors"), setup.metadata);
  const auto again = load_classifier("", file("run.safetensors"), {});
  EXPECT_EQ(again.metadata.at("tpgm.model"), setup.options.model);
  again.model->eval();
  EXPECT_TRUE(again.model->forward(images).equal(logits));
  save_weights(*setup.model, file("bare.safetensors"));
  const ModelWeights weights = read_weights(Checkpoint(file("bare.safetensors")));
  EXPECT_EQ(weights.layout, Layout::kTpgm);
  EXPECT_EQ(to_text(weights.config),
            "mean:image_size=16,channels=3,width=7");  // the size of images shows nowhere

  // `tpgm convert`.
  save_as(weights, file("ours.safetensors"), SaveOptions());
  EXPECT_TRUE(read_weights(Checkpoint(file("ours.safetensors")))
                  .tensors["mix.weight"]
                  .equal(setup.model->backbone->parameters()[0]));
  EXPECT_TRUE(has(
      error_of([&] { save_as(weights, file("theirs.safetensors"), SaveOptions().layout(Layout::kTimm)); }),
      "a mean has no layout timm; it has tpgm"));
}

TEST_F(Families, OneThatIsAddedIsNotCalledUnknown) {
  const auto unknown = [] {
    return has(error_of([] { parse_model("hrnet_w18"); }), "its architecture is not one of those here");
  };
  EXPECT_TRUE(unknown());
  add_family(mean_family("hrnet"));
  EXPECT_FALSE(unknown());
}

TEST_F(Families, WhatIsMissingIsNamedTogetherWithTheFamily) {
  const auto error = [](const auto& change) {
    Family family = mean_family("lacking");
    change(family);
    return error_of([&] { add_family(std::move(family)); });
  };
  EXPECT_TRUE(has(error([](Family& family) { family.name = ""; }), "a family needs a name"));
  EXPECT_TRUE(has(error([](Family& family) { family.name = "vit"; }), "there is a family 'vit' already"));
  EXPECT_TRUE(has(error([](Family& family) { family.sizes.erase(family.sizes.begin()); }),
                  "the family 'lacking' has no size 'image_size'"));
  EXPECT_TRUE(has(error([](Family& family) { family.make_backbone = nullptr; }),
                  "the family 'lacking' has no make_backbone"));
  EXPECT_TRUE(has(error([](Family& family) { family.set_defaults = nullptr; }),
                  "the family 'lacking' has no set_defaults"));
  EXPECT_TRUE(has(error([](Family& family) { family.recognition = std::nullopt; }),
                  "the family 'lacking' has no recognition"));
  EXPECT_TRUE(has(error([](Family& family) { family.positions = Positions{"mix.position", nullptr}; }),
                  "the family 'lacking' has no positions.tensor or positions.pixels"));
  Family forgets = mean_family("forgets");
  forgets.sizes.push_back({"depth", "blocks", &ModelConfig::depth});
  add_family(std::move(forgets));
  EXPECT_TRUE(has(error_of([] { make_backbone(parse_model("forgets")); }),
                  "the family 'forgets' gives its 'depth' no default"));
  EXPECT_TRUE(has(error_of([] { find_family("vti"); }), "no family 'vti'; did you mean 'vit'?"));
}

TEST_F(Families, EachRowIsWhole) {
  using Layouts = std::vector<Layout>;
  struct Row {
    const char* name;
    Layouts layouts;
    bool text, channels_last;
    double crop_pct, mean;
  };
  const std::vector<Row> rows{
      {"resnet", {Layout::kTpgm, Layout::kTorchvision, Layout::kTimm}, false, true, 0.875, 0.485},
      {"vit", {Layout::kTpgm, Layout::kTorchvision, Layout::kTimm}, false, false, 0.875, 0.485},
      {"clip-resnet", {Layout::kTpgm, Layout::kOpenAi}, true, true, 1, 0.48145466},
      {"clip-vit", {Layout::kTpgm, Layout::kOpenAi, Layout::kHuggingFace}, true, false, 1, 0.48145466},
      {"script", {}, false, false, 0.875, 0.485}};
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    const Family& family = find_family(row.name);
    EXPECT_EQ(layouts_of(family), row.layouts);
    EXPECT_EQ(family.has_text(), row.text);
    EXPECT_EQ(family.channels_last, row.channels_last);
    EXPECT_EQ(*family.crop_pct, row.crop_pct);
    EXPECT_EQ(family.normalization->mean[0], row.mean);
    ModelConfig config;
    config.family = &family;
    EXPECT_NO_THROW(set_defaults(config));  // throws if a size has no default
    EXPECT_EQ(config.image_size, 224);
    EXPECT_EQ(config.channels, 3);
    if (!row.layouts.empty()) {
      EXPECT_NO_THROW(cost_of(config));
    }
  }
}

class Scripts : public Families {
 protected:
  static std::string golden() { return (golden_folder() / "torchvision-resnet-basic/script.pt").string(); }
};

TEST_F(Scripts, AreAFamilyWithAFile) {
  const ModelConfig config = parse_model("script:models/a:b.pt:image_size=32,channels=1");
  EXPECT_EQ(config.family, &find_family("script"));
  EXPECT_EQ(config.file, "models/a:b.pt");
  EXPECT_EQ(config.image_size, 32);
  EXPECT_EQ(config.channels, 1);
  EXPECT_EQ(to_text(config), "script:models/a:b.pt:image_size=32,channels=1");
  EXPECT_EQ(to_text(parse_model("script:a:b.pt")), "script:a:b.pt");
  EXPECT_TRUE(is_script("script:x") && !is_script("script") && !is_script("vit:width=4") && !is_script(""));
  EXPECT_TRUE(has(error_of([] { parse_model("script:"); }), "names no file; expected script:FILE"));
  EXPECT_TRUE(has(error_of([] { parse_model("script"); }), "names no file; expected script:FILE"));
  const std::string width = error_of([] { parse_model("script:x.pt:width=3"); });
  EXPECT_TRUE(has(width, "a script has no 'width'") && has(width, "it has image_size, channels")) << width;
  EXPECT_TRUE(has(error_of([] { parse_model("script:x.pt:image_size=20000"); }),
                  "expected a whole number from 1 to 16384"));
  EXPECT_TRUE(has(error_of([] { cost_of(parse_model("script:" + golden() + ":image_size=32")); }),
                  "cannot be counted"));
}

TEST_F(Scripts, ARunWithSizesIsReadBack) {
  const std::string model = "script:" + golden() + ":image_size=32";
  const RunSetup run = prepared(model, {{"head", "fresh"}});
  EXPECT_EQ(run.options.model, model);
  EXPECT_EQ(run.options.channels_last, false);
  EXPECT_EQ(run.metadata.at("tpgm.model"), model);
  save_weights(*run.model, file("ft.safetensors"), run.metadata);

  // As the weights that another run starts from.
  const RunSetup from =
      prepared(model, {{"head", "fresh"}, {"weights", file("ft.safetensors").string()}, {"seed", "1"}});
  EXPECT_TRUE(from.model->head->weight.equal(run.model->head->weight));
  const auto loaded = from.model->named_parameters(), saved = run.model->named_parameters();
  for (const auto& item : saved) EXPECT_TRUE(loaded[item.key()].equal(item.value())) << item.key();

  // Sizes come from the run unless others are given; the view too.
  const auto own = load_classifier("script:" + golden(), file("ft.safetensors"), {});
  EXPECT_EQ(own.model->backbone->image_size(), 32);
  EXPECT_EQ(own.metadata.at("tpgm.model"), model);
  EXPECT_EQ(own.metadata.at("tpgm.view"), run.metadata.at("tpgm.view"));
  const auto given = load_classifier("script:" + golden() + ":image_size=64", file("ft.safetensors"), {});
  EXPECT_EQ(given.model->backbone->image_size(), 64);

  EXPECT_TRUE(has(error_of([&] { read_weights(Checkpoint(file("ft.safetensors")), parse_model(model)); }),
                  "is a script by its metadata"));
}

// A checkpoint may name a program in or below its own folder or the working folder, and no other.
TEST_F(Scripts, ACheckpointDoesNotChooseFreelyWhatIsRun) {
  namespace fs = std::filesystem;
  for (const char* folder : {"elsewhere", "run"}) fs::create_directories(file(folder));
  const fs::path script = file("elsewhere/model.pt"), run = file("run/best.safetensors");
  fs::copy_file(golden(), script);
  const std::string model = "script:" + script.string() + ":image_size=32";
  const auto fresh = LoadOptions().head(Head::kFresh).classifier(ClassifierOptions().num_classes(2));
  const auto trained = load_classifier(model, "", fresh);
  save_weights(*trained.model, run, trained.metadata);
  const auto runs = [&](const LoadedClassifier& loaded, const fs::path& where, const std::string& by) {
    EXPECT_EQ(loaded.metadata.at("tpgm.model"), "script:" + where.string() + ":image_size=32");
    EXPECT_TRUE(loaded.model->head->weight.equal(trained.model->head->weight));
    EXPECT_EQ(loaded.notes, std::vector<std::string>{"runs the TorchScript program '" + where.string() +
                                                     "', named by " + by});
  };

  const std::string refused = error_of([&] { load_classifier("", run, {}); });
  EXPECT_TRUE(has(refused, "'" + run.string() + "' names the TorchScript program '" + script.string()));
  EXPECT_TRUE(has(refused, "if you trust it, give it as `model` " + model)) << refused;
  EXPECT_EQ(refused.find('\n'), std::string::npos) << refused;

  // Who names it may be the caller or the recipe of the run.
  EXPECT_EQ(
      load_classifier(model, run, {}).notes,
      std::vector<std::string>{"runs the TorchScript program '" + script.string() + "', given as `model`"});
  runs(load_classifier("", run, LoadOptions().script(script)), script, "the recipe of its run");
  test::write_bytes(file("run/recipe.toml"), "model = \"" + model + "\"\n");
  EXPECT_EQ(script_of_run(file("run")).string(), script.string());
  EXPECT_EQ(script_of_run(run).string(), script.string());
  EXPECT_TRUE(script_of_run(script).empty());
  test::write_bytes(file("run/recipe.toml"), "model = \"script:../elsewhere/model.pt\"\n");
  EXPECT_TRUE(
      fs::equivalent(script_of_run(run), script));  // relative to the recipe, not to the working folder
  // It is asked only for a checkpoint whose model is a script.
  test::write_bytes(file("run/recipe.toml"), "model = \"" + model + "\"\n");
  save_weights(*vit(), file("run/vit.safetensors"), {{"tpgm.model", "vit"}});
  EXPECT_TRUE(script_of_run(file("run/vit.safetensors")).empty());
  test::write_bytes(file("run/recipe.toml"), "model = \"resnet50\"\n");
  EXPECT_TRUE(script_of_run(run).empty());
  test::write_bytes(file("run/recipe.toml"), "no recipe");
  EXPECT_TRUE(script_of_run(run).empty());

  // A checkpoint in a folder above the script.
  fs::copy_file(run, file("copy.safetensors"));
  runs(load_classifier("", file("copy.safetensors"), {}), script, "its metadata");
  // From the folder of the script, and from one above it, given by another way.
  const fs::path before = fs::current_path();
  for (const auto& folder : {file("elsewhere"), file("run/..")}) {
    fs::current_path(folder);
    const auto loaded = load_classifier("", run, {});
    fs::current_path(before);
    runs(loaded, script, "its metadata");
  }
  // Everything is below the root, so that is no working folder to trust.
  fs::current_path("/");
  const auto from_root = error_of([&] { load_classifier("", run, {}); });
  fs::current_path(before);
  EXPECT_TRUE(has(from_root, "neither in or below its own folder nor the working folder")) << from_root;
  // A script beside the checkpoint does not stand for one that is there but may not be run.
  fs::copy_file(golden(), file("run/model.pt"));
  EXPECT_TRUE(has(error_of([&] { load_classifier("", run, {}); }), "neither in or below its own folder"));
  fs::remove(file("run/model.pt"));
  // A link to a file is one of the folder, as in the caches of hubs.
  fs::create_symlink(script, file("run/blob.pt"));
  Metadata linked = trained.metadata;
  linked["tpgm.model"] = "script:" + file("run/blob.pt").string() + ":image_size=32";
  save_weights(*trained.model, file("run/linked.safetensors"), linked);
  runs(load_classifier("", file("run/linked.safetensors"), {}), file("run/blob.pt"), "its metadata");
  // A link below the folder does not lead out of it.
  fs::create_directory_symlink(file("elsewhere"), file("run/link"));
  Metadata through = trained.metadata;
  through["tpgm.model"] = "script:" + file("run/link/model.pt").string();
  save_weights(*trained.model, file("run/link.safetensors"), through);
  EXPECT_TRUE(has(error_of([&] { load_classifier("", file("run/link.safetensors"), {}); }),
                  "neither in or below its own folder nor the working folder"));

  // Folders move, with the script beside the checkpoint.
  fs::rename(script, file("run/model.pt"));
  runs(load_classifier("", run, {}), file("run/model.pt"), "its metadata");
  EXPECT_EQ(model_of_run(model, file("run")), "script:" + file("run/model.pt").string() + ":image_size=32");
  EXPECT_EQ(model_of_run("resnet50", file("run")), "resnet50");
  fs::remove(file("run/model.pt"));
  EXPECT_EQ(model_of_run(model, file("run")), model);
  const std::string gone = error_of([&] { load_classifier("", run, {}); });
  EXPECT_TRUE(has(gone, "is not there, nor beside the checkpoint")) << gone;
  EXPECT_TRUE(has(gone, "`model` script:FILE:image_size=32")) << gone;
}

TEST_F(Scripts, PathsInMetadataDoNotDependOnTheWorkingFolder) {
  namespace fs = std::filesystem;
  fs::copy_file(golden(), file("model.pt"));
  const fs::path before = fs::current_path();
  fs::current_path(folder_);
  const auto loaded = load_classifier("script:model.pt:image_size=32", "", {});
  fs::current_path(before);
  EXPECT_EQ(loaded.metadata.at("tpgm.model"), "script:" + file("model.pt").string() + ":image_size=32");
}

TEST_F(Scripts, AnArchiveIsNamedAsAScript) {
  torch::jit::Module module("M");
  module.register_parameter("strange", at::ones({1}), false);
  module.define("def forward(self, x):\n    return x.flatten(1) * self.strange\n");
  module.save(file("x.pt"));
  EXPECT_TRUE(has(error_of([&] { load_classifier("", file("x.pt"), {}); }),
                  "give it as `model` script:" + file("x.pt").string()));
}

TEST_F(Scripts, AClassifierNeedsNoHead) {
  const std::string model = "script:" + golden() + ":image_size=64";
  const auto expected =
      SafetensorsFile(golden_folder() / "torchvision-resnet-basic/expected.safetensors").tensors();
  const at::NoGradGuard no_grad;
  const auto check = [&](const LoadedClassifier& loaded) {
    EXPECT_TRUE(loaded.outputs_are_logits);
    EXPECT_FALSE(loaded.model->head->weight.requires_grad());
    EXPECT_TRUE(loaded.model->unanchored().empty());
    loaded.model->eval();
    EXPECT_LT(difference(loaded.model->forward(expected["images"]), expected["logits"]), 1e-4);
  };
  const auto alone = load_classifier(model, "", {});
  check(alone);
  // From its archive, from the file of the same weights by another name, and from what is saved of it.
  check(load_classifier(model, golden(), {}));
  check(load_classifier(model, golden_folder() / "torchvision-resnet-basic/model.pth", {}));
  save_weights(*alone.model, file("run.safetensors"), alone.metadata);
  check(load_classifier(model, file("run.safetensors"), {}));
  // Arithmetic on two of these files may round.
  auto state = state_dict(*alone.model);
  state["head.weight"] = state["head.weight"] + 1e-6;
  save_safetensors(state, file("merged.safetensors"), alone.metadata);
  check(load_classifier(model, file("merged.safetensors"), {}));
  EXPECT_FALSE(has_head(model, golden()));
  EXPECT_TRUE(has_head(model, file("run.safetensors")));

  // A trained head is none of these.
  const auto two = LoadOptions().head(Head::kFresh).classifier(ClassifierOptions().num_classes(2));
  const auto fresh = load_classifier(model, "", two);
  EXPECT_FALSE(fresh.outputs_are_logits);
  EXPECT_TRUE(fresh.model->head->weight.requires_grad());
  ASSERT_EQ(fresh.notes.size(), 2U);
  EXPECT_TRUE(has(fresh.notes[0], "given as `model`")) << fresh.notes[0];
  EXPECT_TRUE(has(fresh.notes[1], "already returns 7 logits (of its last layer, 'fc')")) << fresh.notes[1];
  EXPECT_TRUE(has(fresh.notes[1], "`head` checkpoint uses them")) << fresh.notes[1];
  save_weights(*fresh.model, file("fresh.safetensors"), fresh.metadata);
  const auto again = load_classifier(model, file("fresh.safetensors"), {});
  EXPECT_FALSE(again.outputs_are_logits);
  EXPECT_TRUE(again.model->head->weight.requires_grad() && again.notes.size() == 1);
}

TEST_F(Scripts, AClassifierIsTrainedWithoutAHead) {
  // Its two outputs are the classes of data().
  torch::jit::Module fc("F"), module("M");
  for (const auto& [name, shape] :
       std::vector<std::pair<std::string, std::vector<int64_t>>>{{"weight", {2, 3}}, {"bias", {2}}}) {
    const at::Tensor values = at::randn(shape);
    values.set_requires_grad(true);
    fc.register_parameter(name, values, false);
  }
  module.register_module("fc", fc);
  module.define(
      "def forward(self, x):\n    return torch.matmul(x.mean([2, 3]), self.fc.weight.t()) + self.fc.bias\n");
  module.save(file("model.pt"));
  const std::string model = "script:" + file("model.pt").string() + ":image_size=8";
  const RunSetup run = prepared(model, {{"head", "checkpoint"}});
  EXPECT_TRUE(run.model->head->weight.equal(at::eye(2)));
  EXPECT_FALSE(run.model->head->weight.requires_grad());
  const Tpgm tpgm(*run.model, TpgmOptions());
  EXPECT_EQ(tpgm.displacements().names(),
            (std::vector<std::string>{"backbone.fc.weight", "backbone.fc.bias"}));
  EXPECT_NO_THROW(prepared(model, {{"head", "fresh"}, {"method", "lp"}}));
  // A run of it is one again, with its classes in another order, too.
  Metadata metadata = run.metadata;
  keys::kClasses.set(metadata, {"200", "40"});
  save_weights(*run.model, file("run.safetensors"), metadata);
  const RunSetup other = prepared(
      "", {{"head", "checkpoint"}, {"checkpoint", file("run.safetensors").string()}, {"method", "ft"}});
  EXPECT_EQ(other.options.model, model);
  EXPECT_TRUE(other.model->head->weight.equal(at::eye(2).flip(0)));
  EXPECT_FALSE(other.model->head->weight.requires_grad());
}

// A script of two linear layers, of which the first has the outputs if `swapped`; in `frozen` ones no parameter
// trains.
std::string two_layers(const std::filesystem::path& path, bool swapped, bool frozen = false) {
  torch::jit::Module module("M");
  for (const char* layer : {"first", "second"}) {
    const bool outputs = (layer == std::string("first")) == swapped;
    torch::jit::Module part("L");
    for (const auto& [name, shape] : std::vector<std::pair<std::string, std::vector<int64_t>>>{
             {"weight", {outputs ? 2 : 5, outputs ? 5 : 3}}, {"bias", {outputs ? 2 : 5}}}) {
      const at::Tensor values = at::randn(shape);
      values.set_requires_grad(!frozen);
      part.register_parameter(name, values, false);
    }
    module.register_module(layer, part);
  }
  const auto apply = [](const std::string& layer, const std::string& x) {
    return "torch.matmul(" + x + ", self." + layer + ".weight.t()) + self." + layer + ".bias";
  };
  const std::string inner = swapped ? "second" : "first", outer = swapped ? "first" : "second";
  module.define("def forward(self, x):\n    y = " + apply(inner, "x.mean([2, 3])") + "\n    return " +
                apply(outer, "y.relu()") + "\n");
  module.save(path);
  return "script:" + path.string() + ":image_size=8";
}

TEST_F(Scripts, TheHeadOfAClassifierIsItsLastLayer) {
  const Settings head{{"head", "checkpoint"}, {"head-lr", "0.1"}, {"lr", "0.01"}};
  const auto with = [&](Settings more) {
    more.insert(head.begin(), head.end());
    return more;
  };
  const auto trained = [](const RunSetup& run) {
    std::vector<std::string> names;
    for (const auto& item : run.model->named_parameters()) {
      if (item.value().requires_grad()) names.push_back(item.key());
    }
    return names;
  };
  const std::vector<std::string> of_second{"backbone.second.weight", "backbone.second.bias"};
  const std::string model = two_layers(file("last.pt"), /*swapped=*/false);
  const RunSetup run = prepared(model, head);
  EXPECT_EQ(run.options.head_name, "second");
  EXPECT_EQ(run.metadata.at("tpgm.head_name"), "second");
  EXPECT_EQ(run.model->head_module(), "backbone.second");
  // Its learning rate is that of a head, and the layers before it keep theirs.
  std::map<std::string, double> scales;
  const auto optimizer = optimizer_of(run.options, *run.model);
  for (const auto& group : optimizer.groups()) {
    for (const auto& item : group.parameters) scales[item.key()] = group.lr_scale;
  }
  EXPECT_DOUBLE_EQ(scales.at("backbone.second.weight"), 10);
  EXPECT_DOUBLE_EQ(scales.at("backbone.second.bias"), 10);
  EXPECT_DOUBLE_EQ(scales.at("backbone.first.weight"), 1);
  EXPECT_EQ(trained(prepared(model, with({{"method", "lp"}}))), of_second);
  EXPECT_EQ(trained(prepared(model, with({{"method", "lp-ft"}}))), of_second);
  // It is anchored like the head of a checkpoint.
  const RunSetup anchored = prepared(model, with({{"method", "tpgm"}, {"radius-fraction", "0.4"}}));
  EXPECT_EQ(dynamic_cast<Tpgm&>(*anchored.method).displacements().names().size(), 4U);

  // One that is not the last is named; a file of the run knows it.
  const std::string swapped = two_layers(file("swapped.pt"), /*swapped=*/true);
  EXPECT_EQ(prepared(swapped, {{"head", "checkpoint"}}).options.head_name, "");
  for (const auto& more : {with({}), Settings{{"head", "checkpoint"}, {"method", "lp"}}}) {
    const auto unknown = error_of([&] { prepared(swapped, more); });
    EXPECT_TRUE(has(unknown, "name the layer that is its head with `head-name`")) << unknown;
    EXPECT_TRUE(has(unknown, more.contains("head-lr") ? "`head-lr`: the logits" : "`method` lp: the logits"))
        << unknown;
  }
  const RunSetup named = prepared(swapped, with({{"method", "lp"}, {"head-name", "first"}}));
  const std::vector<std::string> of_first{"backbone.first.weight", "backbone.first.bias"};
  EXPECT_EQ(trained(named), of_first);
  save_weights(*named.model, file("named.safetensors"), named.metadata);
  const Settings from{{"checkpoint", file("named.safetensors").string()}};
  Settings probe = with({{"method", "lp"}});
  probe.insert(from.begin(), from.end());
  const RunSetup again = prepared("", probe);
  EXPECT_EQ(again.options.head_name, "first");
  EXPECT_EQ(trained(again), of_first);

  const auto wrong = error_of([&] { prepared(swapped, with({{"head-name", "fc"}})); });
  EXPECT_TRUE(has(wrong,
                  "`head-name` fc: the script has no linear layer of this name with 2 outputs; those are "
                  "first"))
      << wrong;
  EXPECT_TRUE(has(error_of([&] { prepared(swapped, {{"head", "fresh"}, {"head-name", "first"}}); }),
                  "`head-name` first is for `head` checkpoint, not fresh"));

  // The graph is fixed: a class cannot be taken away.
  Metadata metadata = named.metadata;
  keys::kClasses.set(metadata, {"40", "200", "90"});
  save_weights(*named.model, file("classes.safetensors"), metadata);
  const auto fewer = error_of(
      [&] { prepared("", {{"head", "checkpoint"}, {"checkpoint", file("classes.safetensors").string()}}); });
  EXPECT_TRUE(has(fewer, "of its 3 classes, and the data have 2: a script cannot lose any of them")) << fewer;
}

// Nothing can be trained, but a run of no epochs scores what there is.
TEST_F(Scripts, FrozenOnesAreScored) {
  const std::string model = two_layers(file("frozen.pt"), /*swapped=*/false, /*frozen=*/true);
  EXPECT_TRUE(has(error_of([&] { prepared(model, {{"head", "checkpoint"}}); }),
                  "`method` ft has nothing to train: its parameters are frozen in the script"));
  EXPECT_NO_THROW(prepared(model, {{"head", "checkpoint"}, {"epochs", "0"}}));
}

}  // namespace
}  // namespace tpgm::testing
