// Twenty steps against PyTorch's loops on the same weights and batches: step_goldens/make_step_goldens.py.
#include "tests/torch_nn.h"
#include "tpgm/train/step.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support.h"
#include "tpgm/data/mix.h"
#include "tpgm/io/state_dict.h"
#include "tpgm/methods/registry.h"
#include "tpgm/nn/precision.h"
#include "tpgm/train/parameter_groups.h"
#include "tpgm/train/schedule.h"
#include "tpgm/weights/load_classifier.h"
#include "tpgm/weights/names.h"

namespace tpgm::testing::test_step {
namespace {

using Json = nlohmann::json;

std::string folder() { return TPGM_TEST_DATA "/train/step_goldens/"; }

struct Goldens {
  Goldens() : json(Json::parse(std::ifstream(folder() + "steps.json"))) {
    tensors = load_state_dict(folder() + "steps.safetensors");
  }
  // A vector of the golden's tensors as a classifier of ours calls them.
  NamedTensors by_name(const std::string& model, const at::Tensor& vector) const {
    NamedTensors theirs("Tensor");
    std::vector<std::string> names;
    int64_t at = 0;
    for (const auto& tensor : json["models"][model]["tensors"]) {
      const auto shape = tensor["shape"].get<std::vector<int64_t>>();
      const auto size = c10::multiply_integers(shape);
      theirs.insert(tensor["name"], vector.slice(0, at, at + size).view(shape));
      names.push_back(tensor["name"]);
      at += size;
    }
    NamedTensors ours("Tensor");
    for (const auto& item : to_ours(theirs, *recognise(names)).tensors)
      ours.insert((item.key().starts_with("head.") ? "" : "backbone.") + item.key(), item.value());
    return ours;
  }
  Json json;
  NamedTensors tensors{"Tensor"};
};
const Goldens& goldens() {
  static const Goldens all;
  return all;
}

// Twenty steps of a case, as a training loop has them.
struct Training {
  Training(const std::string& title, const std::string& name, at::Device device, bool graph = true,
           bool channels_last = false, const std::string& method_name = "ft",
           const std::map<std::string, std::string>& method_options = {})
      : golden(goldens().json["cases"][title]), device(device) {
    const std::string text = goldens().json["models"][name]["model"];
    model = load_classifier(text, folder() + name + ".safetensors", {}).model;
    for (const auto& item : state_dict(*model)) start.insert(item.key(), item.value().clone());
    model->to(device);
    if (channels_last) to_channels_last(*model);
    images = goldens().tensors["images"].to(at::kFloat).sub(128).div(64);
    if (name == "vit") images = images.slice(2, 0, 16).slice(3, 0, 16);
    images = images.contiguous(channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous)
                 .to(device);
    labels = goldens().tensors["labels"].to(device);

    std::vector<std::string> blocks;
    for (const auto& block : model->backbone->blocks()) blocks.push_back("backbone." + block);
    OptimOptions options;
    options.opt(parsed<Opt>(golden["opt"]));
    if (golden.contains("momentum")) options.momentum(golden["momentum"]).nesterov(golden["nesterov"]);
    optimizer =
        std::make_unique<Optimizer>(parameter_groups(model->named_parameters(), blocks,
                                                     GroupOptions()
                                                         .weight_decay(golden["weight_decay"])
                                                         .decay_all(golden.value("decay_all", false))
                                                         .head_scale(golden.value("head_scale", 1.0))),
                                    options);
    method = make_method(method_name, *model, named_tensors(*model), method_options);
    step = std::make_unique<TrainingStep>(*model, *method, *optimizer,
                                          StepOptions()
                                              .amp(golden.value("amp", false))
                                              .cuda_graph(graph)
                                              .batches(golden.value("batches", 1))
                                              .clip_grad(golden.value("clip_grad", 0.0))
                                              .smoothing(smoothing()));
    Phase phase{"ft", 1, golden["lr"], 0};
    ScheduleOptions schedule_options;
    schedule_options.sched(Sched::kConstant);
    if (golden.contains("cosine")) {
      const auto& cosine = golden["cosine"];
      phase.epochs = cosine["epochs"];
      phase.warmup_epochs = cosine["warmup_epochs"];
      schedule_options.sched(Sched::kCosine).warmup_lr(cosine["warmup_lr"]).min_lr(cosine["min_lr"]);
    }
    schedule =
        std::make_unique<Schedule>(std::vector<Phase>{phase}, steps() / phase.epochs, schedule_options);
  }
  double smoothing() const { return golden.value("smoothing", 0.0); }
  int64_t steps() const { return static_cast<int64_t>(golden["rates"].size()); }

  struct Data {
    at::Tensor images, labels, targets;
  };
  Data data(int64_t at, int64_t number) const {
    const at::Tensor batch = goldens().tensors["batches"][number].to(device);
    const at::Tensor x = images.index_select(0, batch), y = labels.index_select(0, batch);
    if (!golden.contains("lambdas")) return {x, y, y};
    Mix mix;
    mix.lambda = golden["lambdas"][at];
    return {mix_images(x, mix), y, mix_targets(y, model->num_classes(), mix, smoothing())};
  }
  // Gradients of one batch. Returns the loss.
  at::Tensor backward(int64_t at, int64_t number) const {
    const auto [x, y, targets] = data(at, number);
    return step->backward(x, y, targets).loss;
  }
  // The losses of all batches.
  at::Tensor run() const {
    std::vector<at::Tensor> losses;
    const int64_t each = golden.value("batches", 1);
    for (int64_t i = 0; i < steps(); ++i) {
      EXPECT_DOUBLE_EQ(schedule->lr(i), golden["rates"][i]);
      if (each == 1) {
        const auto [x, y, targets] = data(i, i);
        losses.push_back(step->step(x, y, targets, schedule->lr(i)).loss);
        continue;
      }
      for (int64_t k = 0; k < each; ++k) losses.push_back(backward(i, i * each + k));
      step->update(schedule->lr(i));
    }
    return at::stack(losses).cpu();
  }

  Json golden;
  at::Device device;
  std::shared_ptr<Classifier> model;
  NamedTensors start{"Tensor"};
  at::Tensor images, labels;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<Method> method;
  std::unique_ptr<TrainingStep> step;
  std::unique_ptr<Schedule> schedule;
};

double largest(const at::Tensor& tensor) {
  return tensor.detach().cpu().to(at::kDouble).abs().max().item<double>();
}

// A bias of all keys alike changes no attention: its gradient is 0, and what Adam makes of its rounding is
// noise.
at::Tensor without_keys(const std::string& name, const at::Tensor& tensor) {
  if (!name.ends_with("qkv.bias")) return tensor;
  const int64_t width = tensor.size(0) / 3;
  return at::cat({tensor.slice(0, 0, width), tensor.slice(0, 2 * width)});
}

NamedTensors values_of(const Classifier& model) {
  NamedTensors values("Tensor");
  for (const auto& item : state_dict(model)) values.insert(item.key(), item.value().cpu().clone());
  return values;
}
void load_values(Classifier& model, const NamedTensors& values) {
  const at::NoGradGuard no_grad;
  auto own = state_dict(model);
  for (const auto& item : values) own[item.key()].copy_(item.value());
}

struct Difference {
  double largest = 0;  // of any tensor, in units of how far the tensor's farthest element moved
  std::string where;
  double norm = 0;  // of all parameters together, in units of their movement; or of all buffers, if more
};

Difference difference(const Training& run, const std::string& title, const std::string& name,
                      bool counts = true) {
  Difference result;
  const auto expected = goldens().by_name(name, goldens().tensors[title + "/" + name]);
  size_t compared = 0;
  std::array<double, 2> squares = {}, movement = {};  // of parameters, of buffers
  const auto parameters = run.model->named_parameters();
  for (const auto& item : state_dict(*run.model)) {
    if (item.key().ends_with("num_batches_tracked")) {
      const int64_t seen = item.value().item<int64_t>() - run.start[item.key()].item<int64_t>();
      if (counts) {
        EXPECT_EQ(seen, run.steps() * run.golden.value("batches", 1));
      }
      continue;
    }
    ++compared;
    const auto part = [&](const at::Tensor& tensor) { return without_keys(item.key(), tensor.cpu()); };
    const at::Tensor theirs = part(expected[item.key()]);
    const at::Tensor moved = theirs - part(run.start[item.key()]);
    const at::Tensor distance = part(item.value()) - theirs;
    EXPECT_GT(largest(moved), 0) << item.key();
    if (const double relative = largest(distance) / largest(moved); !(relative <= result.largest)) {
      result.largest = relative;
      result.where = item.key();
    }
    const size_t kind = parameters.contains(item.key()) ? 0 : 1;
    squares[kind] += distance.square().sum().item<double>();
    movement[kind] += moved.square().sum().item<double>();
  }
  EXPECT_EQ(compared, expected.size());
  for (size_t kind : {0, 1}) {
    if (movement[kind] > 0) result.norm = std::max(result.norm, std::sqrt(squares[kind] / movement[kind]));
  }
  return result;
}

struct Limits {
  double largest, norm, losses;
};
// How near. In fp32 tensors are within 1e-3 of their movement, most within 5e-5: what is left is that of an
// Adam whose gradient is nearly nothing. In bf16 the CPU's kernels are torch's. Another device rounds
// otherwise, and with two channels that is much: in bf16 torch's own ResNet is 0.19 (norm) away from its
// fp32 one, 1.9 where a tensor hardly moves. Its losses move by up to 0.11 when the results and gradients of
// its BatchNorms are moved by a unit of their last place.
Limits limits(bool amp, bool cuda, const std::string& name) {
  if (!amp) return {2e-3, 1e-4, 1e-5};
  if (!cuda) return {0.03, 0.01, 0.01};
  return name == "vit" ? Limits{0.05, 0.02, 0.02} : Limits{10, 0.5, 0.2};
}

class Step : public OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    at::set_num_threads(1);  // tiny tensors: threads that wait for each other would take most of the time
    auto& context = at::globalContext();
    context.setAllowTF32CuDNN(false);
    context.setAllowTF32CuBLAS(false);
    context.setBenchmarkCuDNN(false);
    context.setDeterministicCuDNN(true);
  }
  void TearDown() override { at::globalContext().setUserEnabledMkldnn(true); }

  void expect_torchs(bool amp, bool graph, bool channels_last) const {
    // Its AMX code is killed in some virtual machines.
    at::globalContext().setUserEnabledMkldnn(!amp);
    for (const auto& [title, golden] : goldens().json["cases"].items()) {
      if (golden.value("amp", false) != amp) continue;
      for (const auto& [name, ignored] : goldens().json["models"].items()) {
        SCOPED_TRACE(title + " of " + name);
        const Training run(title, name, device(), graph, channels_last);
        const auto losses = run.run();
        const auto seen = difference(run, title, name);
        const auto most = limits(amp, device().is_cuda(), name);
        EXPECT_LT(seen.largest, most.largest) << seen.where;
        EXPECT_LT(seen.norm, most.norm);
        const double loss = largest(losses - goldens().tensors[title + "/" + name + "/losses"]);
        EXPECT_LT(loss, most.losses);
        std::ostringstream text;
        text << seen.largest << " of " << seen.where << ", norm " << seen.norm << ", losses " << loss;
        RecordProperty(title + "_" + name, text.str());
      }
    }
  }
};
TPGM_ON_EVERY_DEVICE(Step);

TEST_P(Step, TwentyAreTorchs) { expect_torchs(/*amp=*/false, /*graph=*/false, /*channels_last=*/false); }
TEST_P(Step, TwentyAreTorchsInChannelsLast) { expect_torchs(false, false, true); }
TEST_P(Step, TwentyAreTorchsInBFloat16) { expect_torchs(true, false, false); }
TEST_P(Step, TwentyAreTorchsFromAGraph) {
  if (device().is_cpu()) GTEST_SKIP() << "a CPU has no graphs";
  expect_torchs(false, true, false);
  expect_torchs(false, true, true);
  expect_torchs(true, true, false);
}

// The limits would not hide an option that is ignored.
// Radford et al.'s: labels are 0, 1, ..., and both directions count alike.
TEST(ContrastiveLoss, IsClipsWhereEveryTextHasOneImage) {
  torch::manual_seed(0);
  const at::Tensor logits = at::randn({6, 6}) * 5, labels = at::arange(6);
  const at::Tensor expected = (torch::nn::functional::cross_entropy(logits, labels) +
                               torch::nn::functional::cross_entropy(logits.t(), labels)) /
                              2;
  EXPECT_NEAR(contrastive_loss(logits, labels).item<double>(), expected.item<double>(), 1e-6);
  // The texts need not be in the order of the images.
  const at::Tensor order = at::randperm(6);
  EXPECT_NEAR(contrastive_loss(logits.index_select(1, order.argsort()), order).item<double>(),
              expected.item<double>(), 1e-6);
}

TEST(ContrastiveLoss, SharesATextAmongItsImagesAndTakesAllTextsAsNegatives) {
  torch::manual_seed(1);
  const at::Tensor logits = at::randn({7, 5}).requires_grad_(),
                   labels = at::tensor({0, 3, 3, 1, 0, 3, 1}, at::kLong);
  at::Tensor images = at::zeros({}), texts = at::zeros({});
  for (int64_t i = 0; i < 7; ++i) images = images - logits[i].log_softmax(0)[labels[i].item<int64_t>()] / 7;
  for (const int64_t text : {0, 1, 3}) {  // 2 and 4 do not occur: their images are not part of the loss
    const at::Tensor own = labels.eq(text).to(at::kFloat);
    texts = texts - (logits.select(1, text).log_softmax(0) * own).sum() / own.sum() / 3;
  }
  const at::Tensor expected = (images + texts) / 2, loss = contrastive_loss(logits, labels);
  EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 1e-6);
  const auto ours = torch::autograd::grad({loss}, {logits})[0];
  const auto theirs = torch::autograd::grad({expected}, {logits})[0];
  EXPECT_LT((ours - theirs).abs().max().item<double>(), 1e-6);
}

TEST(StepGoldens, DifferFromEachOther) {
  for (const auto& [name, ignored] : goldens().json["models"].items()) {
    for (const auto& [title, golden] : goldens().json["cases"].items()) {
      for (const auto& [other, also_ignored] : goldens().json["cases"].items()) {
        if (title == other || golden.value("amp", false) || other == "bf16") continue;
        const Training start(title, name, at::kCPU);
        load_values(*start.model, goldens().by_name(name, goldens().tensors[other + "/" + name]));
        EXPECT_GT(difference(start, title, name, /*counts=*/false).largest, 1e-2)
            << title << " and " << other << " of " << name;
      }
    }
  }
}

TEST_P(Step, AGraphGivesTheSameBits) {
  if (device().is_cpu()) GTEST_SKIP() << "a CPU has no graphs";
  for (const char* title : {"sgd", "adamw", "mixup", "clip", "bf16"}) {
    for (const char* name : {"resnet", "vit"}) {
      SCOPED_TRACE(std::string(title) + " of " + name);
      const Training with(title, name, device(), true), without(title, name, device(), false);
      EXPECT_TRUE(at::equal(with.run(), without.run()));
      EXPECT_EQ(with.step->captured(), 1);
      EXPECT_EQ(without.step->captured(), 0);
      const auto expected = state_dict(*without.model);
      for (const auto& item : state_dict(*with.model))
        EXPECT_TRUE(at::equal(item.value(), expected[item.key()])) << item.key();
    }
  }
}

// A last batch that is smaller, parameters that freeze, an evaluation between two steps.
TEST_P(Step, AGraphFollowsWhatChanges) {
  for (const char* name : {"resnet", "vit"}) {
    SCOPED_TRACE(name);
    std::vector<NamedTensors> results;
    std::vector<at::Tensor> losses;
    for (const bool graph : {true, false}) {
      const Training run("sgd", name, device(), graph);
      std::vector<at::Tensor> seen;
      for (int64_t i = 0; i < 20; ++i) {
        if (i == 8 || i == 14) {
          for (auto& parameter : run.model->backbone->parameters()) parameter.set_requires_grad(i == 14);
        }
        if (i == 12) {
          run.model->eval();
          const at::NoGradGuard no_grad;
          run.model->forward(run.images);
        }
        const int64_t size = i % 6 == 5 ? 6 : 8;
        const auto batch = goldens().tensors["batches"][i].slice(0, 0, size).to(device());
        const auto labels = run.labels.index_select(0, batch);
        const auto result = run.step->step(run.images.index_select(0, batch), labels, labels, 0.01);
        seen.insert(seen.end(), {result.loss, result.correct.to(at::kFloat)});
      }
      losses.push_back(at::stack(seen).cpu());
      results.push_back(values_of(*run.model));
    }
    EXPECT_TRUE(at::equal(losses[0], losses[1]));
    for (const auto& item : results[0])
      EXPECT_TRUE(at::equal(item.value(), results[1][item.key()])) << item.key();
  }
}

// Runs of one method on one device: from captures, or as they are.
struct Whole : Training {
  using Options = std::map<std::string, std::string>;

  Whole(const std::string& title, const std::string& name, at::Device device, bool graph,
        const std::string& method_name, const Options& options)
      : Training(title, name, device, graph, /*channels_last=*/false, method_name, options) {}

  TrainingStep::RadiusBatch next_radius_batch() {
    const auto [x, y, targets] = data(0, (7 * radius_batches++ + 3) % goldens().tensors["batches"].size(0));
    return {spoilt == radius_batches ? x / 0 * 0 : x, y};
  }
  at::Tensor take(const at::Tensor& x, const at::Tensor& y, int64_t i) {
    const double lr = golden["lr"].get<double>() * static_cast<double>(1 + i % 5) / 3;
    return step->step(x, y, y, lr, [this] { return next_radius_batch(); }).loss;
  }
  void go(int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto [x, y, targets] = data(i, i % goldens().tensors["batches"].size(0));
      losses.push_back(take(x, y, i));
    }
  }

  struct Saved {
    NamedTensors values{"Tensor"};
    NamedTensors method, optimizer;
    int64_t radius_batches;
  };
  Saved save() const {
    return {values_of(*model), method->state_dict(), optimizer->state_dict(), radius_batches};
  }
  void load(const Saved& saved, bool with_optimizer = true) {
    load_values(*model, saved.values);
    method->load_state_dict(saved.method);
    if (with_optimizer) optimizer->load_state_dict(saved.optimizer);
    radius_batches = saved.radius_batches;
  }

  int64_t radius_batches = 0, spoilt = -1;
  std::vector<at::Tensor> losses;
};

void expect_same(const Whole& run, const Whole& expected) {
  const auto a = run.save(), b = expected.save();
  const auto compare = [](const auto& one, const auto& other) {
    ASSERT_EQ(one.keys(), other.keys());
    for (const auto& item : one) EXPECT_TRUE(at::equal(item.value(), other[item.key()])) << item.key();
  };
  compare(a.values, b.values);
  compare(a.method, b.method);
  compare(a.optimizer, b.optimizer);
  EXPECT_EQ(a.radius_batches, b.radius_batches);
  EXPECT_EQ(radii_of(*run.method).values(), radii_of(*expected.method).values());
  EXPECT_EQ(ratios_of(*run.method).values(), ratios_of(*expected.method).values());
}

struct MethodCase {
  const char* name;
  Whole::Options options;
  int64_t kinds = 1;
};
const std::vector<MethodCase>& method_cases() {
  static const std::vector<MethodCase> all = {
      {"ft", {}},
      {"lp", {}},
      {"l2-sp", {}},
      {"mars-sp", {{"radius", "0.05"}}},
      {"spd", {}},
      {"ftp", {}},
      {"ftp", {{"norm", "l2"}, {"mask", "true"}, {"k", "0.5"}}},
      {"wise", {}},
      {"lp-ft", {{"lp_steps", "9"}}},
      {"tpgm", {}},
      {"tpgm", {{"radius_steps", "2"}, {"exclude", "head.*"}}},
      {"tpgm", {{"every", "3"}}, 2},
      {"tpgm", {{"every", "3"}, {"project", "on-update"}, {"norm", "l2"}}, 2},
      {"tpgm", {{"scale", "relative"}, {"tv", "0.1"}, {"mu", "0.01"}, {"anchor_storage", "host"}}},
      {"tpgm", {{"every", "end"}}},
  };
  return all;
}

TEST_P(Step, AGraphGivesTheSameBitsWithEveryMethod) {
  if (device().is_cpu()) GTEST_SKIP() << "a CPU has no graphs";
  for (const auto& [name, options, kinds] : method_cases()) {
    for (const char* title : {"sgd", "adamw", "clip", "bf16"}) {
      for (const char* model : {"resnet", "vit"}) {
        SCOPED_TRACE(std::string(name) + (options.empty() ? "" : ", " + options.begin()->first) + ", " +
                     title + " of " + model);
        Whole with(title, model, device(), true, name, options),
            without(title, model, device(), false, name, options);
        with.go(0, 24);
        without.go(0, 24);
        EXPECT_EQ(with.step->captured(), kinds);
        EXPECT_TRUE(at::equal(at::stack(with.losses), at::stack(without.losses)));
        expect_same(with, without);
      }
    }
  }
}

// Into another process, back in time, and back in time under captures that stay.
TEST_P(Step, AGraphResumesFromAState) {
  for (const auto& [name, options, kinds] : method_cases()) {
    if (std::string(name) == "lp-ft") continue;  // does not go back
    for (const char* title : {"sgd", "adamw"}) {
      SCOPED_TRACE(std::string(name) + (options.empty() ? "" : ", " + options.begin()->first) + ", " + title);
      Whole whole(title, "resnet", device(), true, name, options),
          other(title, "resnet", device(), true, name, options);
      whole.go(0, 11);
      const auto saved = whole.save();
      whole.go(11, 24);
      other.load(saved);
      other.go(11, 24);
      expect_same(other, whole);
      whole.load(saved);
      whole.go(11, 24);
      expect_same(whole, other);

      Whole as_it_is(title, "resnet", device(), false, name, options);
      as_it_is.load(saved);
      as_it_is.go(11, 24);
      for (auto* run : {&whole, &as_it_is}) {
        run->load(saved, /*with_optimizer=*/false);
        run->go(11, 20);
      }
      EXPECT_EQ(whole.step->captured(), device().is_cuda() ? kinds : 0);
      expect_same(whole, as_it_is);
    }
  }
}

// In a training batch, or in one of radius data; then the run resumes from where it was before.
TEST_P(Step, AGraphReportsWhatIsNotFinite) {
  for (const auto& [name, options, kinds] : method_cases()) {
    SCOPED_TRACE(std::string(name) + (options.empty() ? "" : ", " + options.begin()->first));
    for (const bool radius_data : {false, true}) {
      Whole with("sgd", "resnet", device(), true, name, options),
          without("sgd", "resnet", device(), false, name, options);
      // Wise, and TPGM at the end, look at nothing before.
      const bool late =
          std::string(name) == "wise" || (options.contains("every") && options.at("every") == "end");
      if (late || constrained_by(*with.method).empty()) continue;
      if (radius_data && !with.method->needs_radius_data()) continue;
      std::vector<std::string> messages;
      for (auto* run : {&with, &without}) {
        run->go(0, 18);
        const auto saved = run->save();
        const auto [x, y, targets] = run->data(0, 0);
        if (radius_data) run->spoilt = run->radius_batches + 1;
        messages.push_back(error_of([&, &x = x, &y = y] {
          run->take(radius_data ? x : x / 0 * 0, y, 18);
          run->method->check();
        }));
        run->spoilt = -1;
        run->step->skip();
        run->load(saved);
        run->go(18, 26);
        EXPECT_TRUE(std::isfinite(run->losses.back().item<double>()));
      }
      EXPECT_EQ(messages[0], messages[1]);
      expect_same(with, without);
    }
  }
}

TEST_P(Step, CountsWhatIsRight) {
  const Training run("sgd", "vit", device());
  run.model->eval();
  const auto labels = run.model->forward(run.images).argmax(1);
  const auto others = at::cat({labels.slice(0, 0, 10), (labels.slice(0, 10) + 1) % 5});
  const auto result = run.step->backward(run.images, others, others);
  EXPECT_EQ(result.correct.item<int64_t>(), 10);
  EXPECT_FALSE(result.loss.requires_grad());
  EXPECT_TRUE(result.loss.device().type() == device().type() &&
              result.correct.device() == result.loss.device());
}

// The loss is that of the targets; labels are only counted.
TEST_P(Step, SmoothsNumbersAndTakesSharesAsTheyAre) {
  const auto loss = [&](bool shares) {
    const Training run("smoothing", "vit", device());
    const auto targets = shares ? mix_targets(run.labels, 5, Mix(), 0.1) : run.labels;
    return run.step->backward(run.images, at::zeros_like(run.labels), targets).loss.item<double>();
  };
  EXPECT_NEAR(loss(true), loss(false), 1e-5);
}

// As of the training loss, from the definition.
TEST_P(Step, SmoothsTheRadiusLossByItself) {
  const Training run("smoothing", "vit", device());
  TrainingStep step(*run.model, *run.method, *run.optimizer,
                    StepOptions().smoothing(0.5).radius_smoothing(0.2));
  run.model->eval();
  const auto loss = [&](const at::Tensor& targets) {
    return step.radius_loss({run.images, targets}).item<double>();
  };
  const at::Tensor log_p = run.model->forward(run.images).log_softmax(1);
  const at::Tensor plain = -log_p.gather(1, run.labels.unsqueeze(1)).mean();
  EXPECT_NEAR(loss(run.labels), (0.8 * plain - 0.2 * log_p.mean(1).mean()).item<double>(), 1e-5);
  const at::Tensor shares = at::softmax(at::arange(5, log_p.options()), 0).expand_as(log_p);
  EXPECT_NEAR(loss(shares), -(shares * log_p).sum(1).mean().item<double>(), 1e-5);
}

TEST_P(Step, LeavesWhatIsFrozen) {
  const Training run("sgd", "resnet", device());
  const auto before = values_of(*run.model);
  // All parameters of one BatchNorm are frozen, and one parameter of another.
  for (const auto& item : run.model->named_parameters()) {
    auto parameter = item.value();
    parameter.set_requires_grad(!item.key().starts_with("backbone.layer1") &&
                                item.key() != "backbone.layer2.0.bn1.weight");
  }
  for (int64_t i = 0; i < 6; ++i) {
    run.backward(i, i);
    run.step->update(0.01, nullptr);
  }
  for (const auto& item : values_of(*run.model)) {
    const bool still =
        item.key().starts_with("backbone.layer1") || item.key() == "backbone.layer2.0.bn1.weight";
    EXPECT_EQ(at::equal(item.value(), before[item.key()]), still) << item.key();
  }
}

TEST_P(Step, ForgetsWhatIsSkipped) {
  const Training whole("accumulation", "vit", device()), second("accumulation", "vit", device());
  for (int64_t i = 0; i < 4; ++i) {
    second.backward(i, 30 + i);
    second.step->skip();
    for (const auto* run : {&whole, &second}) {
      run->backward(i, 2 * i);
      run->backward(i, 2 * i + 1);
      run->step->update(1e-3, nullptr);
      for (const auto& parameter : run->model->parameters()) EXPECT_FALSE(parameter.grad().defined());
    }
  }
  const auto expected = values_of(*whole.model);
  for (const auto& item : values_of(*second.model))
    EXPECT_TRUE(at::equal(item.value(), expected[item.key()])) << item.key();
}

// Some of a step's batches may not be readable: the mean is over those that were.
TEST_P(Step, AveragesTheBatchesThatRan) {
  Training whole("sgd", "vit", device()), short_of_one("sgd", "vit", device());
  const auto batches = [](Training& run, int64_t n) {
    run.step =
        std::make_unique<TrainingStep>(*run.model, *run.method, *run.optimizer, StepOptions().batches(n));
  };
  batches(whole, 2);
  batches(short_of_one, 3);
  for (int64_t i = 0; i < 4; ++i) {
    if (i == 2) {
      short_of_one.backward(i, 30);
      short_of_one.step->skip();
    }
    for (const auto* run : {&whole, &short_of_one}) {
      run->backward(i, 2 * i);
      run->backward(i, 2 * i + 1);
      run->step->update(0.05);
    }
  }
  const auto expected = values_of(*whole.model);
  for (const auto& item : values_of(*short_of_one.model)) {
    const auto moved = expected[item.key()] - whole.start[item.key()];
    EXPECT_LT(largest(item.value() - expected[item.key()]), 1e-4 * largest(moved)) << item.key();
  }
}

TEST_P(Step, TakesBackWhatTheMethodReadsInBFloat16) {
  struct Listener : Method, Capturable {
    void read_in_bfloat16(const std::vector<at::Tensor>& parameters) override { narrow = parameters.size(); }
    size_t narrow = 0;
  };
  const Training run("sgd", "vit", device());
  Listener method;
  {
    const TrainingStep step(*run.model, method, *run.optimizer, StepOptions().amp(true));
    EXPECT_GT(method.narrow, 0U);
  }
  EXPECT_EQ(method.narrow, 0U);
}

}  // namespace
}  // namespace tpgm::testing::test_step
