// TPGM's promises: inside the radius, nothing else touched, everything as before after an error.
#include "tests/methods/tpgm_fixture.h"

#include <torch/serialize.h>

namespace tpgm::testing {
namespace {

TPGM_ON_EVERY_DEVICE(TpgmTest);

TEST_P(TpgmTest, WithoutRadiusStepsHalfIsWise) {
  Tpgm half(*net, TpgmOptions().every(kEnd).norm(Norm::kL2).radius_steps(0));
  EXPECT_FALSE(half.needs_radius_data());
  auto twin = twin_of(net), plain = twin_of(net);
  Wise wise(*twin);
  train_plainly(net, 5);
  assign(twin, copy(net));
  half.finish({});
  wise.finish({});
  expect_identical(copy(net->named_parameters()), copy(twin->named_parameters()));
  EXPECT_GT(difference(copy(net), copy(plain)), 1e-3);
}

TEST_P(TpgmTest, KeepsEveryTensorInsideItsRadius) {
  for (const auto norm : kernels::kNorms) {
    for (int seed = 0; seed < 10; ++seed) {
      SCOPED_TRACE(seed);
      torch::manual_seed(seed);
      Bag bag(torch::dtype(torch::kDouble).device(device()));
      const auto start = copy(bag->named_parameters());
      const bool odd = seed % 2 == 1;
      Tpgm tpgm(*bag, TpgmOptions()
                          .norm(norm)
                          .every(1 + seed % 3)
                          .scale(odd ? RadiusScale::kRelative : RadiusScale::kAbsolute)
                          .init(seed % 4 < 2 ? RadiusInit::kHalf : RadiusInit::kEps)
                          .radius_lr(0.1));
      bool projected = false;
      for (int step = 0; step < 6; ++step) {
        {
          const torch::NoGradGuard no_grad;
          for (auto& each : bag->parameters()) each.add_(torch::randn_like(each));
        }
        const auto unprojected = copy(bag->named_parameters());
        tpgm.step([&] { return bag->loss(); });
        const auto radii = tpgm.radii(), ratios = tpgm.ratios();
        for (const auto& item : bag->named_parameters()) {
          const auto& name = item.key();
          const auto largest = distances(item.value(), start[name], norm).max().item<double>();
          EXPECT_LE(largest, radii[name] * (1 + 1e-9) + 1e-12) << name;
          const auto farthest = distances(unprojected[name], start[name], norm).max().item<double>();
          EXPECT_LE(radii[name], farthest * (1 + 1e-9)) << name;
          EXPECT_NEAR(ratios[name], radii[name] / farthest, 1e-9) << name;
          EXPECT_GE(ratios[name], 0);
          EXPECT_LE(ratios[name], 1);
          projected = projected || ratios[name] < 0.99;
        }
      }
      EXPECT_TRUE(projected);
    }
  }
}

TEST_P(TpgmTest, AtTheEndMeansAtTheEnd) {
  Tpgm tpgm(*net, TpgmOptions().every(kEnd).radius_steps(4));
  int calls = 0;
  const Closure counted = [&] {
    ++calls;
    return held_out();
  };
  auto plain = twin_of(net);
  for (int i = 0; i < 5; ++i) train_step(net, *optimizer, tpgm, i, counted);
  train_plainly(plain, 5);
  expect_identical(copy(net), copy(plain));
  EXPECT_EQ(calls, 0);
  EXPECT_TRUE(tpgm.radii().is_empty());
  tpgm.finish(counted);
  EXPECT_EQ(calls, 4);
  EXPECT_GT(difference(copy(net), copy(plain)), 1e-3);
  for (const auto& item : net->named_parameters()) {
    const auto n = distances(item.value(), anchor[item.key()], Norm::kL2).item<double>();
    EXPECT_NEAR(n, tpgm.radii()[item.key()], 1e-6 + 1e-4 * n) << item.key();
  }
}

TEST_P(TpgmTest, ARadiusStepChangesNothingElse) {
  struct Everything {
    NamedTensors gradients, buffers;
    std::vector<const void*> gradient_tensors;
    std::vector<bool> training;
    std::string optimizer;
    Tensor random, device_random;
  };
  const auto everything = [&] {
    Everything now;
    for (const auto& item : net->named_parameters()) {
      const auto& gradient = item.value().grad();
      now.gradient_tensors.push_back(gradient.unsafeGetTensorImpl());
      if (gradient.defined()) now.gradients.insert(item.key(), gradient.clone());
    }
    now.buffers = copy(net->named_buffers());
    for (const auto& module : net->modules()) now.training.push_back(module->is_training());
    std::ostringstream stream;
    torch::save(*optimizer, stream);
    now.optimizer = stream.str();
    now.random = at::detail::getDefaultCPUGenerator().get_state();
    now.device_random = at::globalContext().defaultGenerator(device()).get_state();
    return now;
  };
  Tpgm tpgm(*net, TpgmOptions().radius_steps(3));
  train(tpgm, 2);
  net->norm->eval();
  net->hidden->eval();
  move();
  net->head->bias.mutable_grad().reset();
  const Closure noisy = [&] {
    EXPECT_FALSE(net->is_training() || net->norm->is_training());
    auto data = batch_for(net, torch::randint(1000, {1}).item<int64_t>());
    data.images += torch::randn_like(data.images);
    return loss(net, data);
  };
  const auto before = everything();
  const auto weights = copy(net->named_parameters());
  for (const bool alone : {true, false}) {
    const auto radii = as_map(tpgm.radii());
    if (alone) {
      EXPECT_TRUE(torch::isfinite(tpgm.update_radii(noisy)).item<bool>());
      expect_identical(copy(net->named_parameters()), weights);
    } else {
      tpgm.step(noisy);
      EXPECT_GT(difference(copy(net->named_parameters()), weights), 0);
    }
    EXPECT_NE(as_map(tpgm.radii()), radii);
    const auto after = everything();
    expect_identical(after.gradients, before.gradients);
    EXPECT_EQ(after.gradient_tensors, before.gradient_tensors);
    expect_identical(after.buffers, before.buffers);
    EXPECT_EQ(after.training, before.training);
    EXPECT_EQ(after.optimizer, before.optimizer);
    EXPECT_TRUE(torch::equal(after.random, before.random));
    EXPECT_TRUE(torch::equal(after.device_random, before.device_random));
  }
}

TEST_P(TpgmTest, ClosuresDrawFreshBatches) {
  Tpgm tpgm(*net, TpgmOptions().radius_steps(4));
  std::set<int64_t> drawn;
  const Closure drawing = [&] {
    drawn.insert(torch::randint(1'000'000'000, {1}).item<int64_t>());
    return held_out();
  };
  for (int i = 0; i < 3; ++i) {
    move();
    torch::manual_seed(5);  // what a loop does at the start of an epoch must not repeat the radius data
    const auto training = torch::randint(1'000'000'000, {1}).item<int64_t>();
    drawn.erase(training);
    tpgm.step(drawing);
    EXPECT_FALSE(drawn.contains(training));
  }
  EXPECT_EQ(drawn.size(), 12u);
}

TEST_P(TpgmTest, TakesAnyRadiusOptimizer) {
  auto twin = twin_of(net);
  Tpgm built_in(*net, TpgmOptions().radius_steps(2));
  Tpgm given(*twin, TpgmOptions().radius_steps(2).radius_optimizer(own_adam(1e-2)));
  const auto twin_held_out = held_out_loss(twin);
  for (int i = 0; i < 10; ++i) {  // the same weights for both, so that only the radii can differ
    move();
    assign(twin, copy(net));
    built_in.update_radii(held_out);
    given.update_radii(twin_held_out);
    for (const auto& item : built_in.radii())
      EXPECT_NEAR(item.value(), given.radii()[item.key()], 1e-12) << item.key();
  }
}

TEST_P(TpgmTest, AnchorsOnTheHostAreTheSameBitForBit) {
  auto twin = twin_of(net);
  Tpgm here(*net), there(*twin, TpgmOptions().anchor_storage(AnchorStorage::kHost));
  for (int i = 0; i < 3; ++i) {
    move();
    assign(twin, copy(net));
    here.step([&] { return loss(net, batch_for(net, kHeldOut)); });
    there.step([&] { return loss(twin, batch_for(twin, kHeldOut)); });
    expect_identical(copy(twin), copy(net));
    EXPECT_EQ(as_map(here.radii()), as_map(there.radii()));
  }
}

TEST_P(TpgmTest, AnchorsInBFloat16AreTheRoundedWeights) {
  Tpgm tpgm(*net, TpgmOptions()
                      .anchor_storage(AnchorStorage::kBFloat16)
                      .init(RadiusInit::kEps)
                      .radius_steps(0)
                      .norm(Norm::kL2));
  move();
  tpgm.step({});
  for (const auto& item : net->named_parameters()) {  // a radius of 1e-8: back at the anchor as it is kept
    const auto rounded = anchor[item.key()].to(torch::kBFloat16).to(torch::kFloat);
    EXPECT_TRUE(torch::allclose(item.value(), rounded, 0, 1e-7)) << item.key();
  }
}

// What a loss reads in bfloat16 may be made in it: the weights, the radii and the state come out the same.
TEST_P(TpgmTest, EvaluatesInBFloat16WhereTheLossDoes) {
  auto twin = twin_of(net);
  Tpgm wide(*net), narrow(*twin);
  std::vector<Tensor> matrices;
  for (const auto& parameter : twin->parameters())
    if (parameter.dim() > 1) matrices.push_back(parameter);
  ASSERT_FALSE(matrices.empty());
  narrow.read_in_bfloat16(matrices);
  bool was_narrow = false;
  const auto loss_of = [&](auto& model) {
    return [&] {
      auto total = torch::zeros({}, torch::TensorOptions(device()));
      for (const auto& parameter : model->parameters()) {
        was_narrow = was_narrow || parameter.scalar_type() == torch::kBFloat16;
        const auto value = parameter.dim() > 1 ? parameter.to(torch::kBFloat16).to(torch::kFloat) : parameter;
        total = total + (value - 0.1).square().sum();
      }
      return total;
    };
  };
  for (int i = 0; i < 4; ++i) {
    move();
    assign(twin, copy(net));
    wide.step(loss_of(net));
    EXPECT_FALSE(was_narrow);
    narrow.step(loss_of(twin));
    EXPECT_TRUE(std::exchange(was_narrow, false));
    expect_identical(copy(twin), copy(net));
    EXPECT_EQ(as_map(narrow.radii()), as_map(wide.radii()));
  }
}

TEST_P(TpgmTest, ProjectsATiedParameterOnce) {
  Tied tied;
  tied->to(device());
  const auto start = copy(tied->named_parameters());
  Tpgm tpgm(*tied, TpgmOptions().norm(Norm::kL2).radius_steps(0));
  {
    const torch::NoGradGuard no_grad;
    for (auto& each : {tied->encoder->weight, tied->encoder->bias, tied->head->bias}) each.add_(1);
  }
  tpgm.step({});
  EXPECT_EQ(tpgm.radii().keys(), (std::vector<std::string>{"encoder.weight", "encoder.bias", "head.bias"}));
  for (const auto& item : tied->named_parameters())  // half of the way, not a quarter
    EXPECT_TRUE(torch::allclose(item.value(), start[item.key()] + 0.5)) << item.key();
}

TEST_P(TpgmTest, LeavesFrozenAndExcludedParametersAlone) {
  net->hidden->weight.set_requires_grad(false);
  Tpgm tpgm(*net, TpgmOptions().exclude({"head.*", "conv.bias"}).init(RadiusInit::kEps).radius_lr(1e-9));
  move();
  {
    const torch::NoGradGuard no_grad;
    net->hidden->weight.add_(1);
  }
  const auto moved = copy(net);
  tpgm.step(held_out);
  tpgm.check();
  const std::vector<std::string> constrained = {"conv.weight", "norm.weight", "norm.bias", "hidden.bias"};
  EXPECT_EQ(tpgm.radii().keys(), constrained);  // in the model's order
  EXPECT_EQ(tpgm.ratios().keys(), constrained);
  for (const auto& item : net->named_parameters()) {
    const auto& name = item.key();
    const bool is_constrained = tpgm.radii().contains(name);
    EXPECT_EQ(identical(item.value(), moved[name]), !is_constrained) << name;
    EXPECT_EQ(torch::allclose(item.value(), anchor[name], 0, 1e-6), is_constrained) << name;
  }
}

TEST_P(TpgmTest, ANewHeadMustBeExcluded) {
  NamedTensors pretrained;
  for (const auto& item : anchor)
    if (!item.key().starts_with("head.")) pretrained.insert(item.key(), item.value());
  const auto message = error_of([&] { Tpgm(*net, pretrained); });
  EXPECT_NE(message.find("no anchor for 'head.weight' [5,16], 'head.bias' [5]"), std::string::npos)
      << message;
  EXPECT_NE(message.find("exclude({\"head.*\"})"), std::string::npos) << message;
  EXPECT_EQ(Tpgm(*net, pretrained, TpgmOptions().exclude({"head.*"})).displacements().size(), 6);
}

// Fine-tuning on noise: held-out data say so, and the radii hold the model back.
TEST_P(TpgmTest, HeldOutDataHoldBackAFitToNoise) {
  auto plain = twin_of(net);
  Tpgm tpgm(*net);
  const auto plain_optimizer = adamw()(plain->parameters());
  const auto tpgm_optimizer = adamw()(net->parameters());
  for (int i = 0; i < 100; ++i) {
    train_step(net, *tpgm_optimizer, tpgm, i % 2, held_out);
    plain_optimizer->zero_grad();
    loss(plain, batch_for(plain, i % 2)).backward();
    plain_optimizer->step();
  }
  const auto test_loss = [](Net& model) {
    const torch::NoGradGuard no_grad;
    model->eval();
    double total = 0;
    for (int i = 0; i < 20; ++i) total += loss(model, batch_for(model, 2 * kHeldOut + i)).item<double>() / 20;
    return total;
  };
  EXPECT_LT(test_loss(net), test_loss(plain) - 0.5);
}

}  // namespace
}  // namespace tpgm::testing
