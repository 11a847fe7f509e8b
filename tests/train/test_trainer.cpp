// The loop around the steps: phases, averages, bad batches, early stops, and resumed runs.
#include "tests/torch_nn.h"
#include "tpgm/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>

#include "tests/data/data_files.h"
#include "tests/support.h"
#include "tpgm/io/safetensors.h"
#include "tpgm/methods/registry.h"
#include "tpgm/models/named_models.h"
#include "tpgm/nn/precision.h"
#include "tpgm/study/run_folder.h"
#include "tpgm/train/parameter_groups.h"
#include "tpgm/train/recipe.h"

namespace tpgm::test_trainer {
namespace {

namespace fs = std::filesystem;
using Json = RunFolder::Json;
using test::error_of;
using RunSetup = Setup;  // tests have a Setup() of their own

constexpr const char* kVit = "vit:image_size=8,patch=4,width=8,depth=1,heads=1,mlp=8";
constexpr const char* kResNet = "resnet:layers=1-1,width=4,block=basic,stem=small,image_size=8";
constexpr int64_t kClasses = 3;

// --- a run by hand ----------------------------------------------------------------------------------------
// A setup without files: the same model each time.
RunSetup setup_of(const TrainOptions& options, const std::string& name, at::Device device = at::kCPU) {
  RunSetup setup;
  setup.device = device;
  torch::manual_seed(1);
  ModelConfig config = parse_model(name);
  set_defaults(config);
  auto backbone = make_backbone(config);
  backbone->reset_parameters();
  setup.model = std::make_shared<Classifier>(backbone, ClassifierOptions().num_classes(kClasses));
  setup.model->to(device);
  setup.metadata["tpgm.model"] = to_text(config);
  setup.options = options;
  setup.method =
      make_method(options.method, *setup.model, named_tensors(*setup.model), options.method_options);
  return setup;
}

// The same few batches over and over.
struct Batches {
  explicit Batches(int64_t of_epoch, int64_t different = 5, int64_t size = 4) : of_epoch(of_epoch) {
    auto generator = at::detail::createCPUGenerator(7);
    for (int64_t i = 0; i < different; ++i) {
      Batch batch{torch::randn({size, 3, 8, 8}, generator),
                  torch::randint(kClasses, {size}, generator, torch::kLong),
                  {}};
      for (int64_t k = 0; k < size; ++k) batch.indices.push_back(i * size + k);
      all.push_back(batch);
    }
  }
  void to(at::Device device) {
    for (auto& batch : all) batch = {batch.images.to(device), batch.labels.to(device), batch.indices};
  }
  const Batch& at(int64_t epoch, int64_t number) const {
    return all[static_cast<size_t>(epoch * of_epoch + number) % all.size()];
  }
  BatchSource source() {
    return {of_epoch,
            [this](int64_t epoch, int64_t first) {
              this->epoch = epoch;
              next = first;
            },
            [this]() -> std::optional<Batch> {
              if (next == of_epoch) return std::nullopt;
              return at(epoch, next++);
            },
            [](int64_t index) { return "image " + std::to_string(index); }};
  }
  int64_t of_epoch, epoch = 0, next = 0;
  std::vector<Batch> all;
};

// For a test that is run on every device, whose names have a '/'.
fs::path scratch_folder() {
  const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
  std::string name = "tpgm-" + std::string(info->name()) + "-" + std::to_string(::getpid());
  std::replace(name.begin(), name.end(), '/', '-');
  const fs::path folder = fs::temp_directory_path() / name;
  test::remove_folder(folder);
  fs::create_directories(folder);
  return folder;
}

NamedTensors values_of(const torch::nn::Module& model) {
  NamedTensors values("Tensor");
  for (const auto& item : state_dict(model)) values.insert(item.key(), item.value().cpu().clone());
  return values;
}

void expect_identical(const NamedTensors& a, const NamedTensors& b) {
  ASSERT_EQ(a.keys(), b.keys());
  for (const auto& item : a) EXPECT_TRUE(test::same(item.value(), b[item.key()])) << item.key();
}

TrainOptions small_options() {
  TrainOptions options;
  options.epochs = 3;
  options.lr = 0.05;
  options.opt = Opt::kSgd;
  options.log_every = 1;
  return options;
}

// The loop that options describe, in as many lines as it has steps. `each` is called after every step.
void bare_loop(RunSetup& setup, const Batches& batches, const std::function<void()>& each = {}) {
  const auto& options = setup.options;
  std::vector<std::string> blocks;
  for (const auto& block : setup.model->backbone->blocks()) blocks.push_back("backbone." + block);
  Optimizer optimizer(parameter_groups(setup.model->named_parameters(), blocks,
                                       GroupOptions()
                                           .weight_decay(options.weight_decay)
                                           .layer_decay(options.layer_decay)
                                           .head_scale(options.head_lr.value(options.lr) / options.lr)),
                      OptimOptions().opt(options.opt));
  const int64_t accumulated = options.grad_accum_steps, steps = batches.of_epoch / accumulated;
  const Schedule schedule({{"ft", options.epochs, options.lr, options.warmup_epochs}}, steps,
                          ScheduleOptions().warmup_lr(options.warmup_lr));
  TrainingStep step(
      *setup.model, *setup.method, optimizer,
      StepOptions().batches(accumulated).clip_grad(options.clip_grad).smoothing(options.smoothing));
  for (int64_t i = 0; i < schedule.steps(); ++i) {
    for (int64_t k = 0; k < accumulated; ++k) {
      const Batch& batch = batches.at(i / steps, i % steps * accumulated + k);
      step.backward(batch.images, batch.labels, batch.labels);
    }
    step.update(schedule.lr(i), nullptr);
    if (each) each();
  }
}

class TrainerTest : public test::Scratch {
 protected:
  TrainerTest() { at::set_num_threads(1); }  // tiny tensors

  // Images to score on, two of a class.
  SampleSubset images() const {
    auto samples = std::make_shared<Samples>();
    samples->set_root(folder_);
    for (int64_t k = 0; k < kClasses; ++k) samples->classes.push_back("c" + std::to_string(k));
    for (int64_t i = 0; i < 2 * kClasses; ++i) {
      const std::string name = std::to_string(i) + ".png";
      test::write_image(folder_ / name, static_cast<uint64_t>(i), 8, 8);
      samples->add(name, i % kClasses);
    }
    return all_of(samples);
  }
  void add_selection(RunSetup& setup) const {
    setup.data.selection = images();
    setup.images = make_images(setup.options, *setup.model, setup.metadata, at::kCPU);
    setup.options.validation_batch_size = 4;
  }
  std::vector<Json> log_of(const fs::path& run, const std::string& event) const {
    std::vector<Json> lines;
    std::ifstream stream(run / "log.jsonl");
    for (std::string line; std::getline(stream, line);) {
      if (auto json = Json::parse(line); json["event"] == event) lines.push_back(json);
    }
    return lines;
  }
};

TEST_F(TrainerTest, IsTheBareLoop) {
  for (const Opt opt : {Opt::kSgd, Opt::kAdamW}) {
    for (const char* name : {kVit, kResNet}) {
      SCOPED_TRACE(to_text(opt) + ", " + name);
      auto options = small_options();
      options.opt = opt;
      options.grad_accum_steps = 2;
      options.warmup_epochs = 1;
      options.warmup_lr = 1e-3;
      options.clip_grad = 0.5;
      options.smoothing = 0.1;
      options.weight_decay = 0.1;
      options.layer_decay = 0.7;
      options.head_lr = {HeadRate::Kind::kNumber, 0.1};
      Batches batches(7);  // the last has no partner and is left out
      RunSetup one = setup_of(options, name), other = setup_of(options, name);
      const auto before = values_of(*one.model);
      bare_loop(one, batches);
      const auto result = Trainer(other, nullptr, {}, batches.source()).run();
      expect_identical(values_of(*one.model), values_of(*other.model));
      EXPECT_FALSE(test::same(before["head.weight"], one.model->head->weight));
      EXPECT_TRUE(result.finished);
      EXPECT_EQ(result.steps, 9);
      EXPECT_EQ(result.best_epoch, 3);
      EXPECT_TRUE(std::isnan(result.selection));
    }
  }
}

// With everything that could hold on to something: a folder, an average, a method with an anchor.
TEST_F(TrainerTest, HoldsItsMemory) {
  auto options = small_options();
  options.epochs = 10;
  options.lr = 1e-4;
  options.log_every = 50;
  options.method = "ftp";
  options.model_ema = true;
  Batches batches(1000, 5, 1);
  RunSetup setup = setup_of(options, kVit);
  RunFolder run = RunFolder::create(folder_ / "run", options, {});
  int64_t steps = 0, early = 0, late = 0;
  TrainCallbacks callbacks;
  callbacks.progress = [](const TrainProgress&) {};
  callbacks.stop = [&] {
    if (++steps == 1000) early = test::status_kib("VmRSS");
    if (steps == 10'000) late = test::status_kib("VmRSS");
    return false;
  };
  Trainer(setup, &run, callbacks, batches.source()).run();
  EXPECT_EQ(steps, 10'000);
  EXPECT_GT(early, 0);
  EXPECT_LT(late - early, 8 * 1024) << early << " KiB, then " << late;
  RecordProperty("KiB", std::to_string(late - early));
}

TEST_F(TrainerTest, TellsWhereItIs) {
  auto options = small_options();
  Batches batches(4);
  RunSetup setup = setup_of(options, kVit);
  std::vector<TrainProgress> seen;
  TrainCallbacks callbacks;
  callbacks.progress = [&](const TrainProgress& progress) { seen.push_back(progress); };
  Trainer(setup, nullptr, callbacks, batches.source()).run();
  ASSERT_EQ(seen.size(), 12U);
  for (size_t i = 0; i < seen.size(); ++i) {
    EXPECT_EQ(seen[i].step, static_cast<int64_t>(i) + 1);
    EXPECT_EQ(seen[i].epoch, static_cast<int64_t>(i) / 4 + 1);
    EXPECT_EQ(seen[i].steps, 12);
    EXPECT_EQ(seen[i].epochs, 3);
    EXPECT_EQ(seen[i].phase, "ft");
    ASSERT_TRUE(seen[i].numbers);
    EXPECT_GT(seen[i].numbers->images_s, 0);
    EXPECT_TRUE(std::isfinite(seen[i].numbers->loss) && seen[i].numbers->accuracy >= 0);
    EXPECT_GE(seen[i].seconds_left, 0);
  }
}

TEST_F(TrainerTest, TellsTheRadiusStepsAtTheEnd) {
  auto options = small_options();
  options.epochs = 1;
  options.method = "tpgm";
  options.method_options = {{"every", "end"}, {"radius_steps", "5"}};
  options.radius_batch_size = 3;
  Batches batches(2);
  RunSetup setup = setup_of(options, kVit);
  add_selection(setup);
  setup.data.radius = setup.data.selection;
  std::vector<std::string> lines, said;
  TrainCallbacks callbacks;
  callbacks.say = [&](const std::string& text) { said.push_back(text); };
  callbacks.radii = [&](const RadiusProgress& at) {
    EXPECT_EQ(at.step, static_cast<int64_t>(lines.size()) + 1);
    EXPECT_EQ(at.steps, 5);
    EXPECT_GT(at.loss.item<double>(), 0);
    EXPECT_EQ(at.seconds_left == 0, at.step == 5);
    lines.push_back(to_text(at));
  };
  Trainer(setup, nullptr, callbacks, batches.source()).run();
  ASSERT_EQ(lines.size(), 5U);
  EXPECT_EQ(lines[1].find("learning radii: step 2 of 5, loss "), 0U) << lines[1];
  for (const auto& text : said) EXPECT_EQ(text.find("batches of radius data"), std::string::npos) << text;
}

// Radius batches are mixed as training batches are, by a random stream of their own.
TEST_F(TrainerTest, MixesRadiusBatches) {
  auto options = small_options();
  options.mixup = 0.8;
  options.smoothing = 0.1;
  const Batch batch{torch::rand({4, 3, 8, 8}), torch::tensor({0, 1, 2, 1}), {0, 1, 2, 3}};
  const auto mixed = [&](int64_t number) { return mix_radius_batch(batch, options, number, 3); };
  EXPECT_TRUE(mixed(1).images.is_same(batch.images) && mixed(1).targets.is_same(batch.labels));
  options.radius_mix = true;
  options.radius_smoothing = 0.3;
  const auto one = mixed(1), two = mixed(2), training = mix_batch(batch, options, 0, 1, 3);
  EXPECT_TRUE(torch::equal(one.images, mixed(1).images));
  EXPECT_FALSE(torch::equal(one.images, two.images) || torch::equal(one.images, training.images));
  // Each image is shared with the one in its place in the reversed batch: find the share, and check the rest.
  const at::Tensor x = batch.images, y = x.flip(0);
  const double share =
      ((one.images - y) * (x - y)).sum().item<double>() / (x - y).square().sum().item<double>();
  EXPECT_TRUE(torch::allclose(one.images, share * x + (1 - share) * y, 0, 1e-5));
  const at::Tensor hot = torch::one_hot(batch.labels, 3).to(torch::kFloat);
  const at::Tensor targets = 0.7 * (share * hot + (1 - share) * hot.flip(0)) + 0.3 / 3;
  EXPECT_TRUE(torch::allclose(one.targets, targets, 0, 1e-5));
}

// Where no loss has arrived yet, there are no numbers to print: the device may be a step behind, or every
// step of the window was skipped, as here.
TEST_F(TrainerTest, TellsNoNumbersBeforeThereAreAny) {
  auto options = small_options();
  options.epochs = 1;
  Batches batches(3);
  batches.all[0] = {torch::empty({0, 3, 8, 8}), torch::empty({0}, torch::kLong), {}};
  RunSetup setup = setup_of(options, kVit);
  std::vector<std::string> lines;
  TrainCallbacks callbacks;
  callbacks.progress = [&](const TrainProgress& progress) { lines.push_back(to_text(progress)); };
  Trainer(setup, nullptr, callbacks, batches.source()).run();
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0], "ft epoch 1/1, step 1/3");
  EXPECT_EQ(lines[1].find("ft epoch 1/1, step 2/3, "), 0U) << lines[1];
  EXPECT_HAS(lines[1], " images/s, loss ");
  EXPECT_HAS(lines[1], ", accuracy ");
  EXPECT_EQ(lines[1].find("nan"), std::string::npos) << lines[1];
}

// Flags of the process are the run's while it runs, and the caller's afterwards.
TEST_F(TrainerTest, PutsBackTheFlagsOfTheProcess) {
  auto& context = at::globalContext();
  const auto flags = [&] {
    return std::tuple(context.benchmarkCuDNN(), context.deterministicCuDNN(),
                      context.deterministicAlgorithms(), context.deterministicAlgorithmsWarnOnly());
  };
  for (const bool deterministic : {false, true}) {
    auto options = small_options();
    options.epochs = 1;
    options.deterministic = deterministic;
    Batches batches(2);
    RunSetup setup = setup_of(options, kVit);
    for (const bool before : {false, true}) {
      context.setBenchmarkCuDNN(before);
      context.setDeterministicCuDNN(before);
      context.setDeterministicAlgorithms(before, /*warn_only=*/false);
      const auto given = flags();
      TrainCallbacks callbacks;
      callbacks.stop = [&] {
        EXPECT_EQ(flags(), std::tuple(!deterministic, deterministic, deterministic, true));
        return false;
      };
      Trainer trainer(setup, nullptr, callbacks, batches.source());
      EXPECT_EQ(flags(), given);
      trainer.run();
      EXPECT_EQ(flags(), given);
    }
  }
  context.setBenchmarkCuDNN(false);
  context.setDeterministicCuDNN(false);
  context.setDeterministicAlgorithms(false, false);
}

TEST_F(TrainerTest, NoEpochsLeaveTheWeights) {
  auto options = small_options();
  options.epochs = 0;
  Batches batches(4);
  RunSetup setup = setup_of(options, kVit);
  const auto before = values_of(*setup.model);
  const auto result = Trainer(setup, nullptr, {}, batches.source()).run();
  expect_identical(values_of(*setup.model), before);
  EXPECT_TRUE(result.finished);
  EXPECT_EQ(result.steps, 0);
  EXPECT_EQ(result.best_epoch, 0);
}

// --- patience, averages -----------------------------------------------------------------------------------
TEST_F(TrainerTest, LosesPatience) {
  for (const int64_t patience : {0, 1, 2, 5}) {
    SCOPED_TRACE(patience);
    auto options = small_options();
    options.epochs = 6;
    options.lr = 0;  // no epoch is better than the first
    options.patience = patience;
    Batches batches(2);
    RunSetup setup = setup_of(options, kVit);
    add_selection(setup);
    std::vector<std::string> said;
    TrainCallbacks callbacks;
    callbacks.say = [&](const std::string& text) { said.push_back(text); };
    const auto result = Trainer(setup, nullptr, callbacks, batches.source()).run();
    const int64_t epochs = patience == 0 || patience == 5 ? 6 : 1 + patience;
    EXPECT_TRUE(result.finished);
    EXPECT_EQ(result.steps, 2 * epochs);
    EXPECT_EQ(result.best_epoch, 1);
    const bool early = std::any_of(said.begin(), said.end(),
                                   [](const auto& text) { return test::contains(text, "stopped early"); });
    EXPECT_EQ(early, epochs < 6);
  }
}

TEST_F(TrainerTest, KeepsTheBestEpoch) {
  auto options = small_options();
  options.epochs = 8;
  options.lr = 0.3;
  Batches batches(3);
  RunSetup setup = setup_of(options, kVit), bare = setup_of(options, kVit);
  add_selection(setup);
  const auto result = Trainer(setup, nullptr, {}, batches.source()).run();
  // Each epoch of the bare loop, scored.
  setup.model->train();
  double best = -1;
  int64_t best_epoch = 0, steps = 0;
  NamedTensors weights("Tensor");
  Loader loader(setup.data.selection, setup.images.eval, setup.images.loader);
  bare_loop(bare, batches, [&] {
    if (++steps % 3 != 0) return;
    const double accuracy = evaluate(*bare.model, loader).top1();
    if (accuracy <= best) return;
    best = accuracy;
    best_epoch = steps / 3;
    weights = values_of(*bare.model);
  });
  EXPECT_EQ(result.best_epoch, best_epoch);
  EXPECT_DOUBLE_EQ(result.selection, best);
  expect_identical(values_of(*setup.model), weights);
}

TEST_F(TrainerTest, EvaluatesTheAverage) {
  for (const char* name : {kVit, kResNet}) {
    for (const bool warmup : {false, true}) {
      SCOPED_TRACE(std::string(name) + (warmup ? ", warming up" : ""));
      auto options = small_options();
      options.epochs = 1;
      options.lr = 0.2;
      options.model_ema = true;
      options.model_ema_decay = 0.6;
      options.model_ema_warmup = warmup;
      Batches batches(9);
      RunSetup setup = setup_of(options, name), bare = setup_of(options, name);
      add_selection(setup);
      const auto result = Trainer(setup, nullptr, {}, batches.source()).run();
      auto average = values_of(*bare.model);
      // 1 − (1 + n)^(−2/3), as long as that is below 0.6.
      std::vector<double> decays = {0.0, 0.3700394750525634, 0.5192501432308638};
      if (!warmup) decays.clear();
      decays.resize(9, 0.6);
      size_t step = 0;
      bare_loop(bare, batches, [&] {
        const double decay = decays.at(step++);
        for (const auto& item : state_dict(*bare.model)) {
          at::Tensor& each = average[item.key()];
          each = each.is_floating_point() ? decay * each + (1 - decay) * item.value() : item.value().clone();
        }
      });
      for (const auto& item : values_of(*setup.model)) {
        EXPECT_TRUE(at::allclose(item.value(), average[item.key()], 1e-5, 1e-6)) << item.key();
        // The weights themselves are elsewhere.
        if (item.value().is_floating_point()) {
          EXPECT_FALSE(at::allclose(item.value(), state_dict(*bare.model)[item.key()], 1e-5, 1e-6))
              << item.key();
        }
      }
      load_state_dict(*bare.model, average);
      Loader loader(setup.data.selection, setup.images.eval, setup.images.loader);
      EXPECT_DOUBLE_EQ(result.selection, evaluate(*bare.model, loader).top1());
    }
  }
}

// --- losses that are none ---------------------------------------------------------------------------------
class BadLoss : public testing::OnDevice {
 protected:
  BadLoss() : folder_(scratch_folder()) {}
  ~BadLoss() override { test::remove_folder(folder_); }
  void SetUp() override {
    OnDevice::SetUp();
    at::set_num_threads(1);
  }
  fs::path folder_;
};
TPGM_ON_EVERY_DEVICE(BadLoss);

TEST_P(BadLoss, IsSkipped) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const char* name : {kVit, kResNet}) {
      SCOPED_TRACE(std::string(name) + " and " + std::to_string(bad));
      auto options = small_options();
      options.epochs = 2;
      options.on_nan = OnNan::kSkip;
      options.model_ema = true;
      Batches batches(5);
      batches.all[2].images[1][0][3][3] = bad;
      batches.to(device());
      RunSetup setup = setup_of(options, name, device());
      std::vector<NamedTensors> seen = {values_of(*setup.model)};
      std::vector<std::string> said;
      TrainCallbacks callbacks;
      callbacks.stop = [&] {
        seen.push_back(values_of(*setup.model));
        return false;
      };
      callbacks.say = [&](const std::string& text) { said.push_back(text); };
      const auto result = Trainer(setup, nullptr, callbacks, batches.source()).run();
      EXPECT_EQ(result.skipped_steps, 2);
      EXPECT_EQ(result.steps, 10);
      EXPECT_EQ(std::count_if(said.begin(), said.end(),
                              [](const auto& text) { return test::contains(text, "skipped"); }),
                2);
      ASSERT_EQ(seen.size(), 11U);
      for (size_t i = 1; i < seen.size(); ++i) {
        if (i == 3 || i == 8) {
          expect_identical(seen[i], seen[i - 1]);  // also what BatchNorm saw
        } else {
          EXPECT_FALSE(test::same(seen[i]["head.weight"], seen[i - 1]["head.weight"])) << i;
        }
      }
      for (const auto& item : seen.back())
        EXPECT_TRUE(at::isfinite(item.value()).all().item<bool>()) << item.key();
      for (const auto& item : values_of(*setup.model))  // the average
        EXPECT_TRUE(at::isfinite(item.value()).all().item<bool>()) << item.key();
    }
  }
}

// A loader that leaves out images may leave out all of a batch.
TEST_F(TrainerTest, SkipsABatchWithoutImages) {
  auto options = small_options();
  options.epochs = 1;
  Batches batches(5);
  batches.all[1] = {torch::empty({0, 3, 8, 8}), torch::empty({0}, torch::kLong), {}};
  RunSetup setup = setup_of(options, kVit);
  const auto result = Trainer(setup, nullptr, {}, batches.source()).run();
  EXPECT_EQ(result.skipped_steps, 1);
  EXPECT_EQ(result.steps, 5);
}

TEST_P(BadLoss, IsNamedWithStepAndFiles) {
  for (const bool with_folder : {false, true}) {
    auto options = small_options();
    options.checkpoint_every = 2;
    Batches batches(5);
    batches.all[3].images[1][0][3][3] = std::numeric_limits<float>::quiet_NaN();
    batches.to(device());
    RunSetup setup = setup_of(options, kVit, device());
    const fs::path path = folder_ / "run";
    std::optional<RunFolder> run;
    if (with_folder) run.emplace(RunFolder::create(path, options, {}));
    NamedTensors before("Tensor");
    TrainCallbacks callbacks;
    callbacks.stop = [&] {
      before = values_of(*setup.model);
      return false;
    };
    const std::string message =
        error_of([&] { Trainer(setup, run ? &*run : nullptr, callbacks, batches.source()).run(); });
    EXPECT_HAS(message, "[Trainer::run] step 4: the loss is nan");
    EXPECT_HAS(message, "'image 12', 'image 13', 'image 14' and 1 more");
    EXPECT_HAS(message, "`on-nan` skip");
    if (device().is_cpu()) expect_identical(values_of(*setup.model), before);  // it was stopped in time
    if (!with_folder) {
      EXPECT_HAS(message, "there is no checkpoint yet");
      continue;
    }
    EXPECT_HAS(message, (path / "resume.safetensors").string() + " of step 2");
    EXPECT_EQ(test::read_bytes(path / "bad_batch.txt"), "image 12\nimage 13\nimage 14\nimage 15\n");
  }
}

TEST_P(BadLoss, IsNamedWhenTheStepWasCaptured) {
  for (const char* method : {"ft", "l2-sp", "mars-sp", "ftp", "spd"}) {
    SCOPED_TRACE(method);
    auto options = small_options();
    options.method = method;
    Batches batches(10, 10);
    batches.all[8].images[1][0][3][3] = std::numeric_limits<float>::quiet_NaN();
    batches.to(device());
    RunSetup setup = setup_of(options, kResNet, device());
    const std::string message = error_of([&] { Trainer(setup, nullptr, {}, batches.source()).run(); });
    EXPECT_HAS(message, "step 9: the loss is nan");
    EXPECT_HAS(message, "'image 32'");
  }
}

// --- phases -----------------------------------------------------------------------------------------------
TEST_F(TrainerTest, ProbesThenFineTunes) {
  for (const Opt opt : {Opt::kSgd, Opt::kAdamW}) {
    SCOPED_TRACE(to_text(opt));
    auto options = small_options();
    options.epochs = 5;
    options.opt = opt;
    options.lr = 0.01;
    options.weight_decay = 0.1;
    options.method = "lp-ft";
    options.lp_epochs = 2;
    options.lp_lr = 0.1;
    options.warmup_epochs = 1;
    options.method_options["lp_steps"] = "8";
    Batches batches(4);
    RunSetup setup = setup_of(options, kResNet);
    const fs::path path = folder_ / to_text(opt);
    RunFolder run = RunFolder::create(path, options, {});
    std::vector<NamedTensors> seen = {values_of(*setup.model)};
    TrainCallbacks callbacks;
    callbacks.stop = [&] {
      seen.push_back(values_of(*setup.model));
      return false;
    };
    Trainer(setup, &run, callbacks, batches.source()).run();
    ASSERT_EQ(seen.size(), 21U);
    for (size_t i = 1; i < seen.size(); ++i) {
      if (i == 9) continue;  // the warm-up's first learning rate is 0
      for (const auto& item : seen[i]) {
        const bool moves = item.key().starts_with("head.") || i > 8;
        EXPECT_EQ(!test::same(item.value(), seen[i - 1][item.key()]), moves) << item.key() << ", step " << i;
      }
    }
    const auto lines = log_of(path, "step");
    ASSERT_EQ(lines.size(), 20U);
    const Schedule lp({{"lp", 2, 0.1, 0}}, 4, {}), ft({{"ft", 3, 0.01, 1}}, 4, {});
    for (size_t i = 0; i < lines.size(); ++i) {
      const auto step = static_cast<int64_t>(i);
      EXPECT_EQ(lines[i]["phase"], i < 8 ? "lp" : "ft");
      EXPECT_DOUBLE_EQ(lines[i]["lr"], i < 8 ? lp.lr(step) : ft.lr(step - 8));
    }
    EXPECT_DOUBLE_EQ(lines[0]["lr"], 0.1);
    EXPECT_DOUBLE_EQ(lines[12]["lr"], ft.lr(4));
  }
}

// The second phase begins with an optimizer that knows nothing of the first.
TEST_F(TrainerTest, ThePhasesAreTwoRuns) {
  auto options = small_options();
  options.epochs = 4;
  options.method = "lp-ft";
  options.lp_epochs = 2;
  options.method_options["lp_steps"] = "10";
  Batches batches(5);
  RunSetup both = setup_of(options, kVit);
  Trainer(both, nullptr, {}, batches.source()).run();

  options.epochs = 2;
  options.method = "lp";
  options.lp_epochs.reset();
  options.method_options.clear();
  RunSetup first = setup_of(options, kVit);
  Trainer(first, nullptr, {}, batches.source()).run();
  options.method = "ft";
  RunSetup second = setup_of(options, kVit);
  load_state_dict(*second.model, state_dict(*first.model));
  Trainer(second, nullptr, {}, batches.source()).run();
  expect_identical(values_of(*both.model), values_of(*second.model));
}

// --- runs on disk -----------------------------------------------------------------------------------------
class Resume : public testing::OnDevice {
 protected:
  Resume() : folder_(scratch_folder()) {
    for (uint64_t i = 0; i < 45; ++i) {
      const std::string part = i < 30 ? "train" : "test";
      test::write_image(
          folder_ / "data" / part / ("c" + std::to_string(i % 3)) / (std::to_string(i) + ".png"), i, 12, 10);
    }
  }
  ~Resume() override { test::remove_folder(folder_); }
  void SetUp() override {
    OnDevice::SetUp();
    at::set_num_threads(1);
  }
  void TearDown() override { at::globalContext().setDeterministicAlgorithms(false, false); }

  // 18 images to train on, six to learn radii from, six to select on: 3 epochs of 4 steps.
  Settings settings(const Settings& own) const {
    Settings all = {{"data-dir", (folder_ / "data").string()},
                    {"model", kResNet},
                    {"radius-fraction", "0.2"},
                    {"selection-fraction", "0.2"},
                    {"epochs", "3"},
                    {"batch-size", "4"},
                    {"radius-batch-size", "4"},
                    {"lr", "0.02"},
                    {"workers", "2"},
                    {"log-every", "1"},
                    {"seed", "3"},
                    {"deterministic", "true"},
                    {"device", device().is_cuda() ? "cuda" : "cpu"}};
    for (const auto& [key, value] : own) all[key] = value;
    return all;
  }
  fs::path begin(const std::string& name, const Settings& own) const {
    const RunSetup setup = prepare_run(make_options(settings(own)));
    RunFolder::create(folder_ / name, setup.options, {});
    return folder_ / name;
  }
  // As --resume does it: from the folder alone; stopped after so many steps, or (0) when it is first asked.
  static TrainResult go_on(const fs::path& path, int64_t most = std::numeric_limits<int64_t>::max()) {
    int64_t steps = 0;
    TrainCallbacks callbacks;
    callbacks.progress = [&](const TrainProgress&) { ++steps; };
    callbacks.stop = [&] { return steps >= most; };
    return go_on(path, callbacks);
  }
  static TrainResult go_on(const fs::path& path, const TrainCallbacks& callbacks) {
    RunSetup setup = prepare_run(make_options(load_recipe(path / "recipe.toml").settings));
    RunFolder run = RunFolder::open(path);
    return Trainer(setup, &run, callbacks).run();
  }

  static Json result_of(const fs::path& run) { return Json::parse(std::ifstream(run / "result.json")); }
  static Json without_times(Json json) {
    json.erase("seconds");
    json.erase("images_s");
    return json;
  }
  static void expect_same_run(const fs::path& a, const fs::path& b) {
    for (const char* name :
         {"best.safetensors", "last.safetensors", "predictions.safetensors", "summary.csv", "recipe.toml"})
      EXPECT_TRUE(test::read_bytes(a / name) == test::read_bytes(b / name)) << name;
    EXPECT_EQ(fs::exists(a / "radii.json"), fs::exists(b / "radii.json"));
    if (fs::exists(a / "radii.json")) {
      const auto one = Json::parse(std::ifstream(a / "radii.json"));
      const auto other = Json::parse(std::ifstream(b / "radii.json"));
      for (const char* key : {"names", "steps", "radius_steps"}) EXPECT_EQ(one[key], other[key]);
      for (size_t i = 0; i < one["steps"].size(); ++i) {
        for (const char* key : {"radii", "ratios"})
          EXPECT_EQ(one[key][i], other[key][i]) << key << " of step " << one["steps"][i];
      }
    }
    EXPECT_EQ(without_times(result_of(a)), without_times(result_of(b)));
    std::ifstream one(a / "log.jsonl"), other(b / "log.jsonl");
    std::string left, right;
    while (true) {
      const bool more = static_cast<bool>(std::getline(one, left));
      ASSERT_EQ(more, static_cast<bool>(std::getline(other, right)));
      if (!more) break;
      EXPECT_EQ(without_times(Json::parse(left)), without_times(Json::parse(right)));
    }
    EXPECT_FALSE(fs::exists(a / "resume.safetensors") || fs::exists(b / "resume.safetensors"));
  }

  fs::path folder_;
};
TPGM_ON_EVERY_DEVICE(Resume);

const std::vector<std::pair<std::string, Settings>>& runs() {
  static const std::vector<std::pair<std::string, Settings>> all = {
      {"ft", {}},
      {"ft-sgd", {{"opt", "sgd"}, {"model", kVit}, {"warmup-epochs", "1"}}},
      {"ema", {{"model-ema", "true"}, {"model-ema-decay", "0.8"}}},
      {"mixup", {{"mixup", "0.4"}, {"cutmix", "0.5"}, {"smoothing", "0.1"}, {"grad-accum-steps", "2"}}},
      {"augmented",
       {{"color-jitter", "0.4"}, {"rand-augment", "2,9"}, {"on-nan", "skip"}, {"clip-grad", "1"}}},
      {"lp-ft", {{"method", "lp-ft"}, {"lp-epochs", "1"}, {"opt", "sgd"}}},
      {"tpgm", {{"method", "tpgm"}, {"model-ema", "true"}}},
      {"tpgm-end", {{"method", "tpgm"}, {"every", "end"}, {"radius-steps", "5"}}},
      {"tpgm-mixed", {{"method", "tpgm"}, {"every", "1"}, {"mixup", "0.4"}, {"smoothing", "0.1"}}},
      {"ftp", {{"method", "ftp"}, {"mixup", "0.2"}}},
      {"spd", {{"method", "spd"}}},
      {"l2-sp", {{"method", "l2-sp"}}},
      {"mars-sp", {{"method", "mars-sp"}}},
  };
  return all;
}

TEST_P(Resume, GivesTheSameBytes) {
  for (const auto& [name, own] : runs()) {
    SCOPED_TRACE(name);
    const auto whole = begin(name, own);
    const auto result = go_on(whole);
    ASSERT_TRUE(result.finished);
    EXPECT_EQ(result.steps, name == "mixup" ? 6 : 12);

    // Stopped after every step, and once more in the middle of the end.
    const auto chain = begin(name + "-chain", own);
    for (int64_t step = 1; step <= result.steps; ++step) {
      const auto part = go_on(chain, 1);
      EXPECT_FALSE(part.finished);
      EXPECT_EQ(part.steps, step);
      EXPECT_TRUE(fs::exists(chain / "resume.safetensors"));
    }
    EXPECT_FALSE(go_on(chain, 0).finished);
    EXPECT_TRUE(go_on(chain).finished);
    expect_same_run(whole, chain);

    const auto once = begin(name + "-once", own);
    EXPECT_EQ(go_on(once, 5).steps, 5);
    EXPECT_TRUE(go_on(once).finished);
    expect_same_run(whole, once);
  }
}

// Killed: without a word, some steps after the last checkpoint.
TEST_P(Resume, WorksAfterAKill) {
  struct Killed {};
  for (const char* name : {"ft", "tpgm"}) {
    SCOPED_TRACE(name);
    const Settings own = {{"method", name}, {"checkpoint-every", "3"}, {"model-ema", "true"}};
    const auto whole = begin(name, own);
    EXPECT_TRUE(go_on(whole).finished);
    for (const int64_t at : {1, 2, 4, 8, 11, 12}) {
      const auto killed = begin(std::string(name) + std::to_string(at), own);
      TrainCallbacks callbacks;
      callbacks.progress = [&](const TrainProgress& progress) {
        if (progress.step == at) throw Killed();
      };
      EXPECT_THROW(go_on(killed, callbacks), Killed);
      EXPECT_TRUE(go_on(killed).finished);
      expect_same_run(whole, killed);
    }
  }
}

// Killed between the final projection, which is in best.safetensors, and result.json.
TEST_P(Resume, FinishesOnce) {
  for (const auto& own : {Settings{{"method", "tpgm"}, {"every", "end"}, {"radius-steps", "5"}},
                          Settings{{"method", "wise"}, {"model-ema", "true"}}}) {
    SCOPED_TRACE(own.at("method"));
    const auto whole = begin(own.at("method"), own), killed = begin(own.at("method") + "-killed", own);
    EXPECT_TRUE(go_on(whole).finished);
    std::string state;
    TrainCallbacks callbacks;
    callbacks.stop = [&] {
      state = test::read_bytes(killed / "resume.safetensors");  // in the end: that of the last epoch
      return false;
    };
    EXPECT_TRUE(go_on(killed, callbacks).finished);
    fs::remove(killed / "result.json");
    test::write_bytes(killed / "resume.safetensors", state);
    const auto best = test::read_bytes(killed / "best.safetensors");
    EXPECT_TRUE(go_on(killed).finished);
    EXPECT_TRUE(test::read_bytes(killed / "best.safetensors") == best);
    EXPECT_TRUE(test::read_bytes(whole / "best.safetensors") == best);
    EXPECT_EQ(without_times(result_of(whole)), without_times(result_of(killed)));
    if (own.at("method") == "tpgm") {
      EXPECT_TRUE(test::read_bytes(whole / "radii.json") == test::read_bytes(killed / "radii.json"));
    }
  }
}

TEST_P(Resume, RecordsTheRadiiOfTheFinalProjection) {
  for (const int64_t steps : {5, 99, 100, 101, 450}) {
    SCOPED_TRACE(steps);
    const auto run = begin(
        "finish" + std::to_string(steps),
        {{"method", "tpgm"}, {"every", "end"}, {"epochs", "1"}, {"radius-steps", std::to_string(steps)}});
    ASSERT_TRUE(go_on(run).finished);
    const auto radii = Json::parse(std::ifstream(run / "radii.json"));
    const std::vector<int64_t> at = radii["radius_steps"];
    EXPECT_EQ(at.front(), 0);
    EXPECT_EQ(at.back(), steps);  // with which it was projected
    EXPECT_TRUE(std::is_sorted(at.begin(), at.end()));
    EXPECT_TRUE(std::adjacent_find(at.begin(), at.end()) == at.end());
    EXPECT_LE(at.size(), 101);
    const int64_t most = device().is_cuda() ? steps / 4 : steps;  // fewer looks at the device
    EXPECT_GE(static_cast<int64_t>(at.size()), std::min<int64_t>(most, 49));
    for (const char* key : {"steps", "radii", "ratios"}) EXPECT_EQ(radii[key].size(), at.size());
    for (size_t i = 0; i < at.size(); ++i) {
      EXPECT_EQ(radii["steps"][i], 4);
      EXPECT_EQ(radii["radii"][i].size(), radii["names"].size());
      EXPECT_EQ(radii["ratios"][i].size(), i + 1 < at.size() ? 0 : radii["names"].size());
    }
    EXPECT_NE(radii["radii"].front(), radii["radii"].back());
  }
}

TEST_P(Resume, ReadsRadiiOfOlderRuns) {
  const auto run = begin("old", {{"method", "tpgm"}});
  EXPECT_FALSE(go_on(run, 7).finished);
  auto radii = Json::parse(std::ifstream(run / "radii.json"));
  radii.erase("radius_steps");
  write_file(run / "radii.json", radii.dump());
  EXPECT_TRUE(go_on(run).finished);
  radii = Json::parse(std::ifstream(run / "radii.json"));
  EXPECT_EQ(radii["steps"].size(), 12);
  EXPECT_EQ(radii["radius_steps"], Json(std::vector<Json>(12, nullptr)));
}

TEST_P(Resume, RepeatsFromTheRecipe) {
  const auto one = begin("one", {{"method", "tpgm"}, {"mixup", "0.3"}});
  EXPECT_TRUE(go_on(one).finished);
  const RunSetup again = prepare_run(make_options(load_recipe(one / "recipe.toml").settings));
  RunFolder::create(folder_ / "two", again.options, {});
  EXPECT_TRUE(go_on(folder_ / "two").finished);
  expect_same_run(one, folder_ / "two");
}

}  // namespace
}  // namespace tpgm::test_trainer
