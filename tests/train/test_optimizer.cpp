// Twenty steps of each optimizer against torch.optim, and bit-exact resuming from any of them.

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "tests/support.h"
#include "tests/torch_nn.h"
#include "tpgm/io/state_dict.h"
#include "tpgm/train/optimizer.h"
#include "tpgm/train/parameter_groups.h"

namespace tpgm::testing::test_optimizer {
namespace {

using Json = nlohmann::json;

// Relative to the largest of a tensor. What torch computes in several roundings the fused kernels do in
// fewer, which is a few units in the last place after twenty steps.
double tolerance(torch::ScalarType dtype, bool cuda) {
  // torch's fused CUDA kernels take a learning rate that is on the device as a float.
  if (dtype == torch::kDouble) return cuda ? 1e-7 : 1e-13;
  return dtype == torch::kFloat ? 1e-6 : 5e-2;
}

torch::ScalarType dtype_of(const Json& golden) {
  const std::string name = golden["dtype"];
  return name == "float64" ? torch::kDouble : name == "bfloat16" ? torch::kBFloat16 : torch::kFloat;
}

OptimOptions options_of(const Json& golden) {
  OptimOptions options;
  options.opt(parsed<Opt>(golden["opt"]));
  if (golden.contains("momentum")) options.momentum(golden["momentum"]).nesterov(golden["nesterov"]);
  if (golden.contains("betas")) {
    options.betas({golden["betas"][0], golden["betas"][1]});
  }
  if (golden.contains("eps")) options.eps(golden["eps"]);
  return options;
}

void expect_identical(const NamedTensors& a, const NamedTensors& b) {
  ASSERT_EQ(a.keys(), b.keys());
  for (const auto& item : a) {
    EXPECT_TRUE(torch::equal(item.value(), b[item.key()])) << item.key();
  }
}

NamedTensors copy(const NamedTensors& tensors) {
  NamedTensors result;
  for (const auto& item : tensors) {
    result.insert(item.key(), item.value().detach().cpu().clone());
  }
  return result;
}

class Goldens {
 public:
  Goldens() {
    std::ifstream file(TPGM_TEST_DATA "/train/goldens/optim.json");
    json = Json::parse(file);
    tensors_ = load_state_dict(TPGM_TEST_DATA "/train/goldens/optim.safetensors");
  }
  bool contains(const std::string& key) const { return tensors_.contains(key); }
  const torch::Tensor& vector(const std::string& key) const { return tensors_[key]; }
  // A vector of all parameters, cut into them.
  NamedTensors by_name(const torch::Tensor& vector) const {
    NamedTensors result;
    int64_t at = 0;
    for (const auto& parameter : json["parameters"]) {
      const auto shape = parameter["shape"].get<std::vector<int64_t>>();
      const auto size = c10::multiply_integers(shape);
      result.insert(parameter["name"], vector.slice(0, at, at + size).view(shape).clone());
      at += size;
    }
    return result;
  }
  NamedTensors by_name(const std::string& key) const { return by_name(vector(key)); }
  bool has_gradient(const std::string& name, int64_t step) const {
    const auto& absent = json["absent"];
    if (!absent.contains(name)) return true;
    const auto steps = absent[name].get<std::vector<int64_t>>();
    return std::find(steps.begin(), steps.end(), step) == steps.end();
  }
  int64_t steps() const { return static_cast<int64_t>(json["lr"].size()); }

  Json json;

 private:
  NamedTensors tensors_;
};
const Goldens& goldens() {
  static const Goldens all;
  return all;
}

// The goldens' parameters with their gradients, as a case has them.
struct Training {
  Training(const Json& golden, torch::Device device, bool channels_last = false)
      : golden(golden), dtype(dtype_of(golden)) {
    for (const auto& item : goldens().by_name("start")) {
      auto value = item.value().to(device, dtype);
      if (channels_last && value.dim() == 4) value = value.contiguous(torch::MemoryFormat::ChannelsLast);
      parameters.insert(item.key(), value.clone().requires_grad_());
    }
    for (const auto& settings : golden["groups"]) {
      ParameterGroup group;
      group.lr_scale = settings["lr_scale"];
      group.weight_decay = settings["weight_decay"];
      for (const std::string name : settings["parameters"]) {
        group.parameters.insert(name, parameters[name]);
      }
      groups.push_back(group);
    }
    optimizer = std::make_unique<Optimizer>(groups, options_of(golden));
  }
  void set_gradients(int64_t step) {
    const auto gradients = goldens().by_name(goldens().vector("grad")[step]);
    for (auto& item : parameters) {
      item.value().mutable_grad() = goldens().has_gradient(item.key(), step)
                                        ? gradients[item.key()].to(item.value().device(), dtype)
                                        : torch::Tensor();
    }
  }
  double lr(int64_t step) const {
    return golden["rate"].get<double>() * goldens().json["lr"][step].get<double>();
  }
  void train(int64_t begin, int64_t end) {
    for (auto step = begin; step < end; ++step) {
      set_gradients(step);
      optimizer->step(lr(step));
    }
  }

  Json golden;
  torch::ScalarType dtype;
  NamedTensors parameters;
  std::vector<ParameterGroup> groups;
  std::unique_ptr<Optimizer> optimizer;
};

// The largest difference of a tensor, relative to its largest element now or (`start`) before the first
// step: it may have come to nearly nothing since.
double difference(const torch::Tensor& value, const torch::Tensor& expected,
                  const torch::Tensor& start = {}) {
  const auto largest = [](const torch::Tensor& tensor) {
    return tensor.detach().cpu().to(torch::kDouble).abs().max().item<double>();
  };
  const double size = std::max(largest(expected), start.defined() ? largest(start) : 0);
  const double distance = largest(value.detach().cpu().to(torch::kDouble) - expected.to(torch::kDouble));
  return size > 0 ? distance / size : distance;
}
double difference(const NamedTensors& values, const NamedTensors& expected) {
  const auto start = goldens().by_name("start");
  double result = 0;
  for (const auto& item : expected) {
    result = std::max(result, difference(values[item.key()], item.value(), start[item.key()]));
  }
  return result;
}

class Optim : public OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    at::set_num_threads(1);  // tiny tensors: threads that wait for each other would take most of the time
  }
};
TPGM_ON_EVERY_DEVICE(Optim);

TEST_P(Optim, IsThatOfTorch) {
  for (const bool channels_last : {false, true}) {
    for (const auto& [name, golden] : goldens().json["cases"].items()) {
      SCOPED_TRACE(name + (channels_last ? ", channels-last" : ""));
      Training run(golden, device(), channels_last);
      int64_t done = 0;
      for (const int64_t step : goldens().json["kept"]) {
        run.train(done, step);
        done = step;
        const auto expected = goldens().by_name(name + "/" + std::to_string(step));
        const double distance = difference(run.parameters, expected);
        EXPECT_LE(distance, tolerance(run.dtype, device().is_cuda())) << "after " << step << " steps";
        // The tolerance would not hide a parameter that stands still.
        EXPECT_GT(difference(goldens().by_name("start"), expected),
                  2 * tolerance(run.dtype, device().is_cuda()));
      }
      const auto state = run.optimizer->state_dict();
      for (const std::string slot : {"exp_avg", "exp_avg_sq", "momentum"}) {
        const std::string key = name + "/" + slot;
        // A momentum that is nearly nothing has no digits left in bfloat16.
        if (!goldens().contains(key) || run.dtype == torch::kBFloat16) continue;
        for (const auto& item : goldens().by_name(key)) {
          // torch's fused CUDA kernels take 1 − β₂ of floats: 1 − 0.999f is 1.3e-5 off.
          const double limit =
              device().is_cuda() && slot == "exp_avg_sq" ? 2e-5 : tolerance(run.dtype, device().is_cuda());
          EXPECT_LE(difference(state[item.key() + "." + slot], item.value()), limit)
              << item.key() << "." << slot;
        }
      }
      if (!goldens().contains(name + "/step")) continue;
      int64_t k = 0;
      for (const auto& item : run.parameters) {
        EXPECT_EQ(state[item.key() + ".step"].item<float>(),
                  goldens().vector(name + "/step")[k++].item<float>());
      }
    }
  }
}

TEST_P(Optim, ClipsAsTorchDoes) {
  Training run(goldens().json["cases"]["adamw"], device());
  const auto& clips = goldens().json["clip"];
  for (size_t i = 0; i < clips.size(); ++i) {
    run.set_gradients(0);
    const auto norm = run.optimizer->clip_grad_norm(clips[i]["most"]);
    EXPECT_EQ(norm.device().type(), device().type());
    EXPECT_NEAR(norm.item<double>(), clips[i]["norm"], 1e-6 * clips[i]["norm"].get<double>());
    const auto expected = goldens().by_name("clip/" + std::to_string(i));
    for (const auto& item : run.parameters) {
      const auto& gradient = item.value().grad();
      ASSERT_EQ(gradient.defined(), goldens().has_gradient(item.key(), 0));
      if (!gradient.defined()) continue;
      EXPECT_LE(difference(gradient, expected[item.key()]), 1e-6) << item.key();
    }
  }
  run.optimizer->zero_grad();
  EXPECT_EQ(run.optimizer->clip_grad_norm(1).item<double>(), 0);
  EXPECT_EQ(run.optimizer->clip_grad_norm(1).device().type(), device().type());
}

TEST_P(Optim, ResumesFromItsState) {
  for (const auto& [name, golden] : goldens().json["cases"].items()) {
    for (const int64_t middle : {0, 3, 12}) {  // before the first, and before the late ones have a state
      SCOPED_TRACE(name + " from step " + std::to_string(middle));
      Training whole(golden, device(), /*channels_last=*/true), second(golden, device(), true);
      whole.train(0, middle);
      NamedTensors state;
      for (const auto& item : whole.optimizer->state_dict()) {
        EXPECT_TRUE(item.value().is_cpu()) << item.key();
        state.insert(item.key(), item.value().contiguous());  // as it comes back from a file
      }
      const auto then = copy(state);
      second.train(0, 9);  // what it knew is forgotten
      {
        const torch::NoGradGuard no_grad;
        for (auto& item : second.parameters) {
          item.value().copy_(whole.parameters[item.key()]);
        }
      }
      second.optimizer->load_state_dict(state);
      expect_identical(second.optimizer->state_dict(), then);
      whole.train(middle, goldens().steps());
      second.train(middle, goldens().steps());
      expect_identical(second.optimizer->state_dict(), whole.optimizer->state_dict());
      expect_identical(copy(second.parameters), copy(whole.parameters));
    }
  }
}

TEST_P(Optim, GivesACopyOfItsState) {
  for (const auto& name : {"sgd-momentum", "adam"}) {
    Training run(goldens().json["cases"][name], device());
    run.train(0, 3);
    const auto state = run.optimizer->state_dict();
    const auto then = copy(state);
    run.optimizer->load_state_dict(state);
    run.train(3, 6);
    expect_identical(state, then);
  }
}

TEST_P(Optim, BeginsAnewAfterReset) {
  for (const auto& name : {"sgd-nesterov-decay", "adamw-decay"}) {
    const auto& golden = goldens().json["cases"][name];
    Training fresh(golden, device()), used(golden, device());
    used.train(0, 9);
    used.optimizer->reset();
    EXPECT_EQ(used.optimizer->state_dict().size(), 1u);
    const torch::NoGradGuard no_grad;
    for (auto& item : used.parameters) {
      item.value().copy_(fresh.parameters[item.key()]);
    }
    fresh.train(0, 9);
    used.train(0, 9);
    expect_identical(copy(used.parameters), copy(fresh.parameters));
  }
}

TEST_P(Optim, KeepsAsManyTensorsAsMemoryEstimatesCount) {
  for (const auto& [name, golden] : goldens().json["cases"].items()) {
    SCOPED_TRACE(name);
    Training run(golden, device());
    run.train(0, goldens().steps());
    int64_t count = 0;
    for (const auto& item : run.optimizer->state_dict()) {
      count += item.key() != "optimizer" && !item.key().ends_with(".step");
    }
    const auto parameters = static_cast<int64_t>(run.parameters.size());
    EXPECT_EQ(count, parameters * state_tensors_per_parameter(options_of(golden)));
  }
}

// A parameter may change its memory format between two steps, and a gradient may have any.
TEST_P(Optim, FollowsTheMemoryFormat) {
  for (const auto& name : {"sgd-nesterov-decay", "adamw-decay"}) {
    const auto& golden = goldens().json["cases"][name];
    Training run(golden, device());
    run.train(0, 10);
    auto& weight = run.parameters["stem.weight"];
    weight.set_data(weight.detach().contiguous(torch::MemoryFormat::ChannelsLast));
    run.train(10, 20);
    EXPECT_LE(difference(run.parameters, goldens().by_name(std::string(name) + "/20")), 1e-6);
    EXPECT_TRUE(weight.is_contiguous(torch::MemoryFormat::ChannelsLast));
  }
}

TEST_P(Optim, TakesGradientsOfEveryLayout) {
  const auto wide = torch::randn({4, 10}, device());
  const std::vector<torch::Tensor> gradients = {
      torch::randn({5, 4}, device()).t(),             // transposed
      wide.slice(1, 2, 7),                            // a slice
      torch::randn({1, 5}, device()).expand({4, 5}),  // repeated
  };
  for (const auto& gradient : gradients) {
    for (const auto& [opt, word] : Keywords<Opt>::all) {
      auto one = torch::zeros({4, 5}, device()).requires_grad_();
      auto other = torch::zeros({4, 5}, device()).requires_grad_();
      Optimizer optimizer({{.parameters = {{"one", one}, {"other", other}}}}, OptimOptions().opt(opt));
      for (int step = 0; step < 3; ++step) {
        one.mutable_grad() = gradient;
        other.mutable_grad() = gradient.contiguous();
        optimizer.step(0.1);
      }
      EXPECT_TRUE(torch::equal(one, other));
      EXPECT_GT(one.abs().max().item<double>(), 0.1);
    }
  }
}

TEST_P(Optim, MixesTypesInAGroup) {
  for (const auto& [opt, word] : Keywords<Opt>::all) {
    const auto type = [&](torch::ScalarType dtype) {
      return torch::ones({40}, torch::TensorOptions(device()).dtype(dtype)).requires_grad_();
    };
    const NamedTensors parameters = {
        {"single", type(torch::kFloat)},   {"double", type(torch::kDouble)},
        {"brain", type(torch::kBFloat16)}, {"half", type(torch::kHalf)},
        {"frozen", type(torch::kFloat)},   {"empty", torch::zeros({0, 3}, device()).requires_grad_()}};
    Optimizer optimizer({{.parameters = parameters, .weight_decay = 0.1}, ParameterGroup()},
                        OptimOptions().opt(opt));
    for (int step = 0; step < 3; ++step) {
      for (const auto& item : parameters) {
        if (item.key() != "frozen") item.value().mutable_grad() = torch::ones_like(item.value());
      }
      const auto norm = optimizer.clip_grad_norm(1);
      EXPECT_NEAR(norm.item<double>(), std::sqrt(160.0), 0.1);
      optimizer.step(0.1);
    }
    const double moved = parameters["double"][0].item<double>();
    EXPECT_LT(moved, 0.99);
    for (const auto& name : {"single", "brain", "half"}) {
      EXPECT_LT((parameters[name].to(torch::kDouble) - moved).abs().max().item<double>(), 0.02) << name;
    }
    EXPECT_TRUE(torch::equal(parameters["frozen"], torch::ones_like(parameters["frozen"])));
    optimizer.zero_grad();
    for (const auto& item : parameters) {
      EXPECT_FALSE(item.value().grad().defined());
    }
    optimizer.step(0.1);  // nothing to do
  }
}

// --- errors -----------------------------------------------------------------------------------------------
void expect_says(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

std::string refused_state(const std::string& name, const std::function<void(NamedTensors&)>& damage) {
  Training run(goldens().json["cases"][name], torch::kCPU);
  run.train(0, 9);
  const auto before = run.optimizer->state_dict();
  auto state = copy(before);
  damage(state);
  const auto message = error_of([&] { run.optimizer->load_state_dict(state); });
  expect_identical(run.optimizer->state_dict(), before);
  return message;
}

TEST(OptimState, OfAnotherOptimizerIsRefused) {
  const auto state_of = [](const std::string& name) {
    Training run(goldens().json["cases"][name], torch::kCPU);
    run.train(0, 9);
    return run.optimizer->state_dict();
  };
  const auto become = [&](const std::string& name) {
    return [state = state_of(name)](NamedTensors& it) { it = state; };
  };
  expect_says(refused_state("adamw", become("adam")),
              "[Optimizer::load_state_dict] the state was saved by adam, and this is adamw");
  expect_says(refused_state("sgd-momentum", become("adamw")),
              "the state was saved by adamw, and this is sgd");
  expect_says(refused_state("sgd-plain", become("sgd-momentum")), "this optimizer keeps nothing");
  expect_says(refused_state("sgd-plain", [](auto& state) { state.clear(); }), "the state has no 'optimizer'");
  expect_says(refused_state("adam", [](auto& state) { state["optimizer"].fill_(7); }),
              "'optimizer' is 7, which stands for no optimizer");
}

TEST(OptimState, OfOtherParametersIsRefused) {
  expect_says(refused_state("adamw", [](auto& state) { state.erase("scale.exp_avg_sq"); }),
              "the state has no 'scale.exp_avg_sq', only the rest of what belongs to 'scale'");
  expect_says(
      refused_state("adamw", [](auto& state) { state.insert("head.wieght.exp_avg", torch::zeros({1})); }),
      "the state has 'head.wieght.exp_avg', which is of no parameter here; the nearest is "
      "'head.weight.exp_avg'");
  expect_says(refused_state("adamw", [](auto& state) { state["stem.bias.exp_avg"] = torch::zeros({5}); }),
              "'stem.bias.exp_avg' is Float [5] in the state, and should be Float [6]");
  expect_says(
      refused_state("sgd-momentum",
                    [](auto& state) { state["stem.bias.momentum"] = torch::zeros({6}, torch::kDouble); }),
      "'stem.bias.momentum' is Double [6] in the state, and should be Float [6]");
  expect_says(refused_state("adam", [](auto& state) { state["scale.step"] = torch::zeros({2}); }),
              "'scale.step' is Float [2] in the state, and should be Float []");
  expect_says(refused_state("adam", [](auto& state) { state["scale.step"].fill_(-1); }),
              "'scale.step' is -1, which is not a count of steps");
  expect_says(refused_state("adam", [](auto& state) { state["scale.step"].fill_(std::nan("")); }),
              "which is not a count of steps");
}

TEST(OptimErrors, NameTheCulprit) {
  const auto refusal = [](std::vector<ParameterGroup> groups, const OptimOptions& options = {}) {
    return error_of([&] { const Optimizer optimizer(std::move(groups), options); });
  };
  const auto weight = torch::zeros({4, 4}).requires_grad_();
  expect_says(refusal({{.parameters = {{"a", weight}}}, {.parameters = {{"a", weight.clone().detach()}}}}),
              "[Optimizer] parameter 'a' is in two groups");
  expect_says(refusal({{.parameters = {{"a", weight}, {"b", weight}}}}), "'a' and 'b' are the same tensor");
  expect_says(refusal({{.parameters = {{"a", torch::zeros({2}, torch::kLong)}}}}), "'a' is not a parameter");
  expect_says(refusal({{.parameters = {{"a", weight * 2}}}}), "'a' is not a parameter");
  expect_says(refusal({{.parameters = {{"a", torch::zeros({4, 4}).slice(1, 0, 2)}}}}),
              "parameter 'a' is not dense");
  expect_says(refusal({{.parameters = NamedTensors(), .lr_scale = -1}}), "lr_scale must be at least 0");
  expect_says(refusal({{.parameters = NamedTensors(), .weight_decay = std::nan("")}}),
              "weight_decay must be at least 0");
  expect_says(refusal({}, OptimOptions().momentum(-1)), "[Optimizer] momentum must be at least 0, not -1");
  expect_says(refusal({}, OptimOptions().betas({0.9, 1})), "betas");
  expect_says(refusal({}, OptimOptions().eps(-1)), "eps");

  auto moving = torch::zeros({4}).requires_grad_();
  Optimizer optimizer({{.parameters = {{"a", moving}}}}, {});
  expect_says(error_of([&] { optimizer.step(-1); }),
              "[Optimizer::set_lr] the learning rate must be at least 0, not -1");
  expect_says(error_of([&] { optimizer.clip_grad_norm(std::nan("")); }), "[Optimizer::clip_grad_norm]");
  moving.mutable_grad() = torch::ones({4});
  optimizer.step(0.1);
  optimizer.zero_grad();
  moving.set_data(moving.detach().to(torch::kDouble));
  moving.mutable_grad() = torch::ones({4}, torch::kDouble);
  expect_says(error_of([&] { optimizer.step(0.1); }), "'a' is Double on cpu, its state Float on cpu");
}

// --- groups -----------------------------------------------------------------------------------------------
NamedTensors classifier_parameters() {
  return {{"backbone.stem.conv.weight", torch::zeros({2, 2, 1, 1})},
          {"backbone.stem.norm.weight", torch::zeros({2})},
          {"backbone.layer1.0.weight", torch::zeros({2, 2})},
          {"backbone.layer1.0.bias", torch::zeros({1, 2})},
          {"backbone.layer1.01.weight", torch::zeros({2, 2})},
          {"backbone.position", torch::zeros({1, 5, 2})},
          {"backbone.scale", torch::zeros({})},
          {"head.weight", torch::zeros({3, 2})},
          {"head.bias", torch::zeros({3})}};
}

// "learning rate/decay: names" of each group.
std::vector<std::string> described(const std::vector<ParameterGroup>& groups) {
  std::vector<std::string> result;
  for (const auto& group : groups) {
    std::ostringstream text;
    text << group.lr_scale << "/" << group.weight_decay << ":";
    for (const auto& item : group.parameters) {
      text << " " << item.key();
    }
    result.push_back(text.str());
  }
  return result;
}

using Lines = std::vector<std::string>;

TEST(ParameterGroups, AreAsFewAsThereAreRatesAndDecays) {
  const auto parameters = classifier_parameters();
  const std::vector<std::string> blocks = {"backbone.stem", "backbone.layer1.0", "backbone.layer1.01"};
  EXPECT_EQ(parameter_groups(parameters, blocks, {}).size(), 1u);
  EXPECT_EQ(parameter_groups(parameters, {}, {})[0].parameters.keys(), parameters.keys());
  EXPECT_EQ(parameter_groups(parameters, blocks, GroupOptions().weight_decay(0.1).decay_all(true)).size(),
            1u);
  EXPECT_EQ(described(parameter_groups(parameters, blocks, GroupOptions().weight_decay(0.1))),
            (Lines{"1/0.1: backbone.stem.conv.weight backbone.layer1.0.weight backbone.layer1.01.weight "
                   "backbone.position head.weight",
                   "1/0: backbone.stem.norm.weight backbone.layer1.0.bias backbone.scale head.bias"}));
  EXPECT_EQ(described(parameter_groups(parameters, blocks, GroupOptions().head_scale(10))),
            (Lines{"1/0: backbone.stem.conv.weight backbone.stem.norm.weight backbone.layer1.0.weight "
                   "backbone.layer1.0.bias backbone.layer1.01.weight backbone.position backbone.scale",
                   "10/0: head.weight head.bias"}));
  // 0.5 to the power of the blocks that follow, and the head.
  EXPECT_EQ(
      described(parameter_groups(parameters, blocks, GroupOptions().layer_decay(0.5))),
      (Lines{"0.125/0: backbone.stem.conv.weight backbone.stem.norm.weight backbone.position backbone.scale",
             "0.25/0: backbone.layer1.0.weight backbone.layer1.0.bias", "0.5/0: backbone.layer1.01.weight",
             "1/0: head.weight head.bias"}));
  EXPECT_EQ(
      parameter_groups(parameters, blocks, GroupOptions().layer_decay(0.5).weight_decay(0.1).head_scale(3))
          .size(),
      7u);
}

TEST(ParameterGroups, HaveATiedTensorOnce) {
  const auto weight = torch::zeros({2, 2});
  const auto groups = parameter_groups({{"backbone.a", weight}, {"head.weight", weight}}, {"backbone.a"}, {});
  EXPECT_EQ(described(groups), (Lines{"1/0: backbone.a"}));
}

TEST(ParameterGroups, RefuseWhatMakesNone) {
  const auto refusal = [](const GroupOptions& options) {
    return error_of([&] { parameter_groups(classifier_parameters(), {}, options); });
  };
  expect_says(refusal(GroupOptions().weight_decay(-1)), "[parameter_groups] weight_decay");
  expect_says(refusal(GroupOptions().layer_decay(0)), "[parameter_groups] layer_decay must be more than 0");
  expect_says(refusal(GroupOptions().head_scale(INFINITY)), "[parameter_groups] head_scale");
  expect_says(refusal(GroupOptions().layer_decay(0.5)), "the model has no blocks to apply it to");
}

}  // namespace
}  // namespace tpgm::testing::test_optimizer
