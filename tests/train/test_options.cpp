// The table of options, what is known of each, and recipes.
#include <torch/torch.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "tests/data/data_files.h"
#include "tests/support.h"
#include "tpgm/io/file.h"
#include "tpgm/methods/registry.h"
#include "tpgm/train/recipe.h"
#include "tpgm/train/toml.h"

namespace tpgm::test_options {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using Keys = std::set<std::string>;

Keys keys_of(Trait traits) {
  const auto keys = keys_with(traits);
  return {keys.begin(), keys.end()};
}

Keys with_method_keys(Keys keys) {
  const TrainOptions defaults;
  Keys own;
  TrainOptions::fields(
      [&](const char*, const char* key, Trait, const char*, const auto&) { own.insert(key); }, defaults);
  for (const auto& method : methods()) {
    for (const auto& option : method.options) {
      if (!own.contains(option_key(option.name))) keys.insert(option_key(option.name));
    }
  }
  return keys;
}

// --- traits -----------------------------------------------------------------------------------------------
TEST(Options, EachSaysWhatItIs) {
  const TrainOptions defaults;
  TrainOptions::fields(
      [&](const std::string& group, const char* key, Trait traits, const std::string& help,
          const auto& value) {
        SCOPED_TRACE(key);
        using T = std::decay_t<decltype(value)>;
        EXPECT_NE(has_any(traits, Trait::kIdentity), has_any(traits, Trait::kCircumstance));
        EXPECT_FALSE(has_any(traits, Trait::kMachine | Trait::kResumable) &&
                     has_any(traits, Trait::kIdentity));
        EXPECT_EQ(group == "Data", has_any(traits, Trait::kData));
        EXPECT_FALSE(has_any(traits, Trait::kModel) && group != "Model");
        EXPECT_FALSE(help.empty());
        if (has_any(traits, Trait::kScaled | Trait::kScaledAway)) {
          EXPECT_TRUE((std::is_same_v<T, double> || std::is_same_v<T, int64_t> ||
                       std::is_same_v<T, std::optional<int64_t>>));
        }
        if (has_any(traits, Trait::kPath)) {
          EXPECT_TRUE((std::is_same_v<T, std::string> || std::is_same_v<T, HeadSource>));
        }
      },
      defaults);
  for (const auto& key : with_method_keys({})) {
    EXPECT_TRUE(has_trait(key, Trait::kIdentity)) << key;
  }
}

// What commands ask the table for. A new option that belongs into one of these is added here, too.
TEST(Options, HaveTheTraitsThatCommandsAskFor) {
  EXPECT_EQ(keys_of(Trait::kPath), (Keys{"checkpoint", "weights", "data-dir", "class-list", "classnames",
                                         "vocab", "templates", "head", "output"}));
  EXPECT_EQ(keys_of(Trait::kResumable), (Keys{"workers", "cache", "log-every", "checkpoint-every"}));
  EXPECT_EQ(keys_of(Trait::kMachine), (Keys{"device", "workers", "cache", "cuda-graph"}));
  EXPECT_EQ(keys_of(Trait::kCircumstance),
            (Keys{"seed", "output", "device", "workers", "cache", "log-every", "cuda-graph", "max-pixels",
                  "on-nan", "checkpoint-every", "on-bad-image", "deterministic", "validation-batch-size"}));
  EXPECT_EQ(keys_of(Trait::kImage), (Keys{"crop-pct", "mean", "std", "interpolation", "decode", "workers",
                                          "on-bad-image", "max-pixels"}));
  EXPECT_EQ(keys_of(Trait::kPerRun),
            with_method_keys({"method", "weights", "lp-epochs", "lp-lr", "seed", "output"}));
  EXPECT_EQ(
      keys_of(Trait::kFineTuning),
      with_method_keys({"head", "head-name", "head-lr", "weights", "method", "lp-lr", "lp-epochs",
                        "radius-fraction", "radius-batch-size", "share-validation", "mixup", "cutmix",
                        "mixup-prob", "mixup-switch-prob", "smoothing", "radius-smoothing", "radius-mix"}));
  EXPECT_EQ(keys_of(Trait::kScaled | Trait::kScaledAway),
            (Keys{"fraction", "test-fraction", "epochs", "lp-epochs", "warmup-epochs", "decay-epochs",
                  "patience"}));
}

// Settings with the key of a training option never reach the method.
TEST(Options, OfMethodsHaveKeysOfTheirOwn) {
  const auto training = to_settings(TrainOptions());
  for (const auto& method : methods()) {
    for (const auto& option : method.options) {
      EXPECT_TRUE(option.by_loop || !training.contains(option_key(option.name)))
          << method.name << " " << option.name;
    }
  }
}

TEST(Options, AreSelectedByTraits) {
  const Settings all = {
      {"lr", "1"}, {"workers", "2"}, {"data-dir", "d"}, {"radius-lr", "3"}, {"no such", "4"}};
  EXPECT_EQ(only(all, Trait::kData | Trait::kMachine), (Settings{{"workers", "2"}, {"data-dir", "d"}}));
  EXPECT_EQ(without(all, Trait::kData | Trait::kMachine),
            (Settings{{"lr", "1"}, {"radius-lr", "3"}, {"no such", "4"}}));
  EXPECT_FALSE(has_trait("no such", Trait::kIdentity | Trait::kCircumstance));
  EXPECT_TRUE(has_trait("radius-lr", Trait::kPerRun));
}

TEST(Options, KnowTheirPaths) {
  EXPECT_TRUE(is_path("checkpoint", "a.pt"));
  EXPECT_FALSE(is_path("checkpoint", ""));
  EXPECT_FALSE(is_path("model", "a.pt"));
  for (const char* word : {"fresh", "checkpoint", "zeroshot", "text"}) EXPECT_FALSE(is_path("head", word));
  EXPECT_TRUE(is_path("head", "head.safetensors"));
  EXPECT_TRUE(is_path("templates", "templates.txt"));
  EXPECT_FALSE(is_path("templates", "a photo of a {}."));
}

TEST(Options, GoToTextAndBack) {
  const Settings given = {{"device", "cuda:1"}, {"head", "h.st"},     {"cache", "500MiB"}, {"opt", "adam"},
                          {"method", "tpgm"},   {"radius-lr", "0.5"}, {"test", "a,b"},     {"lp-lr", "auto"}};
  const auto options = make_options(given);
  EXPECT_EQ(options.device, c10::Device("cuda:1"));
  EXPECT_EQ(options.head, (HeadSource{HeadSource::Kind::kFile, "h.st"}));
  EXPECT_EQ(options.cache.bytes, int64_t{500} << 20);
  EXPECT_EQ(options.opt, Opt::kAdam);
  const auto settings = to_settings(options);
  for (const auto& [key, text] : given) EXPECT_EQ(settings.at(key), text) << key;
  EXPECT_EQ(to_settings(make_options(settings)), settings);
  EXPECT_EQ(settings.size(), to_settings(TrainOptions()).size() + 1);
}

// --- recipes ----------------------------------------------------------------------------------------------
class Recipes : public test::Scratch {
 protected:
  fs::path recipe(const std::string& text, const std::string& name = "recipe.toml") const {
    test::write_bytes(folder_ / name, text);
    return folder_ / name;
  }
  TrainOptions read(const std::string& text) const {
    return make_options(load_recipe(recipe(text)).settings);
  }
  std::string refused(const std::string& text) const {
    return error_of([&] { read(text); });
  }
  void expect_round_trip(const TrainOptions& options) const {
    const auto again = read(to_toml(options));
    TrainOptions::fields([](const char*, const char* key, Trait, const char*, const auto& a,
                            const auto& b) { EXPECT_TRUE(a == b) << key; },
                         options, again);
    EXPECT_EQ(options.method_options, again.method_options);
    EXPECT_EQ(to_toml(options), to_toml(again));
  }
};

TEST_F(Recipes, GoThereAndBack) {
  expect_round_trip(TrainOptions());

  // Every option something else than its default, in texts whatever could be taken for grammar.
  TrainOptions options;
  double fraction = 1.0 / 3;
  int64_t count = 3;
  const std::string odd = "/a \"b\" \\c\\n 'd' # e = [f], {g} ; %h é, 1\t\n\r\\";
  const auto set = [&](auto& self, auto& value) {
    using T = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<T, std::string>) {
      value = odd;
    } else if constexpr (std::is_same_v<T, bool>) {
      value = !value;
    } else if constexpr (std::is_same_v<T, double>) {
      value = fraction *= 0.97;
    } else if constexpr (std::is_same_v<T, int64_t>) {
      value = ++count;
    } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
      value = {"\"b\" # c\\", "name=../d e/f", "[g] = h"};
    } else if constexpr (std::is_same_v<T, std::vector<double>>) {
      value = {fraction *= 0.97, 1e-17};
    } else if constexpr (std::is_same_v<T, HeadSource>) {
      value = {HeadSource::Kind::kFile, odd};
    } else if constexpr (std::is_same_v<T, HeadRate>) {
      value = {HeadRate::Kind::kNumber, fraction *= 0.97};
    } else if constexpr (std::is_same_v<T, ByteCount>) {
      value = {1'500'000'000, "1.5GB"};
    } else if constexpr (std::is_same_v<T, std::optional<c10::Device>>) {
      value = c10::Device("cuda:3");
    } else if constexpr (std::is_enum_v<T>) {
      const auto& all = Keywords<T>::all;
      value = value == all[0].first ? all[1].first : all[0].first;
    } else {
      self(self, value.emplace());
    }
  };
  TrainOptions::fields([&](const char*, const char*, Trait, const char*, auto& value) { set(set, value); },
                       options);
  options.mean = options.std = {fraction, 1e-17, 0.5};  // of three channels, or of all
  options.crop_scale = options.crop_ratio = {1e-17, fraction};
  options.method = "tpgm";
  options.method_options = {{"exclude", "a.*,b.[0-9]*"}, {"every", "end"}, {"radius_lr", "0.125"}};
  expect_round_trip(options);
}

TEST_F(Recipes, AreFlatToml) {
  const auto settings = load_recipe(recipe("# a comment\r\n"
                                           "\tlr=1e-3 # another\r\n"
                                           "train = 're\\al # 1'\n"
                                           "test = [ # the tests\n  \"a\", 'b',\n  \"c\\\"\",\n]\n"
                                           "id = []\nhead-lr = \"\"\n\n"
                                           "color_jitter = [0.1,0.2 , -3]\n"
                                           "amp = true"))
                            .settings;
  const Settings expected = {{"lr", "1e-3"},  {"train", "re\\al # 1"},        {"test", "a,b,c\""}, {"id", ""},
                             {"head-lr", ""}, {"color-jitter", "0.1,0.2,-3"}, {"amp", "true"}};
  EXPECT_EQ(settings, expected);
  EXPECT_TRUE(load_recipe(recipe("")).settings.empty());
}

TEST_F(Recipes, EscapeWhatTomlForbids) {
  const std::string name = "a\x1B[31m\b\f\n\r\t\x7F\"\\é";
  EXPECT_EQ(toml_quoted(name), R"("a\u001B[31m\u0008\u000C\n\r\t\u007F\"\\é")");
  const auto value_of = [](const std::string& quoted) {
    return parse_toml("checkpoint = " + quoted + "\n").front().values.front();
  };
  EXPECT_EQ(value_of(toml_quoted(name)), name);
  EXPECT_EQ(value_of(R"("\b\f\u00e9\u20AC\U0001F600\u0041")"), "\b\f\u00e9\u20AC\U0001F600A");
  for (const char* wrong :
       {R"("\u12")", R"("\u12G4")", R"("\uD800")", R"("\u0000")", R"("\U00110000")", R"("\u)"})
    EXPECT_HAS(refused("checkpoint = " + std::string(wrong) + "\n"),
               "line 1: \\u takes the 4 hexadecimal digits");
}

TEST_F(Recipes, TakeOverFromTheirBase) {
  recipe("lr = 0.5\nepochs = 7\ncheckpoint = \"w.pt\"\nseeds = [0, 1]\n", "common.toml");
  const auto loaded =
      load_recipe(recipe("base = \"common.toml\"\nlr = 0.25\nweight_decay = 1e-3\nsweep = [\"lr=1,2\"]\n"));
  EXPECT_EQ(loaded.settings.at("lr"), "0.25");
  EXPECT_EQ(loaded.settings.at("epochs"), "7");
  EXPECT_EQ(loaded.settings.at("weight-decay"), "1e-3");
  EXPECT_EQ(loaded.settings.at("checkpoint"), (folder_ / "w.pt").string());
  EXPECT_EQ(loaded.sweep, std::vector<std::string>{"lr=1,2"});
  EXPECT_EQ(loaded.seeds, (std::vector<std::string>{"0", "1"}));
  recipe("base = \"recipe.toml\"\n", "common.toml");
  EXPECT_HAS(error_of([&] { load_recipe(folder_ / "recipe.toml"); }), "each other's base");
}

TEST_F(Recipes, TrainOnOneDomainOrSeveral) {
  EXPECT_EQ(read("train = \"real\"\n").train, std::vector<std::string>{"real"});
  EXPECT_EQ(read("train = [\"art\", \"photo\"]\n").train, (std::vector<std::string>{"art", "photo"}));
  EXPECT_TRUE(read("train = \"\"\n").train.empty());  // as version 0.1.0 wrote it
}

TEST_F(Recipes, FindTestsBesideThem) {
  const std::string tests = "test = [\"home\", \"s=sketches\", \"v=../elsewhere\"]\n";
  fs::create_directories(folder_ / "sketches");
  const std::string found = "home,s=" + (folder_ / "sketches").string() + ",v=../elsewhere";
  EXPECT_EQ(load_recipe(recipe(tests)).settings.at("test"), found);
  // A base says it of its own folder.
  fs::create_directories(folder_ / "below" / "sketches");
  recipe(tests, "common.toml");
  write_file(folder_ / "below" / "recipe.toml", "base = \"../common.toml\"\n");
  EXPECT_EQ(load_recipe(folder_ / "below" / "recipe.toml").settings.at("test"), found);
  // A run of an older version means `data-dir`, whatever is beside its recipe.
  std::string run = read_text(fs::path(TPGM_TEST_DATA) / "study/run-0.1.0/finished/recipe.toml").value();
  const std::string before = "test = [\"away\"]\n";
  ASSERT_NE(run.find(before), std::string::npos);
  run.replace(run.find(before), before.size(), tests);
  EXPECT_EQ(load_recipe(recipe(run)).settings.at("test"), "home,s=sketches,v=../elsewhere");
}

// That version had no warm-up of the moving average, and wrote every key that it knew.
TEST_F(Recipes, OfVersion010KeepTheirMeaning) {
  const fs::path run = fs::path(TPGM_TEST_DATA) / "study" / "run-0.1.0" / "finished";
  std::string text = read_text(run / "recipe.toml").value();
  EXPECT_FALSE(load_recipe(recipe(text)).settings.contains("model-ema-warmup"));
  const std::string off = "model-ema = false";
  ASSERT_NE(text.find(off), std::string::npos);
  text.replace(text.find(off), off.size(), "model-ema = true");
  EXPECT_FALSE(read(text).model_ema_warmup);
  EXPECT_TRUE(read(text + "model-ema-warmup = true\n").model_ema_warmup);
  EXPECT_TRUE(read("model-ema = true\n").model_ema_warmup);  // by hand, where it is today's default
  // A fresh head learned at `lr`.
  EXPECT_NE(text.find("head-lr = \"auto\""), std::string::npos);
  EXPECT_EQ(read(text).head_lr.kind, HeadRate::Kind::kSame);
  EXPECT_EQ(read("head-lr = \"auto\"\n").head_lr.kind, HeadRate::Kind::kAuto);
  EXPECT_EQ(read("head-lr = 0.5\n").head_lr.value(1), 0.5);
}

// That version took any mean and std, and one number for RandAugment. Such runs are read; new ones are stopped.
TEST_F(Recipes, OfOlderRunsAreRead) {
  const auto one = read("rand-augment = 3\nmean = [123.7, 116.3, 103.5]\nstd = 58.4\n");
  EXPECT_EQ(one.rand_augment, std::vector<double>{3});
  EXPECT_EQ(one.mean, (std::vector<double>{123.7, 116.3, 103.5}));
  EXPECT_EQ(
      error_of([&] { check_new_run(one); }),
      "`mean` 123.7,116.3,103.5: pixels are from 0 to 1 here; divide values for pixels from 0 to 255 by "
      "255");
  EXPECT_HAS(error_of([&] { check_new_run(read("std = [0.2, 58.4, 0.2]\n")); }),
             "`std` 0.2,58.4,0.2: pixels");
  EXPECT_NO_THROW(check_new_run(read("mean = [-0.1, 0.5, 1.5]\nstd = 2\nrand-augment = 3\n")));
}

TEST_F(Recipes, AreBeatenByWhatIsGiven) {
  Recipe loaded{
      {{"lr", "1"}, {"seed", "7"}}, {"lr=1,2", "weight_decay=0,1"}, {"0", "1"}, {"weight-decay=ft.lr"}};
  override_with(loaded, {{"lr", "3"}});
  EXPECT_EQ(loaded.settings, (Settings{{"lr", "3"}, {"seed", "7"}}));
  EXPECT_EQ(loaded.sweep, (std::vector<std::string>{"weight_decay=0,1"}));
  EXPECT_EQ(loaded.seeds, (std::vector<std::string>{"0", "1"}));
  override_with(loaded, {{"weight-decay", "0.5"}, {"seed", "9"}});
  EXPECT_TRUE(loaded.sweep.empty() && loaded.take.empty() && loaded.seeds.empty());
  EXPECT_EQ(loaded.settings.at("seed"), "9");
}

TEST_F(Recipes, SayWhatIsWrongWithThem) {
  EXPECT_HAS(error_of([&] { load_recipe(folder_ / "none.toml"); }), "[load_recipe] there is no recipe '");
  EXPECT_HAS(error_of([&] { load_recipe(folder_ / "none.toml"); }), "none.toml");
  const auto expect_says = [&](const std::string& text, const std::vector<std::string>& parts) {
    const auto message = refused(text);
    for (const auto& part : parts) EXPECT_HAS(message, part);
  };
  expect_says("epochs = 3\nlearning-rate = 1\n", {"recipe.toml", "'learning-rate'", "did you mean"});
  expect_says("batchsize = 3\n", {"'batchsize'", "did you mean 'batch-size'"});
  expect_says("lr = 1\nlr = 2\n", {"recipe.toml", "'lr' twice"});
  expect_says("batch-size = 1\nbatch_size = 2\n", {"recipe.toml", "'batch-size' twice"});
  expect_says("[optim]\nlr = 1\n", {"recipe.toml", "flat", "[optim]"});
  expect_says("lr = 1\n[optim]\n", {"recipe.toml", "flat", "[optim]"});
  expect_says("optim.lr = 1\n", {"recipe.toml", "flat", "[optim]"});
  expect_says("test = [\"a\"]\ntest = [\"b\"]\n", {"'test' twice"});
  expect_says("lr\n", {"recipe.toml', line 1: expected key = value"});
  expect_says("\n# two\nlr =\n", {"line 3: expected a \"string\", a number"});
  expect_says("lr = 1 2\n", {"line 1: more than one value of 'lr'"});
  expect_says("train = \"real\nlr = 1\n", {"line 1: a string does not end"});
  expect_says("train = \"re\\al\"\n", {"line 1", "\\ goes before"});
  expect_says("test = [\"a\" \"b\"]\n", {"line 1: expected , or ] in a list"});
  expect_says("test = [\"a\",\n", {"a list does not end"});
  expect_says("test = [[\"a\"]]\n", {"line 1: expected a \"string\", a number"});
  expect_says("lr = \"fast\"\n", {"`lr` must be a number, not 'fast'"});
  expect_says("lr = [1, 2]\n", {"`lr` must be a number, not '1,2'"});
  expect_says("epochs = 1.5\n", {"`epochs` must be an integer, not '1.5'"});
  expect_says("amp = 1\n", {"`amp` must be true or false, not '1'"});
  expect_says("opt-betas = [0.9]\n", {"`opt-betas`", "expected 2 numbers separated by commas, not 1"});
  expect_says("crop-scale = [0.9, \"x\"]\n", {"`crop-scale` must be a number, not 'x'"});
  expect_says("mean = [0.5, 0.5]\n", {"`mean`: 2 numbers; expected 1 or 3"});
  expect_says("mean = nan\n", {"`mean` nan: must be finite"});
  expect_says("mean = 1e300\n", {"`mean` 1e+300: must be finite"});  // as a float
  expect_says("std = 1e-60\n", {"`std` 1e-60: must be above 0 and finite"});
  expect_says("std = 0\n", {"`std` 0: must be above 0 and finite"});
  expect_says("std = inf\n", {"`std` inf: must be above 0 and finite"});
  expect_says("crop-pct = 0\n", {"`crop-pct` 0: must be 0.01 or more"});
  expect_says("crop-scale = [1, 0.5]\n",
              {"`crop-scale` 1,0.5: must be two numbers above 0, the smaller one"});
  expect_says("crop-ratio = [0, 1]\n", {"`crop-ratio` 0,1: must be two numbers above 0"});
  expect_says("opt-betas = [0.9, 1.5]\n", {"`opt-betas` 0.9,1.5: must be from 0 to below 1"});
  expect_says("rand-augment = -1\n", {"`rand-augment` -1: the number of operations must be 0 or more"});
  expect_says("rand-augment = [2, 31]\n", {"`rand-augment` 2,31", "the magnitude from 0 to 30"});
  expect_says("color-jitter = [0, 0, 0, 0.6]\n", {"`color-jitter` 0,0,0,0.6", "the hue at most 0.5"});
  expect_says("fraction = 0\n", {"`fraction` 0: must be above 0"});
  expect_says("test-fraction = 0\n", {"`test-fraction` 0: must be above 0"});
  expect_says("opt = \"lamb\"\n", {"`opt` must be sgd|adam|adamw, not 'lamb'"});
  expect_says("device = \"tpu\"\n", {"`device` must be auto, cpu, cuda or cuda:N, not 'tpu'"});
  expect_says("cache = \"much\"\n", {"`cache` must be a size like 4GB or 500MiB, or 0, not 'much'"});
  expect_says("on-nan = \"stop\"\n", {"`on-nan` must be error|skip, not 'stop'"});
  expect_says("smoothing = 2\n", {"`smoothing` 2: must be from 0 to 1"});
  expect_says("batch-size = 0\n", {"`batch-size` 0: must be 1 or more"});
  expect_says("lr = -1\n", {"[make_options] `lr` -1: must be 0 or more"});
  expect_says("lr = nan\n", {"`lr` nan"});
  expect_says("method = \"tpg\"\n", {"no method 'tpg'", "did you mean 'tpgm'"});
  expect_says("method = \"ft\"\nradius-lr = 0.1\n", {"`radius-lr` is an option of tpgm and ftp, not of ft"});
}

TEST_F(Recipes, OfTheBoxAreRead) {
  const fs::path folder = fs::path(TPGM_TEST_DATA).parent_path() / "recipes";
  int64_t seen = 0;
  for (const auto& item : fs::recursive_directory_iterator(folder)) {
    if (item.path().extension() != ".toml") continue;
    SCOPED_TRACE(item.path().string());
    ++seen;
    auto settings = load_recipe(item.path()).settings;
    EXPECT_NO_THROW(make_options(settings));
  }
  EXPECT_GT(seen, 20);
}

}  // namespace
}  // namespace tpgm::test_options
