// A loss evaluated on held-out data leaves no trace, and its gradients are right.
#include "tpgm/core/held_out_loss.h"

#include <c10/core/InferenceMode.h>

#include "tests/net.h"

namespace tpgm {
namespace {

using testing::error_of;
using testing::Net;
using torch::Tensor;

// Everything that an evaluation must leave as it was.
struct Trace {
  Trace(Net& net, torch::Device device) : device(device) {
    for (const auto& module : net->modules()) training.push_back(module->is_training());
    for (const auto& item : net->named_buffers()) buffers.push_back(item.value().clone());
    for (const auto& item : net->named_parameters()) {
      values.push_back(item.value().detach().clone());
      gradients.push_back(item.value().grad().defined() ? item.value().grad().clone() : Tensor());
    }
    random.push_back(at::globalContext().defaultGenerator(at::kCPU).get_state());
    random.push_back(at::globalContext().defaultGenerator(device).get_state());
  }
  bool operator==(const Trace& other) const {
    return training == other.training && same(buffers, other.buffers) && same(values, other.values) &&
           same(gradients, other.gradients) && same(random, other.random);
  }
  static bool same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Tensor& x, const Tensor& y) {
      return x.defined() == y.defined() && (!x.defined() || torch::equal(x, y));
    });
  }
  torch::Device device;
  std::vector<bool> training;
  std::vector<Tensor> buffers, values, gradients, random;
};

class HeldOutLossTest : public testing::OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    if (IsSkipped()) return;
    net->to(device());
    net->hidden->eval();  // not all submodules are in one mode
    testing::loss(net, testing::batch(0, device())).backward();
    net->head->bias.mutable_grad() = Tensor();
  }
  Closure held_out(int64_t i = 1) {
    return [this, i] { return testing::loss(net, testing::batch(i, device())); };
  }
  Closure drawing(Tensor& drawn) {
    return [this, &drawn] {
      drawn = torch::cat({torch::rand({3}), torch::rand({3}, torch::TensorOptions(device())).cpu()});
      return held_out()();
    };
  }
  HeldOutLoss make() { return HeldOutLoss("Test", *net, device()); }
  Net net;
};
TPGM_ON_EVERY_DEVICE(HeldOutLossTest);

TEST_P(HeldOutLossTest, GivesTheLossAndTheGradientsOfEvalMode) {
  auto parameters = net->parameters();
  parameters[0].set_requires_grad(false);
  auto held_out_loss = make();
  const auto result = held_out_loss.evaluate(held_out(), parameters);
  EXPECT_FALSE(result.loss.requires_grad());
  EXPECT_FALSE(result.gradients[0].defined());

  for (auto& parameter : parameters) parameter.mutable_grad() = Tensor();
  net->eval();
  const auto loss = held_out()();
  loss.backward();
  EXPECT_TRUE(torch::allclose(result.loss, loss, 1e-5));
  for (size_t k = 1; k < parameters.size(); ++k)
    EXPECT_TRUE(torch::allclose(result.gradients[k], parameters[k].grad(), 1e-4, 1e-6)) << k;
}

TEST_P(HeldOutLossTest, EvaluatesAtOtherValues) {
  const auto parameters = net->parameters();
  std::vector<Tensor> values, places;
  for (const auto& parameter : parameters) {
    values.push_back(parameter.detach() * 1.5);
    places.push_back(parameter.detach());
  }
  auto twin = testing::Net();
  twin->to(device());
  {
    const torch::NoGradGuard no_grad;
    for (size_t k = 0; k < values.size(); ++k) twin->parameters()[k].copy_(values[k]);
    for (size_t k = 0; k < net->buffers().size(); ++k) twin->buffers()[k].copy_(net->buffers()[k]);
  }
  auto held_out_loss = make();
  const auto expected =
      HeldOutLoss("Test", *twin, device())
          .evaluate([&] { return testing::loss(twin, testing::batch(1, device())); }, twin->parameters());
  const Trace before(net, device());
  const auto result = held_out_loss.evaluate(held_out(), parameters, values);
  EXPECT_TRUE(torch::allclose(result.loss, expected.loss, 1e-5));
  for (size_t k = 0; k < values.size(); ++k)
    EXPECT_TRUE(torch::allclose(result.gradients[k], expected.gradients[k], 1e-4, 1e-6)) << k;
  const auto broken = [&]() -> Tensor { TORCH_CHECK(false, "no data"); };
  EXPECT_TRUE(error_of([&] { held_out_loss.evaluate(broken, parameters, values); }).find("no data") !=
              std::string::npos);
  values[1] = torch::zeros({2}).to_sparse();
  EXPECT_NE(error_of([&] { held_out_loss.evaluate(held_out(), parameters, values); }), "");
  EXPECT_TRUE(Trace(net, device()) == before);
  for (size_t k = 0; k < parameters.size(); ++k)
    EXPECT_EQ(parameters[k].const_data_ptr(), places[k].const_data_ptr()) << k;
}

// Several variables may share one memory: each then sees the values of the parameter, in any shape and order.
TEST_P(HeldOutLossTest, OtherValuesReachViewsOfTheMemory) {
  auto& weight = net->head->weight;
  const auto share = [&](const char* name, const Tensor& view) {
    auto shared = net->register_parameter(name, view, /*requires_grad=*/true);
    EXPECT_EQ(shared.storage().unsafeGetStorageImpl(), weight.storage().unsafeGetStorageImpl());
    return shared;
  };
  auto same = share("same", weight.detach()), turned = share("turned", weight.detach().t()),
       row = share("row", weight.detach()[2]);
  auto held_out_loss = make();
  const auto values = torch::rand_like(weight).detach();
  const auto before = weight.detach().clone();
  for (const auto type : {torch::kFloat, torch::kBFloat16}) {
    const auto result = held_out_loss.evaluate(
        [&] {
          const auto now = values.to(type);
          EXPECT_TRUE(torch::equal(weight, now));
          for (const auto& [shared, seen] : {std::pair{same, now}, {turned, now.t()}, {row, now[2]}})
            EXPECT_TRUE(torch::equal(shared, seen.to(torch::kFloat)));
          return weight.sum();
        },
        {weight}, {values.to(type)});
  }
  EXPECT_TRUE(torch::equal(weight, before));
  EXPECT_EQ(row.const_data_ptr(), weight[2].const_data_ptr());
  const auto all = torch::zeros({2 * weight.numel()}, torch::TensorOptions(device()));
  const auto own = weight.detach();
  weight.set_data(all.slice(0, 0, weight.numel()).view_as(weight));
  net->register_parameter("all", all, /*requires_grad=*/true);
  EXPECT_NE(error_of([&] {
              held_out_loss.evaluate([&] { return weight.sum(); }, {weight}, {values});
            }).find("'all' shares a part of its memory"),
            std::string::npos);
  EXPECT_EQ(weight.const_data_ptr(), all.const_data_ptr());
}

TEST_P(HeldOutLossTest, ValuesOfAnotherTypeGiveGradientsOfThatType) {
  auto held_out_loss = make();
  auto& weight = net->head->weight;
  const auto value = weight.detach().to(torch::kBFloat16);
  const auto result =
      held_out_loss.evaluate([&] { return (weight.to(torch::kFloat) * 3).sum(); }, {weight}, {value});
  EXPECT_TRUE(torch::equal(result.gradients[0], torch::full_like(value, 3)));
  EXPECT_EQ(weight.scalar_type(), torch::kFloat);
}

TEST_P(HeldOutLossTest, LeavesEverythingElseAsItWas) {
  const Trace before(net, device());
  auto held_out_loss = make();
  for (int i = 0; i < 3; ++i) {
    Tensor drawn;
    held_out_loss.evaluate(drawing(drawn), net->parameters());
    EXPECT_TRUE(Trace(net, device()) == before);
  }
}

TEST_P(HeldOutLossTest, ClosuresHaveARandomStreamOfTheirOwn) {
  Tensor first, second, again;
  torch::manual_seed(5);
  const auto global = torch::cat({torch::rand({3}), torch::rand({3}, torch::TensorOptions(device())).cpu()});
  torch::manual_seed(5);
  auto held_out_loss = make();
  held_out_loss.evaluate(drawing(first), net->parameters());
  held_out_loss.evaluate(drawing(second), net->parameters());
  for (const auto& [a, b] : {std::pair{first, second}, std::pair{first, global}, std::pair{second, global}})
    EXPECT_FALSE((a == b).any().item<bool>());
  torch::manual_seed(5);
  auto other = make();
  other.evaluate(drawing(again), net->parameters());
  EXPECT_TRUE(torch::equal(again, first)) << "the same seed, the same stream";
  torch::manual_seed(6);  // of no account any more: the stream has started
  other.evaluate(drawing(again), net->parameters());
  EXPECT_TRUE(torch::equal(again, second));
  torch::manual_seed(6);
  auto differently_seeded = make();
  differently_seeded.evaluate(drawing(again), net->parameters());
  EXPECT_FALSE((again == first).any().item<bool>());
}

TEST_P(HeldOutLossTest, TheStreamIsSavedAndLoaded) {
  Tensor skipped, expected, actual, fresh;
  auto held_out_loss = make();
  const auto untouched =
      held_out_loss.state_dict();  // also before the first evaluation it is the whole of the stream
  held_out_loss.evaluate(drawing(fresh), net->parameters());
  const auto state = held_out_loss.state_dict();
  held_out_loss.evaluate(drawing(expected), net->parameters());
  auto other = make();
  other.evaluate(drawing(skipped), net->parameters());
  other.evaluate(drawing(skipped), net->parameters());
  other.load_state_dict(state);
  other.evaluate(drawing(actual), net->parameters());
  EXPECT_TRUE(torch::equal(actual, expected));
  torch::manual_seed(77);
  auto elsewhere = make();
  elsewhere.load_state_dict(untouched);
  elsewhere.evaluate(drawing(actual), net->parameters());
  EXPECT_TRUE(torch::equal(actual, fresh));
}

TEST_P(HeldOutLossTest, WorksWhereGradientsAreOff) {
  auto held_out_loss = make();
  const torch::NoGradGuard no_grad;
  const auto result = held_out_loss.evaluate(held_out(), net->parameters());
  EXPECT_TRUE(result.gradients[0].defined() && result.gradients[0].abs().sum().item<double>() > 0);
  EXPECT_FALSE(torch::GradMode::is_enabled());
}

TEST_P(HeldOutLossTest, MistakesAreNamedAndEverythingIsPutBack) {
  Net other;
  other->to(device());
  const std::pair<Closure, std::string> mistakes[] = {
      {nullptr, "needs a closure"},
      {[] { return Tensor(); }, "an undefined tensor"},
      {[&] { return net->forward(testing::batch(1, device()).images); }, "a tensor of 80 elements"},
      {[&] { return held_out()().detach(); }, "does not depend on the model's parameters"},
      {[&] { return testing::loss(other, testing::batch(1, device())); }, "another model"},
      {[&] {
         torch::rand({3});
         TORCH_CHECK(false, "no more data");
         return Tensor();
       },
       "no more data"}};
  auto held_out_loss = make();
  const Trace before(net, device());
  for (const auto& [closure, message] : mistakes) {
    const auto error =
        error_of([&, &closure = closure] { held_out_loss.evaluate(closure, net->parameters()); });
    EXPECT_NE(error.find(message), std::string::npos) << error;
    EXPECT_TRUE(Trace(net, device()) == before) << "not put back after: " << message;
  }
  const c10::InferenceMode inference;
  EXPECT_NE(error_of([&] { held_out_loss.evaluate(held_out(), net->parameters()); }).find("inference mode"),
            std::string::npos);
}

TEST_P(HeldOutLossTest, AClosureThatChangesBuffersIsRefused) {
  auto held_out_loss = make();
  const auto in_training = [&] {
    net->train();
    return held_out()();
  };
  EXPECT_NE(
      error_of([&] { held_out_loss.evaluate(in_training, net->parameters()); }).find("changed buffer 'norm."),
      std::string::npos);
  EXPECT_FALSE(net->hidden->is_training());
}

TEST_P(HeldOutLossTest, BuffersThatAClosureChangedArePutBack) {
  const Trace before(net, device());
  auto held_out_loss = make();
  error_of([&] {
    held_out_loss.evaluate(
        [&] {
          net->norm->running_mean.fill_(3);
          return held_out()();
        },
        net->parameters());
  });
  EXPECT_TRUE(Trace(net, device()) == before);
}

}  // namespace
}  // namespace tpgm
