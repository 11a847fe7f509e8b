// What Constraints keep, what may change under them, and what happens when something is not finite.
#include "tpgm/core/constraints.h"

#include "tests/core/constraints.h"

namespace tpgm::testing {
namespace {

class ConstraintsState : public ConstraintsTest {};
TPGM_ON_EVERY_DEVICE(ConstraintsState);

TEST_P(ConstraintsState, ProjectFromWhatIsHeldUntilReleased) {
  const auto selected = two();
  Constraints constraints("Test", selected, Norm::kMars, AnchorStorage::kWeights);
  const auto before = copies(constraints.tensors());
  constraints.measure(/*hold=*/true);
  EXPECT_TRUE(constraints.holding());
  expect_equal(constraints.held(), before);
  const auto overwrite = [&] {
    const torch::NoGradGuard no_grad;
    for (auto tensor : constraints.tensors()) tensor.fill_(7);
  };
  overwrite();
  const auto radii = inner(constraints);
  constraints.project(radii);
  for (size_t k = 0; k < 2; ++k) {
    expect_close(selected[k].tensor,
                 literal_projection(before[k], selected[k].pretrained, radii[k].cpu(), Norm::kMars),
                 torch::kDouble, "from the held copy");
  }
  constraints.release();
  EXPECT_FALSE(constraints.holding());

  constraints.load_held(copies({before[1], before[0]}));
  EXPECT_NEAR(constraints.largest()[0].item<double>(),
              distances(before[1], selected[0].pretrained, Norm::kMars).max().item<double>(), 1e-12);
  constraints.release();
  overwrite();
  constraints.project(2 * constraints.largest());
  EXPECT_TRUE(constraints.tensors()[0].eq(7).all().item<bool>()) << "from the tensor, once released";
  EXPECT_TRUE(contains(error_of([&] { constraints.load_held({before[0], before[1].flatten()}); }), "'b'"));
}

// A recorded step finds them by their address.
TEST_P(ConstraintsState, StayInTheirMemory) {
  const auto selected = two();
  Constraints constraints("Test", selected, Norm::kMars, AnchorStorage::kWeights);
  constraints.keep_held_memory();
  const auto values = copies(constraints.tensors());
  const auto* smallest = constraints.smallest().const_data_ptr();
  const auto* largest = constraints.largest().const_data_ptr();
  const void* held = nullptr;
  for (int i = 0; i < 3; ++i) {
    constraints.measure(/*hold=*/true);
    const auto* now = constraints.held()[1].const_data_ptr();
    EXPECT_TRUE(i == 0 || device().is_cpu() || now == held);
    held = now;
    expect_equal(constraints.held(), values);
    constraints.release();
    EXPECT_FALSE(constraints.holding());
    if (i == 1) {
      constraints.load_held(values);
      EXPECT_TRUE(device().is_cpu() || constraints.held()[1].const_data_ptr() == held);
      held = constraints.held()[1].const_data_ptr();
      constraints.release();
    }
    EXPECT_EQ(constraints.smallest().const_data_ptr(), smallest);
    EXPECT_EQ(constraints.largest().const_data_ptr(), largest);
  }
}

// Projects after the module has gone to channels-last, either before the distances are measured or while its
// weights are held.
void expect_projection_in_new_format(std::vector<Selected> selected, AnchorStorage storage, bool while_held) {
  Constraints constraints("Test", selected, Norm::kMars, storage);
  constraints.measure(while_held);
  const auto before = copies(constraints.tensors());
  const auto largest = constraints.largest().clone();
  for (auto& each : selected)
    each.tensor.set_data(each.tensor.detach().contiguous(at::MemoryFormat::ChannelsLast));
  if (!while_held) {
    constraints.measure();
    EXPECT_TRUE(torch::allclose(constraints.largest(), largest, 1e-12, 0));
  }
  const auto radii = 0.4 * largest;
  constraints.project(radii);
  for (size_t k = 0; k < selected.size(); ++k) {
    auto& [name, weights, anchor] = selected[k];
    anchor = storage == AnchorStorage::kBFloat16 ? anchor.to(torch::kBFloat16) : anchor;
    EXPECT_TRUE(weights.is_contiguous(at::MemoryFormat::ChannelsLast));
    expect_close(weights, literal_projection(before[k], anchor, radii[k].cpu(), Norm::kMars), torch::kDouble,
                 name);
  }
}

TEST_P(ConstraintsState, TheModuleMayChangeItsMemoryFormat) {
  for (const auto storage : kStorages) expect_projection_in_new_format(two(), storage, /*while_held=*/false);
}

TEST_P(ConstraintsState, TheModuleMayChangeItsMemoryFormatWhileItsWeightsAreHeld) {
  for (const auto storage : kStorages) expect_projection_in_new_format(two(), storage, /*while_held=*/true);
}

TEST_P(ConstraintsState, TheModuleMayMoveToNewMemory) {
  auto selected = two();
  Constraints constraints("Test", selected, Norm::kL2, AnchorStorage::kWeights);
  constraints.measure();
  const auto old = selected[0].tensor.detach();
  const auto old_values = old.clone();
  selected[0].tensor.set_data(2 * old_values);
  constraints.measure();
  const auto expected = distances(2 * old_values, selected[0].pretrained, Norm::kL2).item<double>();
  EXPECT_NEAR(constraints.largest()[0].item<double>(), expected, 1e-12 * expected);
  constraints.project(torch::zeros({2}, constraints.scalar_options()));
  EXPECT_TRUE(torch::equal(selected[0].tensor, selected[0].pretrained));
  EXPECT_TRUE(torch::equal(old, old_values)) << "written to the old memory";
}

TEST_P(ConstraintsState, WeightsThatAreNotFiniteAreNamedAndNothingIsWritten) {
  for (const auto norm : kNorms) {
    const auto selected = two();
    Constraints constraints("Test", selected, norm, AnchorStorage::kWeights);
    constraints.measure();
    const auto largest = constraints.largest().cpu();
    auto element = selected[1].tensor.detach().view(-1)[5];
    const auto good = element.clone();
    for (const double bad : {static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
      element.fill_(bad);
      const auto before = copies(constraints.tensors());
      const auto error = error_of([&] {
        constraints.measure(/*hold=*/true);
        constraints.project(torch::full({2}, 1e-8, constraints.scalar_options()));  // CUDA gets here
        constraints.check();
      });
      EXPECT_TRUE(contains(error, "[Test] 'b' holds NaN or Inf")) << error;
      EXPECT_TRUE(device().is_cuda() || !constraints.holding());
      EXPECT_TRUE(torch::equal(selected[0].tensor, before[0]));
      EXPECT_TRUE(torch::allclose(selected[1].tensor, before[1], 0, 0, /*equal_nan=*/true));
      if (device().is_cpu()) {
        EXPECT_TRUE(torch::equal(constraints.largest(), largest)) << "distances are as before";
      }
    }
    element.copy_(good);
    constraints.measure();
    constraints.check();
    constraints.project(torch::zeros({2}, constraints.scalar_options()));
    EXPECT_TRUE(torch::equal(selected[1].tensor, selected[1].pretrained));
  }
}

TEST_P(ConstraintsState, GradientsAndLossesThatAreNotFiniteAreNamed) {
  const auto selected = two();
  Constraints constraints("Test", selected, Norm::kMars, AnchorStorage::kWeights);
  constraints.measure();
  std::vector<Tensor> gradients = {torch::ones_like(selected[0].pretrained),
                                   torch::ones_like(selected[1].pretrained)};
  const auto radii = torch::full({2}, 1e-8, constraints.scalar_options());
  gradients[0].view(-1)[0] = NAN;
  auto error = error_of([&] {
    constraints.slopes(gradients, radii, Rows::kAll);
    constraints.check();
  });
  EXPECT_TRUE(contains(error, "[Test] the gradient of 'a' holds NaN or Inf")) << error;
  error = error_of([&] {
    constraints.add_displacement(gradients, 1);
    constraints.check();
  });
  EXPECT_TRUE(contains(error, "the gradient of 'a'")) << error;
  for (const double bad : {static_cast<double>(NAN), -static_cast<double>(INFINITY)}) {
    error = error_of([&] {
      constraints.expect_finite_loss(torch::tensor(bad).to(device()));
      EXPECT_FALSE(constraints.report().eq(kernels::kAllFinite).item<bool>());
      constraints.check();
    });
    EXPECT_TRUE(contains(error, "the loss is NaN or Inf")) << error;
  }
  constraints.expect_finite_loss(torch::tensor(1e30).to(device()));
  gradients[0].fill_(1);
  constraints.slopes(gradients, radii, Rows::kAll);
  constraints.check();
  EXPECT_TRUE(constraints.report().eq(kernels::kAllFinite).item<bool>());
}

TEST_P(ConstraintsState, AFlagOnItsWayIsSeenByPoll) {
  const auto selected = two();
  Constraints constraints("Test", selected, Norm::kMars, AnchorStorage::kWeights);
  constraints.post();
  if (device().is_cuda()) torch::cuda::synchronize();
  constraints.poll();  // clean
  if (device().is_cuda()) {
    selected[0].tensor.detach().fill_(NAN);
    constraints.measure();
    constraints.post();
    torch::cuda::synchronize();
    EXPECT_TRUE(contains(error_of([&] { constraints.poll(); }), "'a' holds NaN"));
    constraints.check();  // clear again
  }
}

TEST_P(ConstraintsState, TensorsMustStayInTheirTypeShapeAndDevice) {
  std::vector<std::function<Tensor(const Tensor&)>> changes = {
      [](const Tensor& tensor) { return tensor.to(torch::kFloat); },
      [](const Tensor& tensor) { return tensor.reshape({12, 3, 3}); },
      [](const Tensor& tensor) { return tensor.slice(0, 0, 2); }};
  if (device().is_cuda()) changes.push_back([](const Tensor& tensor) { return tensor.cpu(); });
  for (const auto& change : changes) {
    auto selected = two();
    Constraints constraints("Test", selected, Norm::kMars, AnchorStorage::kWeights);
    constraints.measure();
    const auto changed = change(selected[1].tensor.detach()).clone();
    selected[1].tensor.set_data(changed.clone());
    for (const bool project : {false, true}) {
      const auto error =
          error_of([&] { project ? constraints.project(constraints.smallest()) : constraints.measure(); });
      EXPECT_TRUE(contains(error, "'b' is now") && contains(error, "move and convert the module first"))
          << error;
    }
    EXPECT_TRUE(torch::equal(selected[1].tensor, changed)) << "nothing is written";
  }
}

TEST_P(ConstraintsState, TensorsMustStayInTheirTypeWhileTheyAreHeld) {
  auto selected = two();
  for (auto& each : selected) each.tensor.set_data(each.tensor.detach().to(torch::kFloat));
  Constraints constraints("Test", selected, Norm::kMars, AnchorStorage::kWeights);
  constraints.measure(/*hold=*/true);
  const auto changed = selected[1].tensor.detach().to(torch::kDouble);
  selected[1].tensor.set_data(changed.clone());
  const auto error = error_of([&] { constraints.project(constraints.smallest() / 2); });
  EXPECT_TRUE(contains(error, "'b' is now")) << error;
  EXPECT_TRUE(torch::equal(selected[1].tensor, changed)) << "nothing is written";
}

TEST_P(ConstraintsState, AnchorsThatAreNotFiniteAreRefused) {
  for (const double bad : {static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    auto selected = two();
    selected[1].pretrained.view(-1)[3] = bad;
    const auto error = error_of([&] { Constraints("Test", selected, Norm::kL2, AnchorStorage::kWeights); });
    EXPECT_TRUE(contains(error, "[Test] the anchor of 'b' holds NaN or Inf")) << error;
  }
  auto selected = two();
  selected[0].pretrained.view(-1)[3] = 1e300;
  Constraints("Test", selected, Norm::kL2, AnchorStorage::kWeights);
  const auto error = error_of([&] { Constraints("Test", selected, Norm::kL2, AnchorStorage::kBFloat16); });
  EXPECT_TRUE(contains(error, "too large for bfloat16")) << error;
  EXPECT_TRUE(
      contains(error_of([] { Constraints("Test", {}, Norm::kL2, AnchorStorage::kWeights); }), "nothing"));
}

TEST_P(ConstraintsState, AnchorsAreCopiesAndHaveAFingerprint) {
  auto selected = two();
  const auto fingerprint = [&] {
    return Constraints("Test", selected, Norm::kL2, AnchorStorage::kWeights).anchor_fingerprint();
  };
  Constraints constraints("Test", selected, Norm::kL2, AnchorStorage::kWeights);
  const auto pretrained = selected[0].pretrained.clone();
  EXPECT_EQ(fingerprint(), constraints.anchor_fingerprint());
  selected[0].pretrained.view(-1)[0] += 1;
  EXPECT_TRUE(torch::equal(constraints.anchors()[0], pretrained))
      << "the anchor must not follow the original";
  EXPECT_NE(fingerprint(), constraints.anchor_fingerprint()) << "a value";
  selected[0].pretrained.copy_(pretrained);
  selected[0].name = "other";
  EXPECT_NE(fingerprint(), constraints.anchor_fingerprint()) << "a name";
}

TEST_P(ConstraintsState, AutogradNoticesAProjection) {
  for (const bool interpolate : {false, true}) {
    auto selected = every_layout(device(), torch::kDouble);
    Constraints constraints("Test", selected, Norm::kMars, AnchorStorage::kWeights);
    constraints.measure();
    const auto radii = inner(constraints);
    for (auto& each : selected) {
      if (each.tensor.numel() == 0) continue;
      const auto loss = each.tensor.square().sum();  // its gradient needs the values of now
      interpolate ? constraints.interpolate(radii) : constraints.project(radii);
      EXPECT_TRUE(contains(error_of([&] { loss.backward(); }), "modified by an inplace operation"))
          << each.name;
    }
  }
}

TEST_P(ConstraintsState, NumbersAndGradientsByName) {
  const auto selected = two();
  Constraints constraints("Test", selected, Norm::kL2, AnchorStorage::kWeights);
  const auto values = constraints.by_name(scalars({1.5, -2}));
  EXPECT_EQ(values["a"], 1.5);
  EXPECT_EQ(values["b"], -2);
  EXPECT_FALSE(constraints.gradients()[1].defined());
  selected[1].tensor.sum().backward();
  EXPECT_TRUE(constraints.gradients()[1].eq(1).all().item<bool>());
}

}  // namespace
}  // namespace tpgm::testing
