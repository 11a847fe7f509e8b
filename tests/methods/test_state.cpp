// Saving in the middle of a run, and bit-exact resuming in another process.

#include <torch/serialize.h>
#include <sstream>

#include "tests/methods/training.h"
#include "tests/torch_nn.h"
#include "tpgm/methods/ftp.h"
#include "tpgm/methods/l2_sp.h"
#include "tpgm/methods/lp_ft.h"
#include "tpgm/methods/mars_sp.h"
#include "tpgm/methods/registry.h"
#include "tpgm/methods/spd.h"
#include "tpgm/methods/tpgm.h"
#include "tpgm/methods/wise.h"

namespace tpgm::testing {
namespace {

using MakeMethod = std::function<std::unique_ptr<Method>(Net&)>;

template <class M>
MakeMethod make(typename M::Options options = {}) {
  return [options](Net& net) { return std::make_unique<M>(*net, options); };
}

// What a user writes to disk.
struct Checkpoint {
  std::string model, optimizer;
  NamedTensors method;
};

template <class T>
std::string bytes_of(const T& value) {
  std::ostringstream stream;
  torch::save(value, stream);
  return stream.str();
}
template <class T>
void load_bytes(T& value, const std::string& bytes, torch::Device device) {
  std::istringstream stream(bytes);
  torch::load(value, stream, device);
}

// The state as it comes back from a file.
NamedTensors through_file(const NamedTensors& state) {
  std::vector<torch::Tensor> values;
  if (!state.is_empty()) load_bytes(values, bytes_of(state.values()), torch::kCPU);
  NamedTensors result;
  for (size_t k = 0; k < values.size(); ++k) result.insert(state.keys()[k], values[k]);
  return result;
}

// Without the bytes of an own radius optimizer, in which LibTorch writes addresses.
NamedTensors state_of(const Method& method) {
  NamedTensors result;
  for (const auto& item : method.state_dict())
    if (item.key() != "radii.optimizer") result.insert(item.key(), item.value());
  return result;
}

// A training run: model, optimizer, method, and a closure that draws its batch from the global stream.
struct TrainingRun {
  TrainingRun(torch::Device on, const MakeMethod& make_method, const OptimizerOf& make_optimizer,
              uint64_t seed)
      : device(on) {
    torch::manual_seed(1);  // the pre-trained weights
    net = make_net(device);
    method = make_method(net);
    optimizer = make_optimizer(net->parameters());
    torch::manual_seed(seed);
    radius_loss = [model = net]() mutable {
      auto data = batch_for(model, kHeldOut + torch::randint(1000, {1}).item<int64_t>());
      data.images += 0.1 * torch::randn_like(data.images);
      return loss(model, data);
    };
  }
  void train(int64_t begin, int64_t end) {
    for (auto i = begin; i < end; ++i) train_step(net, *optimizer, *method, i, radius_loss);
  }
  Capturable& capturable() { return dynamic_cast<Capturable&>(*method); }
  Checkpoint save() const {
    return {bytes_of(net), bytes_of(*optimizer), through_file(method->state_dict())};
  }
  void load(const Checkpoint& checkpoint) {
    load_bytes(net, checkpoint.model, device);
    load_bytes(*optimizer, checkpoint.optimizer, device);
    method->load_state_dict(checkpoint.method);
  }

  torch::Device device;
  Net net = nullptr;
  std::unique_ptr<Method> method;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  Closure radius_loss;
};

class State : public Repeatable {};
TPGM_ON_EVERY_DEVICE(State);

TEST_P(State, AResumedRunIsTheUninterruptedOne) {
  const OptimizerFactory sgd_factory = [](auto radii) {
    return std::make_unique<torch::optim::SGD>(radii, torch::optim::SGDOptions(0.05).momentum(0.9));
  };
  const OptimizerFactory adam_factory = [](auto radii) {
    return std::make_unique<torch::optim::Adam>(radii, torch::optim::AdamOptions(0.05));
  };
  const std::vector<std::pair<std::string, MakeMethod>> methods = {
      {"tpgm", make<Tpgm>()},
      {"tpgm, every 3", make<Tpgm>(TpgmOptions().every(3).radius_steps(2).norm(Norm::kL2))},
      {"tpgm, relative", make<Tpgm>(TpgmOptions().scale(RadiusScale::kRelative).mu(0.1).tv(0.1))},
      {"tpgm, own SGD", make<Tpgm>(TpgmOptions().radius_optimizer(sgd_factory))},
      {"tpgm, own Adam", make<Tpgm>(TpgmOptions().radius_optimizer(adam_factory).every(3))},
      {"tpgm, at the end", make<Tpgm>(TpgmOptions().every(kEnd).radius_steps(5))},
      {"tpgm, bf16 anchor", make<Tpgm>(TpgmOptions().anchor_storage(AnchorStorage::kBFloat16))},
      {"ftp", make<Ftp>()},
      {"ftp, masked", make<Ftp>(FtpOptions().mask(true).k(0.5).norm(Norm::kL2))},
      {"lp-ft, switching after the resume", make<LpFt>(LpFtOptions().lp_steps(13))},
      {"lp-ft, switched before", make<LpFt>(LpFtOptions().lp_steps(7))},
      {"l2-sp", make<L2Sp>()},
      {"mars-sp", make<MarsSp>(MarsSpOptions().radius(0.1))},
      {"spd", make<Spd>()},
      {"wise", make<Wise>()},
  };
  for (const auto& [name, make_method] : methods) {
    for (const auto& make_optimizer : {sgd(), adamw()}) {
      SCOPED_TRACE(name);
      TrainingRun whole(device(), make_method, make_optimizer, /*seed=*/2);
      whole.train(0, 20);

      TrainingRun first(device(), make_method, make_optimizer, /*seed=*/2);
      first.train(0, 10);
      const auto checkpoint = first.save();
      TrainingRun second(device(), make_method, make_optimizer, /*seed=*/99);
      second.load(checkpoint);
      expect_identical(state_of(*second.method), state_of(*first.method));
      second.train(10, 20);

      expect_identical(copy(second.net), copy(whole.net));
      expect_identical(state_of(*second.method), state_of(*whole.method));
      torch::manual_seed(7);
      whole.method->finish(whole.radius_loss);
      torch::manual_seed(8);
      second.method->finish(second.radius_loss);
      expect_identical(copy(second.net), copy(whole.net));
    }
  }
}

TEST_P(State, AStateSavedBeforeTheFirstStepIsAFreshOne) {
  for (const auto& make_method : {make<Tpgm>(), make<Ftp>()}) {
    TrainingRun fresh(device(), make_method, sgd(), 2), other(device(), make_method, sgd(), 2);
    const auto checkpoint = fresh.save();
    other.train(0, 3);
    other.load(checkpoint);
    other.optimizer = sgd()(other.net->parameters());  // loading no momentum does not forget the old one
    torch::manual_seed(2);
    other.train(0, 3);
    torch::manual_seed(2);
    fresh.train(0, 3);
    expect_identical(copy(other.net), copy(fresh.net));
  }
}

TEST_P(State, IsACopyOnTheHost) {
  for (const auto& make_method : {make<Tpgm>(), make<Ftp>()}) {
    TrainingRun run(device(), make_method, sgd(), 2);
    run.train(0, 2);
    const auto state = run.method->state_dict();
    const auto then = copy(state);
    for (const auto& item : state) EXPECT_TRUE(item.value().is_cpu()) << item.key();
    run.train(2, 4);
    expect_identical(state, then);
    EXPECT_GT(difference(copy(run.net), copy(TrainingRun(device(), make_method, sgd(), 2).net)), 0);
  }
}

// The kinds of the next steps, if each of them is replayed.
std::vector<int> kinds(Capturable& method, int steps) {
  std::vector<int> result;
  for (int i = 0; i < steps; ++i) {
    result.push_back(method.next_step().value().kind);
    method.replayed();
  }
  return result;
}

TEST_P(State, AReplayedStepCountsLikeOneThatRan) {
  const std::pair<TpgmOptions, std::vector<int>> cases[] = {
      {TpgmOptions(), {2, 2, 2, 2, 2, 2}},
      {TpgmOptions().every(3), {1, 1, 2, 1, 1, 2}},
      {TpgmOptions().every(3).project(ProjectWhen::kOnUpdate), {0, 0, 2, 0, 0, 2}},
      {TpgmOptions().every(kEnd).radius_steps(2), {0, 0, 0, 0, 0, 0}},
  };
  for (const auto& [options, expected] : cases) {
    TrainingRun ran(device(), make<Tpgm>(options), sgd(), 2),
        replayed(device(), make<Tpgm>(options), sgd(), 2);
    for (auto* run : {&ran, &replayed}) {
      EXPECT_EQ(run->capturable().next_step().has_value(), options.every_or_default().at_end())
          << "radii are to begin";
      run->train(0, 1);
    }
    ran.train(1, 7);
    EXPECT_EQ(kinds(replayed.capturable(), 6), expected);
    EXPECT_TRUE(identical(replayed.method->state_dict()["step"], ran.method->state_dict()["step"]));
  }
  TrainingRun twice(device(), make<Tpgm>(TpgmOptions().every(2).radius_steps(4)), sgd(), 2);
  twice.train(0, 1);
  EXPECT_EQ(twice.capturable().next_step()->radius_losses, 0);
  twice.capturable().replayed();
  EXPECT_EQ(twice.capturable().next_step()->radius_losses, 4);

  TrainingRun probing(device(), make<LpFt>(LpFtOptions().lp_steps(2)), sgd(), 2);
  probing.capturable().replayed();
  EXPECT_FALSE(probing.net->conv->weight.requires_grad());
  probing.capturable().replayed();
  EXPECT_TRUE(probing.net->conv->weight.requires_grad());
}

TEST_P(State, EveryCapturableMethodDescribesItsNextStep) {
  for (const auto& info : methods()) {
    SCOPED_TRACE(info.name);
    TrainingRun run(
        device(), [&](Net& net) { return make_method(info.name, *net, named_tensors(*net), {}); }, sgd(), 2);
    if (dynamic_cast<Capturable*>(run.method.get()) == nullptr) continue;
    run.train(0, 2);
    const auto plan = run.capturable().next_step();
    ASSERT_TRUE(plan);
    EXPECT_EQ(plan->radius_losses, run.method->needs_radius_data() ? 1 : 0);
    run.capturable().replayed();
    EXPECT_EQ(run.capturable().next_step()->kind, plan->kind);
  }
  const OptimizerFactory own = [](auto radii) { return std::make_unique<torch::optim::SGD>(radii, 0.05); };
  TrainingRun waits(device(), make<Tpgm>(TpgmOptions().radius_optimizer(own)), sgd(), 2);
  waits.train(0, 2);
  EXPECT_FALSE(waits.capturable().next_step());
  TrainingRun fresh(device(), make<Ftp>(), sgd(), 2);
  EXPECT_FALSE(fresh.capturable().next_step());
}

// The mistake it guards against: load the checkpoint, then build the method on half-trained weights.
TEST_P(State, OfAnotherAnchorIsRefused) {
  for (const auto& make_method :
       {make<Tpgm>(), make<Ftp>(), make<Spd>(), make<L2Sp>(), make<MarsSp>(), make<Wise>()}) {
    TrainingRun run(device(), make_method, sgd(), 2);
    run.train(0, 3);
    const auto checkpoint = run.save();
    TrainingRun late(device(), make_method, sgd(), 2);
    load_bytes(late.net, checkpoint.model, device());
    late.method = make_method(late.net);
    const auto before = late.method->state_dict();
    EXPECT_NE(error_of([&] { late.method->load_state_dict(checkpoint.method); })
                  .find("the state belongs to another anchor. Build the method while the model holds the "
                        "pre-trained weights"),
              std::string::npos);
    expect_identical(late.method->state_dict(), before);
  }
}

// What a method says to the state of another.
std::string refusal(const MakeMethod& saver, const MakeMethod& loader) {
  TrainingRun from(torch::kCPU, saver, sgd(), 2), to(torch::kCPU, loader, sgd(), 2);
  from.train(0, 2);
  to.train(0, 1);
  const auto before = to.method->state_dict();
  const auto message = error_of([&] { to.method->load_state_dict(from.save().method); });
  expect_identical(to.method->state_dict(), before);
  return message;
}

TEST(StateOfAnotherMethod, IsRefused) {
  EXPECT_NE(refusal(make<Ftp>(), make<Tpgm>()).find("it was not saved by this method"), std::string::npos);
  EXPECT_NE(refusal(make<LpFt>(), make<Tpgm>()).find("it was not saved by this method"), std::string::npos);
  EXPECT_NE(refusal(make<Tpgm>(), make<LpFt>()).find("it was not saved by this method"), std::string::npos);
  EXPECT_NE(refusal(make<LpFt>(), make<Ftp>()).find("it was not saved by this method"), std::string::npos);
}

TEST(StateOfAnotherMethod, TpgmIsRefusedByFtp) {
  EXPECT_NE(refusal(make<Tpgm>(), make<Ftp>()).find("it was not saved by this method"), std::string::npos);
}

TEST(StateOfAnotherMethod, AnotherRadiusOptimizerIsRefused) {
  const auto own = make<Tpgm>(TpgmOptions().radius_optimizer(
      [](auto radii) { return std::make_unique<torch::optim::SGD>(radii, 0.05); }));
  EXPECT_NE(refusal(make<Tpgm>(), own).find("saved with the built-in radius optimizer"), std::string::npos);
  EXPECT_NE(refusal(own, make<Tpgm>()).find("saved with another radius optimizer"), std::string::npos);
}

TEST(StateOfAnotherMethod, AnotherSelectionIsRefused) {
  const auto fewer = make<Tpgm>(TpgmOptions().exclude({"head.*"}));
  EXPECT_NE(refusal(fewer, make<Tpgm>()).find("the same exclude"), std::string::npos);
}

TEST(StateOfAnotherMethod, AWrongNumberOfRadiiIsRefused) {
  TrainingRun run(torch::kCPU, make<Tpgm>(), sgd(), 2);
  run.train(0, 2);
  const auto before = run.method->state_dict();
  auto damaged = run.method->state_dict();
  damaged["radii.learned"] = damaged["radii.learned"].slice(0, 0, 5);
  EXPECT_NE(error_of([&] {
              run.method->load_state_dict(damaged);
            }).find("the state has 5 radii, the model 8 constrained tensors"),
            std::string::npos);
  damaged = run.method->state_dict();
  damaged["radii.distances"] = damaged["radii.distances"].slice(0, 0, 5);
  EXPECT_NE(error_of([&] { run.method->load_state_dict(damaged); }).find("the state is damaged"),
            std::string::npos);
  expect_identical(run.method->state_dict(), before);
}

TEST(StateOfAnotherMethod, LpFtDoesNotGoBackToProbing) {
  const auto make_method = make<LpFt>(LpFtOptions().lp_steps(2));
  TrainingRun run(torch::kCPU, make_method, sgd(), 2);
  run.train(0, 1);
  const auto probing = run.method->state_dict();
  run.train(1, 3);
  EXPECT_NE(error_of([&] { run.method->load_state_dict(probing); }).find("cannot go back to probing"),
            std::string::npos);
}

}  // namespace
}  // namespace tpgm::testing
