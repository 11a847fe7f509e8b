// What Displacements keep, what may change under them, and what happens when something is not finite.
#include "tpgm/core/displacements.h"

#include "tests/core/displacements.h"

namespace tpgm::testing {
namespace {

class DisplacementsState : public DisplacementsTest {};
TPGM_ON_EVERY_DEVICE(DisplacementsState);

TEST_P(DisplacementsState, ProjectFromWhatIsHeldUntilReleased) {
  const auto selected = two();
  Displacements displacements("Test", selected, Norm::kMars, AnchorStorage::kWeights);
  const auto before = copies(displacements.tensors());
  HeldCopy held(displacements);
  held.hold();
  EXPECT_TRUE(held.holds());
  expect_equal(held.values(), before);
  const auto overwrite = [&] {
    const torch::NoGradGuard no_grad;
    for (auto tensor : displacements.tensors()) tensor.fill_(7);
  };
  overwrite();
  const auto radii = inner(displacements);
  displacements.project(radii);
  for (size_t k = 0; k < 2; ++k) {
    expect_close(selected[k].tensor,
                 literal_projection(before[k], selected[k].pretrained, radii[k].cpu(), Norm::kMars),
                 torch::kDouble, "from the held copy");
  }
  held.release();
  EXPECT_FALSE(held.holds());

  held.load(copies({before[1], before[0]}));
  EXPECT_NEAR(displacements.largest()[0].item<double>(),
              distances(before[1], selected[0].pretrained, Norm::kMars).max().item<double>(), 1e-12);
  held.release();
  overwrite();
  displacements.project(2 * displacements.largest());
  EXPECT_TRUE(displacements.tensors()[0].eq(7).all().item<bool>()) << "from the tensor, once released";
  EXPECT_TRUE(contains(error_of([&] { held.load({before[0], before[1].flatten()}); }), "'b'"));
}

// A captured step finds them by their address.
TEST_P(DisplacementsState, StayInTheirMemory) {
  const auto selected = two();
  Displacements displacements("Test", selected, Norm::kMars, AnchorStorage::kWeights);
  HeldCopy copy(displacements);
  const auto values = copies(displacements.tensors());
  const auto* smallest = displacements.smallest().const_data_ptr();
  const auto* largest = displacements.largest().const_data_ptr();
  const void* held = nullptr;
  for (int i = 0; i < 3; ++i) {
    copy.hold();
    const auto* now = copy.values()[1].const_data_ptr();
    EXPECT_TRUE(i == 0 || device().is_cpu() || now == held);
    held = now;
    expect_equal(copy.values(), values);
    copy.release();
    EXPECT_FALSE(copy.holds());
    if (i == 1) {
      copy.load(values);
      EXPECT_TRUE(device().is_cpu() || copy.values()[1].const_data_ptr() == held);
      held = copy.values()[1].const_data_ptr();
      copy.release();
    }
    EXPECT_EQ(displacements.smallest().const_data_ptr(), smallest);
    EXPECT_EQ(displacements.largest().const_data_ptr(), largest);
  }
}

// Projects after the module has gone to channels-last, either before the distances are measured or while its
// weights are held.
void expect_projection_in_new_format(std::vector<Selected> selected, AnchorStorage storage, bool while_held) {
  Displacements displacements("Test", selected, Norm::kMars, storage);
  HeldCopy held(displacements);
  while_held ? held.hold() : displacements.measure();
  const auto before = copies(displacements.tensors());
  const auto largest = displacements.largest().clone();
  for (auto& each : selected)
    each.tensor.set_data(each.tensor.detach().contiguous(at::MemoryFormat::ChannelsLast));
  if (!while_held) {
    displacements.measure();
    EXPECT_TRUE(torch::allclose(displacements.largest(), largest, 1e-12, 0));
  }
  const auto radii = 0.4 * largest;
  displacements.project(radii);
  for (size_t k = 0; k < selected.size(); ++k) {
    auto& [name, weights, anchor] = selected[k];
    anchor = storage == AnchorStorage::kBFloat16 ? anchor.to(torch::kBFloat16) : anchor;
    EXPECT_TRUE(weights.is_contiguous(at::MemoryFormat::ChannelsLast));
    expect_close(weights, literal_projection(before[k], anchor, radii[k].cpu(), Norm::kMars), torch::kDouble,
                 name);
  }
}

TEST_P(DisplacementsState, TheModuleMayChangeItsMemoryFormat) {
  for (const auto storage : kStorages) expect_projection_in_new_format(two(), storage, /*while_held=*/false);
}

TEST_P(DisplacementsState, TheModuleMayChangeItsMemoryFormatWhileItsWeightsAreHeld) {
  for (const auto storage : kStorages) expect_projection_in_new_format(two(), storage, /*while_held=*/true);
}

TEST_P(DisplacementsState, TheModuleMayMoveToNewMemory) {
  auto selected = two();
  Displacements displacements("Test", selected, Norm::kL2, AnchorStorage::kWeights);
  displacements.measure();
  const auto old = selected[0].tensor.detach();
  const auto old_values = old.clone();
  selected[0].tensor.set_data(2 * old_values);
  displacements.measure();
  const auto expected = distances(2 * old_values, selected[0].pretrained, Norm::kL2).item<double>();
  EXPECT_NEAR(displacements.largest()[0].item<double>(), expected, 1e-12 * expected);
  displacements.project(torch::zeros({2}, displacements.scalar_options()));
  EXPECT_TRUE(torch::equal(selected[0].tensor, selected[0].pretrained));
  EXPECT_TRUE(torch::equal(old, old_values)) << "written to the old memory";
}

TEST_P(DisplacementsState, WeightsThatAreNotFiniteAreNamedAndNothingIsWritten) {
  for (const auto norm : kNorms) {
    const auto selected = two();
    Displacements displacements("Test", selected, norm, AnchorStorage::kWeights);
    HeldCopy held(displacements);
    displacements.measure();
    const auto largest = displacements.largest().cpu();
    auto element = selected[1].tensor.detach().view(-1)[5];
    const auto good = element.clone();
    for (const double bad : {static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
      element.fill_(bad);
      const auto before = copies(displacements.tensors());
      const auto error = error_of([&] {
        held.hold();
        displacements.project(torch::full({2}, 1e-8, displacements.scalar_options()));  // CUDA gets here
        displacements.flag().check();
      });
      EXPECT_TRUE(contains(error, "[Test] 'b' holds NaN or Inf")) << error;
      EXPECT_TRUE(device().is_cuda() || !held.holds());
      EXPECT_TRUE(torch::equal(selected[0].tensor, before[0]));
      EXPECT_TRUE(torch::allclose(selected[1].tensor, before[1], 0, 0, /*equal_nan=*/true));
      if (device().is_cpu()) {
        EXPECT_TRUE(torch::equal(displacements.largest(), largest)) << "distances are as before";
      }
    }
    element.copy_(good);
    held.release();
    displacements.measure();
    displacements.flag().check();
    displacements.project(torch::zeros({2}, displacements.scalar_options()));
    EXPECT_TRUE(torch::equal(selected[1].tensor, selected[1].pretrained));
  }
}

TEST_P(DisplacementsState, GradientsAndLossesThatAreNotFiniteAreNamed) {
  const auto selected = two();
  Displacements displacements("Test", selected, Norm::kMars, AnchorStorage::kWeights);
  displacements.measure();
  std::vector<Tensor> gradients = {torch::ones_like(selected[0].pretrained),
                                   torch::ones_like(selected[1].pretrained)};
  const auto radii = torch::full({2}, 1e-8, displacements.scalar_options());
  gradients[0].view(-1)[0] = NAN;
  auto error = error_of([&] {
    displacements.radius_gradients(gradients, radii, Rows::kAll);
    displacements.flag().check();
  });
  EXPECT_TRUE(contains(error, "[Test] the gradient of 'a' holds NaN or Inf")) << error;
  error = error_of([&] {
    displacements.add_displacement(gradients, 1);
    displacements.flag().check();
  });
  EXPECT_TRUE(contains(error, "the gradient of 'a'")) << error;
  for (const double bad : {static_cast<double>(NAN), -static_cast<double>(INFINITY)}) {
    error = error_of([&] {
      displacements.flag().expect_finite(torch::tensor(bad).to(device()));
      EXPECT_FALSE(displacements.flag().report().eq(kernels::kAllFinite).item<bool>());
      displacements.flag().check();
    });
    EXPECT_TRUE(contains(error, "the loss is NaN or Inf")) << error;
  }
  displacements.flag().expect_finite(torch::tensor(1e30).to(device()));
  gradients[0].fill_(1);
  displacements.radius_gradients(gradients, radii, Rows::kAll);
  displacements.flag().check();
  EXPECT_TRUE(displacements.flag().report().eq(kernels::kAllFinite).item<bool>());
}

TEST_P(DisplacementsState, AFlagOnItsWayIsSeenByPoll) {
  const auto selected = two();
  Displacements displacements("Test", selected, Norm::kMars, AnchorStorage::kWeights);
  displacements.flag().post();
  if (device().is_cuda()) torch::cuda::synchronize();
  displacements.flag().poll();  // clean
  if (device().is_cuda()) {
    selected[0].tensor.detach().fill_(NAN);
    displacements.measure();
    displacements.flag().post();
    torch::cuda::synchronize();
    EXPECT_TRUE(contains(error_of([&] { displacements.flag().poll(); }), "'a' holds NaN"));
    displacements.flag().check();  // clear again
  }
}

TEST_P(DisplacementsState, TensorsMustStayInTheirTypeShapeAndDevice) {
  std::vector<std::function<Tensor(const Tensor&)>> changes = {
      [](const Tensor& tensor) { return tensor.to(torch::kFloat); },
      [](const Tensor& tensor) { return tensor.reshape({12, 3, 3}); },
      [](const Tensor& tensor) { return tensor.slice(0, 0, 2); }};
  if (device().is_cuda()) changes.push_back([](const Tensor& tensor) { return tensor.cpu(); });
  for (const auto& change : changes) {
    auto selected = two();
    Displacements displacements("Test", selected, Norm::kMars, AnchorStorage::kWeights);
    displacements.measure();
    const auto changed = change(selected[1].tensor.detach()).clone();
    selected[1].tensor.set_data(changed.clone());
    for (const bool project : {false, true}) {
      const auto error = error_of(
          [&] { project ? displacements.project(displacements.smallest()) : displacements.measure(); });
      EXPECT_TRUE(contains(error, "'b' is now") && contains(error, "move and convert the module first"))
          << error;
    }
    EXPECT_TRUE(torch::equal(selected[1].tensor, changed)) << "nothing is written";
  }
}

TEST_P(DisplacementsState, TensorsMustStayInTheirTypeWhileTheyAreHeld) {
  auto selected = two();
  for (auto& each : selected) each.tensor.set_data(each.tensor.detach().to(torch::kFloat));
  Displacements displacements("Test", selected, Norm::kMars, AnchorStorage::kWeights);
  HeldCopy held(displacements);
  held.hold();
  const auto changed = selected[1].tensor.detach().to(torch::kDouble);
  selected[1].tensor.set_data(changed.clone());
  const auto error = error_of([&] { displacements.project(displacements.smallest() / 2); });
  EXPECT_TRUE(contains(error, "'b' is now")) << error;
  EXPECT_TRUE(torch::equal(selected[1].tensor, changed)) << "nothing is written";
}

TEST_P(DisplacementsState, AnchorsThatAreNotFiniteAreRefused) {
  for (const double bad : {static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    auto selected = two();
    selected[1].pretrained.view(-1)[3] = bad;
    const auto error = error_of([&] { Displacements("Test", selected, Norm::kL2, AnchorStorage::kWeights); });
    EXPECT_TRUE(contains(error, "[Test] the anchor of 'b' holds NaN or Inf")) << error;
  }
  auto selected = two();
  selected[0].pretrained.view(-1)[3] = 1e300;
  Displacements("Test", selected, Norm::kL2, AnchorStorage::kWeights);
  const auto error = error_of([&] { Displacements("Test", selected, Norm::kL2, AnchorStorage::kBFloat16); });
  EXPECT_TRUE(contains(error, "too large for bfloat16")) << error;
  EXPECT_TRUE(
      contains(error_of([] { Displacements("Test", {}, Norm::kL2, AnchorStorage::kWeights); }), "nothing"));
}

TEST_P(DisplacementsState, AnchorsAreCopiesAndHaveAFingerprint) {
  auto selected = two();
  const auto fingerprint = [&] {
    return Displacements("Test", selected, Norm::kL2, AnchorStorage::kWeights).anchor_fingerprint();
  };
  Displacements displacements("Test", selected, Norm::kL2, AnchorStorage::kWeights);
  const auto pretrained = selected[0].pretrained.clone();
  EXPECT_EQ(fingerprint(), displacements.anchor_fingerprint());
  selected[0].pretrained.view(-1)[0] += 1;
  EXPECT_TRUE(torch::equal(displacements.anchors()[0], pretrained))
      << "the anchor must not follow the original";
  EXPECT_NE(fingerprint(), displacements.anchor_fingerprint()) << "a value";
  selected[0].pretrained.copy_(pretrained);
  selected[0].name = "other";
  EXPECT_NE(fingerprint(), displacements.anchor_fingerprint()) << "a name";
}

TEST_P(DisplacementsState, AutogradNoticesAProjection) {
  for (const bool interpolate : {false, true}) {
    auto selected = every_layout(device(), torch::kDouble);
    Displacements displacements("Test", selected, Norm::kMars, AnchorStorage::kWeights);
    displacements.measure();
    const auto radii = inner(displacements);
    for (auto& each : selected) {
      if (each.tensor.numel() == 0) continue;
      const auto loss = each.tensor.square().sum();  // its gradient needs the values of now
      interpolate ? displacements.interpolate(radii) : displacements.project(radii);
      EXPECT_TRUE(contains(error_of([&] { loss.backward(); }), "modified by an inplace operation"))
          << each.name;
    }
  }
}

TEST_P(DisplacementsState, NumbersAndGradientsByName) {
  const auto selected = two();
  Displacements displacements("Test", selected, Norm::kL2, AnchorStorage::kWeights);
  const auto values = displacements.by_name(scalars({1.5, -2}));
  EXPECT_EQ(values["a"], 1.5);
  EXPECT_EQ(values["b"], -2);
  EXPECT_FALSE(displacements.gradients()[1].defined());
  selected[1].tensor.sum().backward();
  EXPECT_TRUE(displacements.gradients()[1].eq(1).all().item<bool>());
}

}  // namespace
}  // namespace tpgm::testing
