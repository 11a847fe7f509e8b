// Methods and their options by name, as text.
#include "tpgm/methods/registry.h"

#include <set>

#include "tests/methods/training.h"
#include "tpgm/methods/tpgm.h"

namespace tpgm::testing {
namespace {

using Texts = std::map<std::string, std::string>;

// A model after a few steps with a method, and the method's state.
struct Outcome {
  NamedTensors weights, state;
};
Outcome train(const std::string& method_name, const Texts& options, int steps = 2) {
  torch::manual_seed(3);
  Net net;
  const auto method = make_method(method_name, *net, copy(net), options);
  const auto optimizer = sgd()(net->parameters());
  const auto radius_loss = held_out_loss(net);
  for (int i = 0; i < steps; ++i) train_step(net, *optimizer, *method, i, radius_loss);
  method->finish(radius_loss);
  return {copy(net), method->state_dict()};
}

std::string refusal(const std::string& method_name, const Texts& options) {
  Net net;
  return error_of([&] { make_method(method_name, *net, copy(net), options); });
}

TEST(Registry, EveryMethodAndOptionIsDescribed) {
  for (const auto& method : methods()) {
    EXPECT_FALSE(method.summary.empty()) << method.name;
    for (const auto& option : method.options)
      EXPECT_FALSE(option.type.empty() || option.help.empty()) << method.name << " " << option.name;
  }
}

TEST(Registry, KnowsWhatStudiesAskOfMethods) {
  std::vector<std::string> frozen, with_updates, probing;
  std::set<std::string> by_loop;
  for (const auto& method : methods()) {
    if (!method.trains_all) frozen.push_back(method.name);
    if (method.radius_updates) with_updates.push_back(method.name);
    if (method.probes_first) probing.push_back(method.name);
    EXPECT_EQ(method.head_only, method.name == "lp");
    for (const auto& option : method.options)
      if (option.by_loop) by_loop.insert(option.name);
  }
  EXPECT_EQ(frozen, (std::vector<std::string>{"lp", "pf", "bitfit", "lp-ft"}));
  EXPECT_EQ(with_updates, std::vector<std::string>{"tpgm"});
  EXPECT_EQ(probing, std::vector<std::string>{"lp-ft"});
  EXPECT_EQ(by_loop, (std::set<std::string>{"head", "lp_steps"}));
  EXPECT_EQ(find_method("ft")->role, MethodRole::kBaseline);
  EXPECT_EQ(find_method("wise")->role, MethodRole::kInterpolation);
  EXPECT_EQ(find_method("tpgm")->role, MethodRole::kTpgm);
  const auto& updates = find_method("tpgm")->radius_updates;
  EXPECT_EQ(updates({{"every", "10"}}).every.steps, 10);
  EXPECT_EQ(updates({{"every", "10"}}).radius_steps, 1);
  EXPECT_TRUE(updates({{"every", "end"}}).every.at_end());
  EXPECT_EQ(updates({{"every", "end"}}).radius_steps, 200);
}

TEST(Registry, DefaultsAsTextAreTheDefaults) {
  for (const auto& method : methods()) {
    SCOPED_TRACE(method.name);
    Texts defaults;
    for (const auto& option : method.options) defaults[option.name] = option.default_value;
    const auto built = train(method.name, {});
    const auto spelled_out = train(method.name, defaults);
    expect_identical(spelled_out.weights, built.weights);
    expect_identical(spelled_out.state, built.state);
  }
}

// Every option of every method is understood and does something: another value than its default gives other
// weights.
TEST(Registry, EveryOptionReachesItsMethod) {
  const std::map<std::string, Texts> others = {
      {"lp", {{"head", "hidden.*"}}},
      {"pf", {{"head", "hidden.*"}}},
      {"bitfit", {{"head", "hidden.*"}}},
      {"l2-sp", {{"mu", "0.5"}, {"exclude", "head.*"}, {"anchor_storage", "bf16"}}},
      {"mars-sp", {{"radius", "0.01"}, {"norm", "l2"}, {"exclude", "head.*"}, {"anchor_storage", "bf16"}}},
      {"lp-ft", {{"head", "hidden.*"}, {"lp_steps", "1"}}},
      {"wise", {{"ratio", "0.9"}, {"exclude", "head.*,conv.bias"}, {"anchor_storage", "bf16"}}},
      {"tpgm",
       {{"norm", "mars-max"},
        {"every", "end"},
        {"radius_steps", "2"},
        {"radius_lr", "0.3"},
        {"init", "eps"},
        {"eps", "1e-3"},
        {"scale", "relative"},
        {"project", "on-update"},
        {"mu", "100"},
        {"tv", "100"},
        {"groups", "conv.*,h*"},
        {"exclude", "head.*"},
        {"anchor_storage", "bf16"}}},
      {"ftp",
       {{"norm", "l2"},
        {"radius_lr", "0.3"},
        {"k", "0"},
        {"mask", "true"},
        {"exclude", "head.*"},
        {"anchor_storage", "bf16"}}},
      {"spd", {{"lambda", "3"}, {"exclude", "head.*"}, {"anchor_storage", "bf16"}}},
  };
  // Other options without which an option has no effect.
  const std::map<std::string, Texts> company = {{"mars-sp norm", {{"radius", "0.05"}}},
                                                {"mars-sp exclude", {{"radius", "0.05"}}},
                                                {"mars-sp anchor_storage", {{"radius", "0.05"}}},
                                                {"tpgm eps", {{"init", "eps"}}},
                                                {"tpgm project", {{"every", "2"}}},
                                                {"tpgm groups", {{"tv", "100"}}},
                                                {"ftp k", {{"radius_lr", "0.3"}}},
                                                {"ftp mask", {{"radius_lr", "0.3"}}}};
  for (const auto& method : methods()) {
    for (const auto& option : method.options) {
      const auto key = method.name + " " + option.name;
      SCOPED_TRACE(key);
      ASSERT_TRUE(others.contains(method.name) && others.at(method.name).contains(option.name))
          << "add a value for this option to `others`";
      const auto beside = company.contains(key) ? company.at(key) : Texts();
      auto with = beside;
      with[option.name] = others.at(method.name).at(option.name);
      EXPECT_GT(difference(train(method.name, with, 6).weights, train(method.name, beside, 6).weights), 0);
    }
  }
}

TEST(Registry, EveryEndIsSpelledEnd) {
  Net net;
  const auto anchor = copy(net);
  const auto method =
      make_method("tpgm", *net, anchor, {{"every", "end"}, {"radius_steps", "0"}, {"norm", "auto"}});
  train_plainly(net, 3);
  const auto tuned = copy(net);
  method->after_step({});
  expect_identical(copy(net), tuned);
  method->finish({});
  for (const auto& item : net->named_parameters()) {  // half of the way, as l2 and half have it
    const auto middle = (anchor[item.key()] + tuned[item.key()]) / 2;
    EXPECT_TRUE(torch::allclose(item.value(), middle, 1e-6, 1e-7)) << item.key();
  }
  EXPECT_FALSE(method->needs_radius_data());
  EXPECT_TRUE(make_method("tpgm", *net, anchor, {{"every", "end"}})->needs_radius_data());
}

TEST(Registry, NamesTheNearestMethodAndOption) {
  EXPECT_NE(refusal("tpmg", {}).find("no method 'tpmg'; did you mean 'tpgm'?"), std::string::npos);
  EXPECT_NE(refusal("bit-fit", {}).find("did you mean 'bitfit'?"), std::string::npos);
  EXPECT_NE(refusal("tpgm", {{"raduis_lr", "1"}})
                .find("[tpgm] has no option 'raduis_lr'; did you mean 'radius_lr'?"),
            std::string::npos);
  EXPECT_NE(refusal("ft", {{"mu", "1"}}).find("[ft] has no option 'mu'; it has none"), std::string::npos);
}

TEST(Registry, OptionsCheckTheirText) {
  const auto* every = find_method("tpgm")->find("every");
  every->check("`every`", "10");
  every->check("`every`", "end");
  for (const char* wrong : {"0", "1.5", "never"})
    EXPECT_EQ(error_of([&] { every->check("`every`", wrong); }),
              fmt::format("`every` must be an integer from 1, or 'end', not '{}'", wrong));
}

TEST(Registry, BadValuesNameTheirOption) {
  const std::vector<std::tuple<std::string, std::string, std::string>> bad = {
      {"tpgm", "radius_lr", "abc"},
      {"tpgm", "radius_lr", ""},
      {"tpgm", "radius_lr", "1e-2x"},
      {"tpgm", "radius_lr", "0"},
      {"tpgm", "radius_lr", "nan"},
      {"tpgm", "every", "0"},
      {"tpgm", "every", "-1"},
      {"tpgm", "every", "1.5"},
      {"tpgm", "norm", "l3"},
      {"tpgm", "norm", "L2"},
      {"tpgm", "radius_steps", "-1"},
      {"tpgm", "scale", ""},
      {"tpgm", "project", "never"},
      {"tpgm", "exclude", "nothing.*"},
      {"tpgm", "groups", "x*"},
      {"tpgm", "mu", "-1"},
      {"tpgm", "tv", "inf"},
      {"ftp", "mask", "yes"},
      {"ftp", "k", "1.5"},
      {"ftp", "k", "-0.1"},
      {"ftp", "k", "nan"},
      {"mars-sp", "radius", "-1"},
      {"mars-sp", "radius", "nan"},
      {"spd", "lambda", "-1"},
      {"spd", "anchor_storage", "gpu"},
      {"l2-sp", "mu", "-1"},
      {"lp-ft", "lp_steps", "-1"},
      {"lp", "head", "nothing.*"},
      {"wise", "ratio", "inf"},
      {"lp-ft", "lp_steps", "99999999999999999999"},
  };
  for (const auto& [method, option, text] : bad) {
    EXPECT_NE(refusal(method, {{option, text}}).find(option), std::string::npos)
        << method << " " << option << "=" << text;
  }
  EXPECT_NE(refusal("tpgm", {{"norm", "l3"}}).find("[tpgm] norm must be l2|mars|mars-max, not 'l3'"),
            std::string::npos);
}

TEST(Registry, AnInfiniteRadiusIsANumber) {
  expect_identical(train("mars-sp", {{"radius", "inf"}}).weights, train("ft", {}).weights);
}

}  // namespace
}  // namespace tpgm::testing
