// The kernels against ATen on every device, and what they promise beyond numbers: every element once, the
// same bits however the work is split, no write outside of the output or after something was not finite.
#include <random>
#include <thread>

#include "tests/kernels/call.h"

namespace tpgm::kernels::test_projection {
namespace {

// Radii of every kind: inside, outside, exactly at a row's distance, and smaller than all rows.
Tensor radii_for(const Call& call) {
  auto radii = torch::empty({static_cast<int64_t>(call.plan.tensors.size())}, torch::kDouble);
  for (size_t k = 0; k < call.plan.tensors.size(); ++k) {
    const auto rows = call.rows_of(k);
    const auto kind = k % 5;
    const auto middle = std::get<0>(rows.median(0)).item<double>();
    radii[static_cast<int64_t>(k)] = kind == 0   ? 2 * rows.max().item<double>()
                                     : kind == 1 ? rows.max().item<double>()
                                     : kind == 2 ? middle  // itself a row's distance
                                     : kind == 3 ? 0.7 * middle
                                                 : 1e-8;
  }
  return radii;
}

// What a projection or an addition may be away from ATen's: nothing on the CPU; on CUDA, which fuses the
// multiply and the add, a rounding or two.
void expect_written(const Tensor& actual, const Tensor& expected, const Item& item, size_t k) {
  ASSERT_EQ(actual.scalar_type(), expected.scalar_type());
  if (actual.device().is_cpu()) {
    EXPECT_TRUE(torch::equal(actual, expected)) << "tensor " << k;
    return;
  }
  constexpr double kEps[] = {2.3e-16, 1.2e-7, 9.8e-4, 7.9e-3};
  const auto scale = item.weights.to(torch::kDouble).abs() + item.anchor.to(torch::kDouble).abs() +
                     expected.to(torch::kDouble).abs();
  const auto away = (actual.cpu().to(torch::kDouble) - expected.to(torch::kDouble)).abs();
  EXPECT_TRUE((away <= kEps[static_cast<int>(item.layout.weights)] * scale).all().item<bool>())
      << "tensor " << k;
}

// On CUDA in another order where the third operand is not aligned, and vectors are narrower.
void expect_same_norms(const Call& actual, const Call& expected) {
  const double relative = actual.rows.is_cpu() ? 0 : 1e-12;
  EXPECT_TRUE(torch::allclose(actual.rows, expected.rows, relative, 0));
  EXPECT_TRUE(torch::allclose(actual.min, expected.min, relative, 0));
  EXPECT_TRUE(torch::allclose(actual.max, expected.max, relative, 0));
}

Tensor ratio_in_aten(const Tensor& norms, const Tensor& radius) {
  return torch::where(norms > 0, torch::clamp_max(radius / norms, 1.0), torch::zeros_like(norms));
}

// anchor + ratio · Δ as ATen computes it; rows with ratio 1 stay as they are.
Tensor projected_in_aten(const Item& item, const Tensor& ratios) {
  const auto ratio = ratios.reshape({-1, 1});
  const auto moved = (item.in_compute_type(item.anchor) + item.in_compute_type(ratio) * item.delta())
                         .to(item.weights.scalar_type());
  return torch::where(ratio == 1, item.weights, moved);
}

// Every function of the backend on `items`, against ATen; stops at the first tensor that is wrong.
void expect_like_aten(const std::vector<Item>& items, torch::Device device) {
  for (const auto norm : {RowNorm::kL2, RowNorm::kL1}) {
    Call call(items, device);
    call.measure(norm, Operand::kPoisoned);
    for (size_t k = 0; k < items.size(); ++k) {
      const auto delta = items[k].delta().to(torch::kDouble);
      const auto expected = norm == RowNorm::kL2 ? delta.square().sum(1).sqrt() : delta.abs().sum(1);
      EXPECT_TRUE(torch::allclose(call.rows_of(k), expected, 1e-12, 0)) << "tensor " << k;
      EXPECT_EQ(call.min[k].item<double>(), call.rows_of(k).min().item<double>());
      EXPECT_EQ(call.max[k].item<double>(), call.rows_of(k).max().item<double>());
      EXPECT_TRUE(torch::equal(call.operand[k].view.cpu(), items[k].weights)) << "copy of tensor " << k;
      call.expect_guards(k);
      if (::testing::Test::HasFailure()) return;
    }
    const auto radii = radii_for(call);
    for (const auto ratio_of : {RatioOf::kRow, RatioOf::kLargestRow}) {
      const auto norms_in = [&](const Tensor& all_rows, size_t k) {  // on the host
        const auto& tensor = call.plan.tensors[k];
        const auto rows = all_rows.narrow(0, tensor.first_row, tensor.layout.rows);
        return ratio_of == RatioOf::kRow ? rows : rows.max().expand_as(rows);
      };
      const auto call_rows = call.rows.cpu();
      const auto closest = 0.9 * call_rows.roll(1);  // of any length beside the radii and distances
      for (const auto& [mode, at_once] :
           {std::pair{Operand::kPoisoned, false}, std::pair{Operand::kWeights, false},
            std::pair{Operand::kPoisoned, true}, std::pair{Operand::kWeights, true}}) {
        Call fresh(items, device);
        if (at_once) {
          fresh.measure_and_project(norm, ratio_of, radii, mode, closest);
          expect_same_norms(fresh, call);
        } else {
          fresh.rows = call.rows, fresh.min = call.min, fresh.max = call.max;
          fresh.project(ratio_of, radii, mode);
        }
        const auto measured = fresh.rows.cpu();
        for (size_t k = 0; k < items.size(); ++k) {
          const auto& tensor = call.plan.tensors[k];
          const auto limit =
              at_once ? torch::clamp_min(closest.narrow(0, tensor.first_row, tensor.layout.rows), radii[k])
                      : radii[k].expand({tensor.layout.rows});
          const auto ratios = ratio_in_aten(norms_in(measured, k), limit);
          const auto& written = mode == Operand::kWeights ? fresh.weights[k] : fresh.operand[k];
          expect_written(written.view, projected_in_aten(items[k], ratios), items[k], k);
          fresh.expect_guards(k);
          if (::testing::Test::HasFailure()) return;
        }
      }
      for (const auto& [which, measured] :
           {std::pair{Rows::kAll, false}, std::pair{Rows::kAtOrBeyond, false},
            std::pair{Rows::kBeyond, false}, std::pair{Rows::kAll, true}, std::pair{Rows::kBeyond, true}}) {
        Call fresh(items, device), now(items, device);
        // Where they are measured in the same call, those that say which rows count are others.
        const double farther = measured ? 1.5 : 1;
        fresh.rows = farther * call.rows, fresh.min = farther * call.min, fresh.max = farther * call.max;
        const auto gradients = measured ? fresh.measure_radius_gradients(norm, ratio_of, which, radii, now)
                                        : fresh.radius_gradients(ratio_of, which, radii);
        if (measured) expect_same_norms(now, call);
        for (size_t k = 0; k < items.size(); ++k) {
          const auto norms = norms_in(call_rows, k), limits = farther * norms;
          const auto terms = items[k].gradient.to(torch::kDouble) * items[k].delta().to(torch::kDouble);
          const auto radius = radii[k];
          const auto counts = (norms > 0).logical_and(which == Rows::kAll          ? norms == norms
                                                      : which == Rows::kAtOrBeyond ? radius <= limits
                                                                                   : radius < limits);
          const auto weight = torch::where(counts, 1 / norms, torch::zeros_like(norms));
          EXPECT_NEAR(gradients[k].item<double>(), (terms.sum(1) * weight).sum().item<double>(),
                      1e-12 * (terms.abs().sum(1) * weight).sum().item<double>())
              << "tensor " << k;
          fresh.expect_guards(k);
          if (::testing::Test::HasFailure()) return;
        }
        EXPECT_EQ(fresh.radius_gradients(ratio_of, which, radii, Operand::kNull).abs().max().item<double>(),
                  0);
        EXPECT_EQ(fresh.measure_radius_gradients(norm, ratio_of, which, radii, now, Operand::kNull)
                      .abs()
                      .max()
                      .item<double>(),
                  0);
      }
    }
  }

  const auto ratios = torch::linspace(-0.5, 1.5, static_cast<int64_t>(items.size()), torch::kDouble);
  ratios[ratios.numel() / 2] = 1;
  for (const auto mode : {Operand::kPoisoned, Operand::kWeights}) {
    Call call(items, device);
    call.interpolate(ratios, mode);
    for (size_t k = 0; k < items.size(); ++k) {
      const auto& written = mode == Operand::kWeights ? call.weights[k] : call.operand[k];
      expect_written(written.view, projected_in_aten(items[k], ratios[k]), items[k], k);
      call.expect_guards(k);
      if (::testing::Test::HasFailure()) return;
    }
  }

  Call call(items, device);
  call.add_displacement(0.3);
  for (size_t k = 0; k < items.size(); ++k) {
    const auto& item = items[k];
    const auto factor = item.in_compute_type(torch::tensor(0.3, torch::kDouble));
    const auto expected = (item.in_compute_type(item.gradient) + factor * item.delta());
    expect_written(call.operand[k].view, expected.to(item.gradient.scalar_type()),
                   {item.layout, item.weights, item.gradient, {}, {}}, k);
    call.expect_guards(k);
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_EQ(call.code(), kAllFinite);
}

TEST(Plan, CoversEveryElementOnceInOrder) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    std::vector<Layout> layouts;
    for (int i = 0; i < 20; ++i) {
      const int64_t edge[] = {0, 1, 8191, 8192, 8193, 16384, 50000};
      const int64_t cols = random() % 3 ? static_cast<int64_t>(random() % 3000) : edge[random() % 7];
      layouts.push_back({cols == 0 ? 1 : 1 + static_cast<int64_t>(random() % 40), cols});
    }
    const auto plan = make_plan(layouts);
    ASSERT_EQ(plan.tensors.size(), layouts.size());
    int64_t rows = 0;
    size_t piece = 0;
    for (size_t k = 0; k < layouts.size(); ++k) {
      const auto& [layout, first_row, first_piece, pieces, per_row] = plan.tensors[k];
      ASSERT_EQ(first_row, rows);
      ASSERT_EQ(static_cast<size_t>(first_piece), piece);
      ASSERT_GE(pieces, 1);  // an empty tensor has one too, which writes its distance
      int64_t next = 0;
      for (int32_t i = 0; i < pieces; ++i, ++piece) {
        const auto& at = plan.pieces[piece];
        ASSERT_EQ(at.tensor, static_cast<int32_t>(k));
        ASSERT_EQ(at.begin, next);
        ASSERT_LE(at.size, 2 * 8192);  // enough for every block or thread to have work
        ASSERT_EQ(at.row, layouts[k].cols == 0 ? 0 : at.begin / layouts[k].cols);
        if (per_row == 1) {
          ASSERT_EQ(at.size, at.rows * layouts[k].cols);
        } else {
          ASSERT_EQ(at.rows, 1);
          ASSERT_EQ(i / per_row, at.row);
          ASSERT_LE(at.begin + at.size, (at.row + 1) * layouts[k].cols);
        }
        next += at.size;
      }
      ASSERT_EQ(next, layouts[k].rows * layouts[k].cols);
      rows += layouts[k].rows;
    }
    ASSERT_EQ(plan.pieces.size(), piece);
    ASSERT_EQ(plan.rows, rows);
  }
}

class Kernels : public testing::OnDevice {};
TPGM_ON_EVERY_DEVICE(Kernels);

TEST_P(Kernels, AgreeWithAtenInEveryTypeAndShape) {
  for (const auto& [weights, anchor] : kTypes) {
    SCOPED_TRACE(std::string(torch::toString(scalar_type(weights))) + ", anchor " +
                 torch::toString(scalar_type(anchor)));
    expect_like_aten(random_items(many_shapes(weights, anchor), 1), device());
  }
}

TEST_P(Kernels, AgreeWithAtenOnMoreTensorsThanOneLaunchTakes) {
  expect_like_aten(random_items(many_tensors(), 2), device());
}

TEST_P(Kernels, TakeBFloat16BesideFloat32Weights) {
  for (const auto anchor : {DType::kFloat32, DType::kBFloat16}) {
    auto items = random_items(many_shapes(DType::kFloat32, anchor), 3);
    for (size_t k = 0; k < items.size(); ++k)
      if (k % 7 != 6) items[k].gradient = items[k].gradient.to(torch::kBFloat16);  // some are as ever
    for (const bool at_once : {false, true}) {
      SCOPED_TRACE(at_once ? "measured on the way" : "measured before");
      Call call(items, device()), now(items, device());
      call.measure(RowNorm::kL1);
      const auto radii = radii_for(call);
      const auto gradients =
          at_once ? call.measure_radius_gradients(RowNorm::kL1, RatioOf::kRow, Rows::kAll, radii, now)
                  : call.radius_gradients(RatioOf::kRow, Rows::kAll, radii);
      at_once ? call.measure_and_project(RowNorm::kL1, RatioOf::kRow, radii, Operand::kPoisoned)
              : call.project(RatioOf::kRow, radii, Operand::kPoisoned);
      for (size_t k = 0; k < items.size(); ++k) {
        const auto norms = call.rows_of(k);
        const auto terms = items[k].gradient.to(torch::kDouble) * items[k].delta().to(torch::kDouble);
        const auto weight = torch::where(norms > 0, 1 / norms, torch::zeros_like(norms));
        EXPECT_NEAR(gradients[k].item<double>(), (terms.sum(1) * weight).sum().item<double>(),
                    1e-12 * (terms.abs().sum(1) * weight).sum().item<double>())
            << "tensor " << k;
        const auto projected =
            projected_in_aten(items[k], ratio_in_aten(norms, radii[k])).to(items[k].gradient);
        auto coarse = items[k];
        if (projected.scalar_type() == torch::kBFloat16) coarse.layout.weights = DType::kBFloat16;
        expect_written(call.operand[k].view, projected, coarse, k);
        call.expect_guards(k);
      }
    }
  }
}

TEST_P(Kernels, TwoRunsAgreeBitForBit) {
  const auto items = random_items(many_shapes(DType::kFloat32, DType::kFloat32), 4);
  Call a(items, device()), b(items, device());
  for (auto* call : {&a, &b}) call->measure(RowNorm::kL1);
  EXPECT_TRUE(torch::equal(a.rows, b.rows));
  const auto radii = radii_for(a);
  EXPECT_TRUE(torch::equal(a.radius_gradients(RatioOf::kRow, Rows::kAll, radii),
                           b.radius_gradients(RatioOf::kRow, Rows::kAll, radii)));
  for (auto* call : {&a, &b}) call->project(RatioOf::kRow, radii, Operand::kWeights);
  for (size_t k = 0; k < items.size(); ++k) EXPECT_TRUE(torch::equal(a.weights[k].view, b.weights[k].view));
}

TEST_P(Kernels, RowsAtNoDistanceBecomeTheAnchor) {
  // So near that the square of the displacement underflows: n = 0, though the weights are not the anchor.
  const auto anchor = torch::full({1, 5}, 1e-180, torch::kDouble);
  const Layout layout{1, 5, DType::kFloat64, DType::kFloat64};
  const std::vector<Item> items = {{layout, 2 * anchor, anchor, torch::ones_like(anchor), {0, 0, 0}}};
  Call call(items, device());
  call.measure(RowNorm::kL2);
  EXPECT_EQ(call.max.item<double>(), 0);
  const auto radius = torch::full({1}, 1e-8, torch::kDouble);
  EXPECT_EQ(call.radius_gradients(RatioOf::kRow, Rows::kAll, radius).item<double>(), 0);
  call.project(RatioOf::kRow, radius, Operand::kWeights);
  EXPECT_TRUE(torch::equal(call.weights[0].view.cpu(), anchor));
  EXPECT_EQ(call.code(), kAllFinite);
}

TEST_P(Kernels, ReportTheFirstTensorThatIsNotFinite) {
  auto items = random_items(many_tensors(), 5);
  const auto count = static_cast<int32_t>(items.size());
  const auto damage = [](Tensor& tensor, double value) { tensor.view(-1)[-1] = value; };
  for (const auto norm : {RowNorm::kL2, RowNorm::kL1}) {
    Call call(items, device());
    damage(call.weights[1250].view, NAN);
    damage(call.weights[1200].view, -INFINITY);  // a tensor of rows longer than a piece
    call.measure(norm);
    EXPECT_EQ(call.code(), 1200);
    damage(call.anchor[7].view, INFINITY);
    call.measure(norm);
    EXPECT_EQ(call.code(), 7);
    call.measure(norm);
    EXPECT_EQ(call.code(), 7) << "only the caller resets it";
    call.report.fill_(kAllFinite);
    Call now(items, device());
    const auto radii = torch::ones({count}, torch::kDouble);
    call.measure_radius_gradients(norm, RatioOf::kRow, Rows::kAll, radii, now);
    EXPECT_EQ(call.code(), 7);
    call.report.fill_(kAllFinite);
    call.measure_and_project(norm, RatioOf::kRow, radii, Operand::kPoisoned);
    EXPECT_EQ(call.code(), 7);
    for (const int k : {1250, 1200}) {
      EXPECT_TRUE(
          torch::equal(call.operand[k].view[-1].nan_to_num(7), call.weights[k].view[-1].nan_to_num(7)))
          << "a row that is not finite keeps its weights, tensor " << k;
    }
  }
  for (const double value : {static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    Call call(items, device());
    call.measure(RowNorm::kL1);
    damage(call.operand[1290].view, value);
    damage(call.operand[1280].view, value);
    const auto radii = torch::ones({count}, torch::kDouble);
    call.radius_gradients(RatioOf::kRow, Rows::kBeyond, radii);
    EXPECT_EQ(call.code(), count + 1 + 1280);
    call.report.fill_(kAllFinite);
    Call now(items, device());
    call.measure_radius_gradients(RowNorm::kL1, RatioOf::kRow, Rows::kBeyond, radii, now);
    EXPECT_EQ(call.code(), count + 1 + 1280);
    call.report.fill_(kAllFinite);
    call.add_displacement(1.0);
    EXPECT_EQ(call.code(), count + 1 + 1280);
  }
}

TEST_P(Kernels, WriteNothingAfterSomethingWasNotFinite) {
  const auto items = random_items(many_shapes(DType::kFloat32, DType::kBFloat16), 6);
  const auto half = torch::full({static_cast<int64_t>(items.size())}, 0.5, torch::kDouble);
  Call call(items, device());
  call.measure(RowNorm::kL1);
  call.report.fill_(1);
  const auto expect_untouched = [&](const char* what) {
    for (size_t k = 0; k < items.size(); ++k)
      EXPECT_TRUE(torch::equal(call.weights[k].view.cpu(), items[k].weights)) << what << ", tensor " << k;
  };
  call.project(RatioOf::kRow, half, Operand::kWeights);
  call.interpolate(half, Operand::kWeights);
  call.measure_and_project(RowNorm::kL1, RatioOf::kRow, half, Operand::kWeights);
  expect_untouched("in place");
  call.add_displacement(1.0);
  for (size_t k = 0; k < items.size(); ++k)
    EXPECT_TRUE(torch::equal(call.operand[k].view.cpu(), items[k].gradient)) << "gradient " << k;
  for (const bool project : {true, false}) {  // elsewhere: the weights as they are
    project ? call.project(RatioOf::kLargestRow, half, Operand::kPoisoned)
            : call.interpolate(half, Operand::kPoisoned);
    for (size_t k = 0; k < items.size(); ++k)
      EXPECT_TRUE(torch::equal(call.operand[k].view.cpu(), items[k].weights)) << "tensor " << k;
  }
  expect_untouched("elsewhere");
  EXPECT_EQ(call.code(), 1);
}

// [0, n) in runs of n / parts, each on a thread of its own.
Split on_threads(int64_t parts) {
  return [parts](int64_t n, const auto& body) {
    std::vector<std::thread> threads;
    for (int64_t i = 0; i < parts; ++i)
      threads.emplace_back([&body, n, parts, i] { body(n * i / parts, n * (i + 1) / parts); });
    for (auto& thread : threads) thread.join();
  };
}

// One piece at a time, from the last to the first.
void backwards(int64_t n, const std::function<void(int64_t, int64_t)>& body) {
  for (; n > 0; --n) body(n - 1, n);
}

TEST(CpuKernels, PairSumsAgreeWithAten) {
  const auto total = [](const at::Tensor& x) { return x.sum().item<double>(); };
  for (const auto& [dtype, type] :
       {std::pair{DType::kFloat64, at::kDouble}, std::pair{DType::kFloat32, at::kFloat},
        std::pair{DType::kFloat16, at::kHalf}, std::pair{DType::kBFloat16, at::kBFloat16}}) {
    for (const int64_t n : {0, 1, 15, 16, 17, 1000, 70001}) {
      const auto weights = at::randn({n}).to(type), anchor = at::randn({n}).to(type);
      const auto sums = pair_sums(weights.const_data_ptr(), anchor.const_data_ptr(), dtype, n);
      const auto w = weights.to(at::kDouble), a = anchor.to(at::kDouble);
      const double tolerance = 1e-12 * static_cast<double>(n + 1);
      EXPECT_NEAR(sums.difference_squared, total((w - a).square()), tolerance);
      EXPECT_NEAR(sums.difference_absolute, total((w - a).abs()), tolerance);
      EXPECT_NEAR(sums.weights_squared, total(w.square()), tolerance);
      EXPECT_NEAR(sums.anchor_squared, total(a.square()), tolerance);
      EXPECT_NEAR(sums.product, total(w * a), tolerance);
    }
  }
}

TEST(CpuKernels, CopyTheWeightsWhereThereIsSomewhereToCopyThemTo) {
  const auto items = random_items(many_shapes(DType::kFloat32, DType::kFloat32), 8);
  Call call(items, torch::Device("cpu"));
  call.measure(RowNorm::kL1, Operand::kEverySecond);
  for (size_t k = 0; k < items.size(); ++k) {
    const auto& copy = call.operand[k].view;
    EXPECT_TRUE(k % 2 == 0 ? copy.isnan().all().item<bool>() : torch::equal(copy, items[k].weights)) << k;
  }
}

TEST(CpuKernels, GiveTheSameBitsHoweverTheWorkIsSplit) {
  const auto cpu = torch::Device("cpu");
  for (const auto& [weights, anchor] : kTypes) {
    const auto items = random_items(many_shapes(weights, anchor), 7);
    const auto all = [&](const Split& split) {
      Call call(items, cpu, split);
      call.measure(RowNorm::kL2);
      std::vector<Tensor> result{call.rows.clone(), call.min.clone(), call.max.clone()};
      call.measure(RowNorm::kL1);
      result.insert(result.end(), {call.rows, call.min, call.max});
      const auto radii = radii_for(call);
      result.push_back(call.radius_gradients(RatioOf::kRow, Rows::kAtOrBeyond, radii));
      Call now(items, cpu, split);
      result.push_back(
          call.measure_radius_gradients(RowNorm::kL2, RatioOf::kRow, Rows::kAtOrBeyond, radii, now).clone());
      result.push_back(now.rows);
      call.add_displacement(0.5);
      now.measure_and_project(RowNorm::kL1, RatioOf::kRow, radii, Operand::kWeights);
      call.project(RatioOf::kRow, radii, Operand::kWeights);
      for (const auto& each : now.weights) result.push_back(each.view);
      for (size_t k = 0; k < items.size(); ++k) {
        result.push_back(call.weights[k].view);
        result.push_back(call.operand[k].view);
      }
      return result;
    };
    const auto expected = all(whole);
    for (const auto& split : {Split(backwards), on_threads(2), on_threads(7)}) {
      const auto actual = all(split);
      for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_TRUE(torch::equal(actual[i], expected[i])) << "result " << i;
    }
  }
}

}  // namespace
}  // namespace tpgm::kernels::test_projection
