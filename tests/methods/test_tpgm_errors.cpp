// TPGM when something is wrong: one clear error, and everything as before the call.
#include "tests/methods/tpgm_fixture.h"

namespace tpgm::testing {
namespace {

// Errors. Each case breaks something; everything must then be as before the call.
class TpgmErrors : public TpgmTest {
 protected:
  // In the first call and in a later one, with the built-in optimizer and another. What follows must be
  // what follows without the broken call.
  void expect_refused(const std::function<std::string(Tpgm&)>& broken_call, const std::string& message) {
    for (const bool own_optimizer : {false, true}) {
      for (const int steps_before : {0, 3}) {
        SCOPED_TRACE(own_optimizer ? "own optimizer" : "built-in optimizer");
        SCOPED_TRACE(steps_before);
        std::map<bool, NamedTensors> outcome;
        for (const bool breaks : {false, true}) {
          start_over();
          Tpgm tpgm(*net, TpgmOptions().radius_steps(3).radius_optimizer(own_optimizer ? own_adam(1e-2)
                                                                                       : OptimizerFactory()));
          train(tpgm, steps_before);
          move();
          if (breaks) expect_no_trace(tpgm, broken_call, message);
          tpgm.step([&] { return loss(net, batch_for(net, 0)); });
          tpgm.check();
          outcome[breaks] = copy(net);
        }
        expect_identical(outcome[true], outcome[false]);
      }
    }
  }
  void expect_no_trace(Tpgm& tpgm, const std::function<std::string(Tpgm&)>& broken_call,
                       const std::string& message) {
    const auto clean = copy(net);
    const auto radii = as_map(tpgm.radii());
    const auto state = learned_state(tpgm);
    broken = clean;
    const auto said = broken_call(tpgm);
    EXPECT_NE(said.find(message), std::string::npos) << said;
    EXPECT_EQ(as_map(tpgm.radii()), radii);
    expect_identical(learned_state(tpgm), state);
    expect_identical(copy(net), broken);
    EXPECT_TRUE(net->is_training() && net->norm->is_training());
    assign(net, clean);
  }
  // What the call says, at once or, on CUDA, when asked.
  std::string error_of_step(Tpgm& tpgm, const Closure& closure) {
    return error_of([&] {
      tpgm.step(closure);
      tpgm.check();
    });
  }
  // A closure whose third call does something else.
  Closure third(const Closure& bad) {
    auto calls = std::make_shared<int>(0);
    return [this, bad, calls] { return ++*calls == 3 ? bad() : held_out(); };
  }

  NamedTensors broken;  // the weights before the call
};
TPGM_ON_EVERY_DEVICE(TpgmErrors);

TEST_P(TpgmErrors, WeightsThatAreNotFinite) {
  for (const auto bad : {NAN, INFINITY, -INFINITY}) {
    expect_refused(
        [&](Tpgm& tpgm) {
          const torch::NoGradGuard no_grad;
          net->hidden->weight[3][5] = bad;
          broken = copy(net);
          return error_of_step(tpgm, held_out);
        },
        "[Tpgm] 'hidden.weight' holds NaN or Inf");
  }
}

TEST_P(TpgmErrors, WeightsThatAreNotFiniteWhenOnlyProjecting) {
  expect_refused(
      [&](Tpgm& tpgm) {
        const torch::NoGradGuard no_grad;
        net->norm->bias[0] = NAN;
        broken = copy(net);
        return error_of([&] {
          tpgm.project();
          tpgm.check();
        });
      },
      "[Tpgm] 'norm.bias' holds NaN or Inf");
}

TEST_P(TpgmErrors, ALossThatIsNotFinite) {
  for (const auto bad : {NAN, INFINITY}) {
    const Closure closure = [&, bad] { return held_out() * bad; };
    expect_refused([&](Tpgm& tpgm) { return error_of_step(tpgm, closure); }, "the loss is NaN or Inf");
    expect_refused([&](Tpgm& tpgm) { return error_of_step(tpgm, third(closure)); }, "the loss is NaN or Inf");
  }
}

TEST_P(TpgmErrors, AGradientThatIsNotFinite) {
  const Closure closure = [&] {
    const auto& weight = net->head->weight;
    const auto nothing = (weight - weight.detach()).pow(2).sum().sqrt();  // 0, its derivative NaN
    return held_out() + nothing;
  };
  const auto message = "the gradient of 'head.weight' holds NaN or Inf";
  expect_refused([&](Tpgm& tpgm) { return error_of_step(tpgm, closure); }, message);
  expect_refused([&](Tpgm& tpgm) { return error_of_step(tpgm, third(closure)); }, message);
}

TEST_P(TpgmErrors, AClosureThatThrows) {
  const Closure closure = [&]() -> Tensor { throw std::runtime_error("no more data"); };
  expect_refused(
      [&](Tpgm& tpgm) -> std::string {
        try {
          tpgm.step(third(closure));
        } catch (const std::runtime_error& error) {
          return error.what();
        }
        return "nothing was thrown";
      },
      "no more data");
}

TEST_P(TpgmErrors, AClosureThatReturnsNoLoss) {
  const auto refused = [&](const Closure& bad, const std::string& message) {
    expect_refused([&](Tpgm& tpgm) { return error_of_step(tpgm, bad); }, message);
  };
  refused({}, "needs a closure");
  refused([] { return Tensor(); }, "an undefined tensor");
  refused([&] { return held_out().expand({2}); },
          "a tensor of 2 elements; it must return the loss, a scalar");
  refused([&] { return held_out().detach(); }, "does not depend on the model's parameters");
  refused([] { return torch::ones({}, torch::requires_grad()) * 2; }, "depends on none of the constrained");
}

TEST_P(TpgmErrors, AClosureThatCallsBackward) {
  expect_refused(
      [&](Tpgm& tpgm) {
        return error_of_step(tpgm, [&] {
          auto result = held_out();
          result.backward();
          return result;
        });
      },
      "the closure called backward()");
}

TEST_P(TpgmErrors, AClosureThatTrainsBatchNorm) {
  Tpgm tpgm(*net);
  train(tpgm, 2);
  move();
  const auto before = copy(net);
  const auto message = error_of_step(tpgm, [&] {
    net->train();
    return held_out();
  });
  EXPECT_NE(message.find("the closure changed buffer 'norm."), std::string::npos) << message;
  for (const auto& item : net->named_parameters())
    EXPECT_TRUE(identical(item.value(), before[item.key()])) << item.key();
}

TEST_P(TpgmErrors, AClosureThatTrainsBatchNormLeavesNoTrace) {
  const Closure trains = [&] {
    net->train();
    return held_out();
  };
  expect_refused([&](Tpgm& tpgm) { return error_of_step(tpgm, trains); }, "the closure changed buffer");
}

// LibTorch does not show that a BatchNorm without a counter has changed its statistics.
TEST_P(TpgmErrors, StatisticsThatChangeUnseenArePutBack) {
  OwnNorm norm;
  norm->to(device());
  Tpgm tpgm(*norm);
  {
    const torch::NoGradGuard no_grad;
    norm->weight.add_(torch::rand_like(norm->weight));
  }
  const auto before = copy(norm->named_buffers());
  tpgm.step([&] {
    norm->train();
    return norm->forward(torch::randn({8, 6}, device())).pow(2).mean();
  });
  expect_identical(copy(norm->named_buffers()), before);
}

TEST_P(TpgmErrors, AModuleThatWasConverted) {
  Tpgm tpgm(*net);
  train(tpgm, 1);
  net->to(torch::kDouble);
  const auto before = copy(net);
  const auto message = error_of_step(tpgm, held_out);
  EXPECT_NE(message.find("'conv.weight' is now Double"), std::string::npos) << message;
  EXPECT_NE(message.find("not what it was when the method was built"), std::string::npos) << message;
  expect_identical(copy(net), before);
}

}  // namespace
}  // namespace tpgm::testing
