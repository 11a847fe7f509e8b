// The bookkeeping of batches and radii with nothing but vectors, as a binding without LibTorch would use it,
// against the method written out.
#include "tpgm/kernels/tensor_batch.h"

#include <cmath>
#include <deque>

#include "tests/support.h"
#include "tpgm/kernels/memory_layout.h"
#include "tpgm/kernels/radius_numbers.h"

namespace tpgm::kernels::test_tensor_batch {
namespace {

using Numbers = std::vector<double>;

// Memory that stays where it is.
struct Blocks {
  std::deque<std::vector<double>> blocks;

  Memory memory() {
    return [this](size_t bytes, const void* contents) -> void* {
      auto& block = blocks.emplace_back((bytes + sizeof(double) - 1) / sizeof(double));
      if (contents != nullptr) std::memcpy(block.data(), contents, bytes);
      return block.data();
    };
  }
};

void whole(int64_t n, const std::function<void(int64_t, int64_t)>& body) { body(0, n); }

// Matrices of float32 beside their anchors, one row of the first unmoved, and a row longer than a piece.
struct Model {
  std::vector<std::pair<int64_t, int64_t>> shapes = {{3, 4}, {1, 5}, {2, 9001}};
  std::vector<std::vector<float>> weights, anchor, other;

  Model() {
    float next = 0.37F;
    const auto draw = [&next] { return next = std::fmod(next * 7.13F + 0.11F, 2.F) - 1.F; };
    for (const auto& [rows, cols] : shapes) {
      for (auto* all : {&weights, &anchor, &other}) {
        all->emplace_back(static_cast<size_t>(rows * cols));
        for (auto& each : all->back()) each = draw();
      }
    }
    std::copy_n(anchor[0].begin(), 4, weights[0].begin());
  }
  int64_t rows(size_t k, Norm norm) const { return traits(norm).by_row ? shapes[k].first : 1; }
  std::vector<Layout> layouts(Norm norm) const {
    std::vector<Layout> result;
    for (size_t k = 0; k < shapes.size(); ++k)
      result.push_back({rows(k, norm), static_cast<int64_t>(weights[k].size()) / rows(k, norm),
                        DType::kFloat32, DType::kFloat32});
    return result;
  }
  std::vector<Operands> operands(std::vector<std::vector<float>>* third) {
    std::vector<Operands> result;
    for (size_t k = 0; k < shapes.size(); ++k)
      result.push_back({weights[k].data(), anchor[k].data(), third ? (*third)[k].data() : nullptr});
    return result;
  }
  float delta(size_t k, size_t i) const { return weights[k][i] - anchor[k][i]; }

  // Σ term(displacement, index) over each row.
  template <class Term>
  Numbers row_sums(size_t k, Norm norm, Term term) const {
    Numbers sums(static_cast<size_t>(rows(k, norm)));
    const size_t cols = weights[k].size() / sums.size();
    for (size_t i = 0; i < weights[k].size(); ++i) sums[i / cols] += term(double{delta(k, i)}, i);
    return sums;
  }
  Numbers distances(size_t k, Norm norm) const {
    switch (norm) {
      case Norm::kL2: {
        auto rows = row_sums(k, norm, [](double d, size_t) { return d * d; });
        for (auto& each : rows) each = std::sqrt(each);
        return rows;
      }
      case Norm::kMars:
      case Norm::kMarsMax:
        return row_sums(k, norm, [](double d, size_t) { return std::abs(d); });
    }
    return {};
  }
};

class Batches : public ::testing::TestWithParam<Norm> {
 protected:
  Norm norm() const { return GetParam(); }

  // The ratio of each row, from distances as they were measured.
  double ratio(size_t k, int64_t row, double radius) const {
    double n = measured[static_cast<size_t>(first_row(k) + row)];
    if (norm() == Norm::kMarsMax) n = measured[static_cast<size_t>(batch.largest_at()) + k];
    return n > 0 ? std::min(1.0, radius / n) : 0;
  }
  int64_t first_row(size_t k) const {
    int64_t first = 0;
    for (size_t i = 0; i < k; ++i) first += model.rows(i, norm());
    return first;
  }
  // anchor + ratio · Δ, or with a ratio of 1 the weights.
  void expect_projected(const std::vector<std::vector<float>>& actual, const Model& from,
                        const Numbers& radii) const {
    for (size_t k = 0; k < actual.size(); ++k) {
      const size_t cols = actual[k].size() / static_cast<size_t>(model.rows(k, norm()));
      for (size_t i = 0; i < actual[k].size(); ++i) {
        const double exact = ratio(k, static_cast<int64_t>(i / cols), radii[k]);
        const auto factor = static_cast<float>(exact);
        EXPECT_EQ(actual[k][i],
                  exact == 1 ? from.weights[k][i] : from.anchor[k][i] + factor * from.delta(k, i))
            << "tensor " << k << " element " << i;
        if (HasFailure()) return;
      }
    }
  }

  Model model;
  Blocks blocks;
  int32_t report = kAllFinite;
  TensorBatch batch{cpu(), model.layouts(norm()), norm(), &report, blocks.memory(), whole};
  Numbers measured = Numbers(static_cast<size_t>(batch.distances_size()), NAN);
};
std::string name_of(const ::testing::TestParamInfo<Norm>& info) {
  std::string name = traits(info.param).keyword;
  std::erase(name, '-');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Each, Batches, ::testing::ValuesIn(kNorms), name_of);

TEST_P(Batches, MeasureAndProject) {
  ASSERT_EQ(batch.tensors(), 3);
  ASSERT_EQ(batch.rows(), norm() == Norm::kL2 ? 3 : 6);
  auto copies = model.other;
  batch.measure(model.operands(&copies), measured.data(), nullptr);
  EXPECT_EQ(copies, model.weights);
  Numbers radii;
  for (size_t k = 0; k < 3; ++k) {
    const auto expected = model.distances(k, norm());
    for (size_t row = 0; row < expected.size(); ++row)
      EXPECT_NEAR(measured[static_cast<size_t>(first_row(k)) + row], expected[row], 1e-12 * expected[row]);
    const auto [least, most] = std::minmax_element(expected.begin(), expected.end());
    const double smallest = measured[static_cast<size_t>(batch.smallest_at()) + k],
                 largest = measured[static_cast<size_t>(batch.largest_at()) + k];
    EXPECT_NEAR(smallest, *least, 1e-12 * *least);
    EXPECT_NEAR(largest, *most, 1e-12 * *most);
    radii.push_back(0.35 * smallest + 0.6 * largest);
  }
  EXPECT_EQ(measured[static_cast<size_t>(batch.smallest_at())] == 0, norm() != Norm::kL2) << "a row unmoved";
  batch.project(model.operands(&copies), measured.data(), radii.data(), nullptr);
  expect_projected(copies, model, radii);

  Numbers again(measured.size(), NAN);
  auto at_once = model.other;
  batch.measure_and_project(model.operands(&at_once), again.data(), radii.data(), nullptr);
  EXPECT_EQ(at_once, copies);
  EXPECT_EQ(again, measured);

  const Model before = model;
  batch.project(model.operands(&model.weights), measured.data(), radii.data(), nullptr);
  EXPECT_EQ(model.weights, copies) << "in place";
  model.weights = before.weights;
  Numbers closest(static_cast<size_t>(batch.rows()));
  for (size_t row = 0; row < closest.size(); ++row) closest[row] = 0.5 * measured[row];
  batch.keep_away(closest.data());
  batch.project(model.operands(&copies), measured.data(), Numbers{0, 0, 0}.data(), nullptr);
  if (norm() != Norm::kMarsMax) {
    for (size_t k = 0; k < 3; ++k)
      for (size_t i = 0; i < copies[k].size(); ++i)
        ASSERT_FLOAT_EQ(copies[k][i], model.anchor[k][i] + 0.5F * model.delta(k, i));
  }
  EXPECT_EQ(report, kAllFinite);
}

TEST_P(Batches, GradientsOfRadii) {
  batch.measure(model.operands(nullptr), measured.data(), nullptr);
  const Numbers radii = {0.4, 0.6, 0.8};
  for (const auto rows : {Rows::kAll, Rows::kAtOrBeyond, Rows::kBeyond}) {
    Numbers result(3, NAN), at_once(3, NAN), now(measured.size(), NAN);
    batch.radius_gradients(model.operands(&model.other), measured.data(), radii.data(), rows, result.data(),
                           nullptr);
    batch.measure_radius_gradients(model.operands(&model.other), measured.data(), radii.data(), rows,
                                   now.data(), at_once.data(), nullptr);
    EXPECT_EQ(at_once, result);
    EXPECT_EQ(now, measured);
    for (size_t k = 0; k < 3; ++k) {
      auto n = model.distances(k, norm());
      if (norm() == Norm::kMarsMax) n.assign(n.size(), *std::max_element(n.begin(), n.end()));
      const auto dots =
          model.row_sums(k, norm(), [&](double d, size_t i) { return d * double{model.other[k][i]}; });
      double expected = 0;
      for (size_t row = 0; row < n.size(); ++row)
        if (n[row] > 0 && (rows == Rows::kAll || radii[k] < n[row])) expected += dots[row] / n[row];
      EXPECT_NEAR(result[k], expected, 1e-9) << k;
    }
  }
}

TEST_P(Batches, InterpolateAndAddDisplacements) {
  const Numbers ratios = {-0.5, 1, 1.7};
  auto result = model.other;
  batch.interpolate(model.operands(&result), ratios.data(), nullptr);
  auto gradients = model.other;
  batch.add_displacement(model.operands(&gradients), 0.3, nullptr);
  for (size_t k = 0; k < 3; ++k) {
    const auto ratio = static_cast<float>(ratios[k]);
    std::vector<float> vector(result[k].size());
    interpolate_vector(model.weights[k].data(), model.anchor[k].data(), vector.data(), ratios[k],
                       DType::kFloat32, static_cast<int64_t>(vector.size()));
    EXPECT_EQ(vector, result[k]);
    for (size_t i = 0; i < result[k].size(); ++i) {
      ASSERT_EQ(result[k][i], k == 1 ? model.weights[k][i] : model.anchor[k][i] + ratio * model.delta(k, i));
      ASSERT_EQ(gradients[k][i], model.other[k][i] + 0.3F * model.delta(k, i));
    }
  }
}

TEST_P(Batches, ReportWhatIsNotFinite) {
  const auto found = [&] { return decode(report, 3); };
  model.other[1][2] = NAN;
  batch.measure(model.operands(nullptr), measured.data(), nullptr);
  EXPECT_EQ(report, kAllFinite);
  batch.radius_gradients(model.operands(&model.other), measured.data(), Numbers(3, 0).data(), Rows::kAll,
                         Numbers(3).data(), nullptr);
  EXPECT_EQ(found().what, NotFinite::kGradient);
  EXPECT_EQ(found().tensor, 1);
  report = kAllFinite;
  model.weights[2][9001] = INFINITY;
  batch.measure(model.operands(nullptr), measured.data(), nullptr);
  EXPECT_EQ(found().what, NotFinite::kWeights);
  EXPECT_EQ(found().tensor, 2);
  auto copies = model.other;
  batch.project(model.operands(&copies), measured.data(), Numbers(3, 0).data(), nullptr);
  EXPECT_EQ(copies, model.weights) << "every ratio counts as 1";
}

TEST(FiniteCodes, WeightsComeFirstThenTheLossThenGradients) {
  EXPECT_LT(code_of_weights(6), code_of_loss(7));
  EXPECT_LT(code_of_loss(7), code_of_gradient(7, 0));
  EXPECT_LT(code_of_gradient(7, 6), kAllFinite);
  EXPECT_EQ(decode(code_of_weights(0), 7).what, NotFinite::kWeights);
  EXPECT_EQ(decode(code_of_weights(6), 7).tensor, 6);
  EXPECT_EQ(decode(code_of_weights(6), 7).what, NotFinite::kWeights);
  EXPECT_EQ(decode(code_of_loss(7), 7).what, NotFinite::kLoss);
  EXPECT_EQ(decode(code_of_gradient(7, 0), 7).what, NotFinite::kGradient);
  EXPECT_EQ(decode(code_of_gradient(7, 6), 7).tensor, 6);
}

TEST(MemoryLayout, KnowsDenseTensorsAsAtenDoes) {
  const auto random = [](at::IntArrayRef sizes) { return torch::randn(sizes); };
  const std::vector<torch::Tensor> tensors = {
      random({}),
      random({7}),
      random({0}),
      random({5, 0}),
      random({1, 9}),
      random({4, 1, 3}),
      random({6, 5, 3, 3}),
      random({6, 5, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast),
      random({9, 5}).t(),
      random({5, 6, 3, 3}).transpose(0, 1),
      random({5, 18}).slice(1, 2, 18, 2),
      random({20}).slice(0, 1, 20, 3),
      random({5, 18}).slice(0, 0, 1),
      random({5, 18}).slice(1, 0, 1),
      random({3, 1}).expand({3, 4}),
      random({1}).as_strided({1, 1}, {17, 5}),
      random({2, 3, 4}).permute({0, 2, 1}),
      random({2, 3, 4}).permute({2, 0, 1}),
      random({0, 3}).as_strided({0, 3}, {1, 7}),
  };
  for (const auto& tensor : tensors) {
    const Sizes sizes = tensor.sizes(), strides = tensor.strides();
    EXPECT_EQ(is_dense(sizes, strides), tensor.is_non_overlapping_and_dense())
        << tensor.sizes() << tensor.strides();
    for (const auto norm : kNorms) {
      const bool one = norm == Norm::kL2 || tensor.dim() < 2 || tensor.numel() == 0;
      EXPECT_EQ(rows_of(sizes, norm), one ? 1 : tensor.size(0));
      // Every row by itself is dense, and they follow each other.
      bool expected = tensor.is_non_overlapping_and_dense();
      if (expected && !one) {
        for (int64_t row = 0; row < tensor.size(0); ++row)
          expected = expected && tensor[row].is_non_overlapping_and_dense() &&
                     tensor[row].storage_offset() == row * tensor[0].numel();
      }
      EXPECT_EQ(rows_are_dense(sizes, strides, norm), expected) << tensor.sizes() << tensor.strides();
    }
    EXPECT_TRUE(same_order(sizes, strides, strides));
  }
  EXPECT_FALSE(same_order(tensors[6].sizes(), tensors[6].strides(), tensors[7].strides()));
  EXPECT_TRUE(same_order(Sizes(std::array<int64_t, 2>{1, 4}), Sizes(std::array<int64_t, 2>{4, 1}),
                         Sizes(std::array<int64_t, 2>{9, 1})));
}

// Radii of four tensors in two groups, with all their memory.
struct Table {
  explicit Table(const RadiusRule& rule)
      : rule(rule), radii(radii_cpu(), rule, groups, numbers.data(), &report, blocks.memory()) {}

  Numbers row(RadiiRow which) const {
    const auto begin = numbers.begin() + which * 4;
    return {begin, begin + 4};
  }

  const std::vector<std::string> groups = {"a", "b", "a", "a"};
  RadiusRule rule;
  Numbers numbers = Numbers(static_cast<size_t>(RadiusNumbers::size(groups)));
  int32_t report = kAllFinite;
  Blocks blocks;
  RadiusNumbers radii;
};

const Numbers kSmallest = {0.5, 2, 0, 1}, kLargest = {4, 2, 0, 5};

TEST(RadiusNumbers, StartAndAreClamped) {
  for (const bool relative : {false, true}) {
    Table half({.relative = relative}), eps({.start_at_half = false, .eps = 1e-3, .relative = relative});
    for (auto* table : {&half, &eps}) {
      table->radii.start(kSmallest.data(), kLargest.data(), nullptr);
      table->radii.clamp(kLargest.data(), nullptr);
      EXPECT_EQ(table->row(RadiiRow::kLargest), kLargest);
    }
    EXPECT_EQ(half.row(kRadius), (Numbers{0.25, 1, kLowestRadius, 0.5}));
    const auto at_eps = eps.row(kRadius);
    EXPECT_EQ(at_eps[2], kLowestRadius);
    for (const size_t k : {0, 1, 3}) EXPECT_NEAR(at_eps[k], 1e-3, 1e-18);
    EXPECT_EQ(half.row(kLearned)[0], relative ? 0.0625 : 0.25);
  }
  Table open({});
  open.radii.start(kSmallest.data(), kLargest.data(), nullptr);
  open.radii.clamp(nullptr, nullptr);
  EXPECT_EQ(open.row(kRadius), (Numbers{0.25, 1, kLowestRadius, 0.5}));
}

TEST(RadiusNumbers, MoveByAdamAlongTheLossAndItsPenalties) {
  const RadiusRule rule{.lr = 0.02, .mu = 0.3, .tv = 0.2};
  Table table(rule);
  table.radii.start(kSmallest.data(), kLargest.data(), nullptr);
  table.radii.clamp(kLargest.data(), nullptr);
  Numbers gamma = table.row(kRadius), m(4), v(4);
  for (int step = 1; step <= 20; ++step) {
    const Numbers loss = {0.3 - 0.05 * step, -0.7, 1, 0.1 * step};
    Numbers gradient(4);
    for (const size_t k : {0, 1, 3}) gradient[k] = loss[k] + 2 * rule.mu * gamma[k];
    // Tensor 2, between 0 and 3 in group a, has not moved: it is a neighbor, and pulls at neither.
    Numbers given(4, NAN);
    table.radii.gradient(loss.data(), kLargest.data(), given.data(), nullptr);
    for (size_t k = 0; k < 4; ++k) ASSERT_NEAR(given[k], gradient[k], 1e-12) << step << " " << k;
    table.radii.step(loss.data(), kLargest.data(), nullptr);
    table.radii.clamp(kLargest.data(), nullptr);
    for (size_t k = 0; k < 4; ++k) {
      m[k] = 0.9 * m[k] + 0.1 * gradient[k];
      v[k] = 0.999 * v[k] + 0.001 * gradient[k] * gradient[k];
      const double m_hat = m[k] / (1 - std::pow(0.9, step)), v_hat = v[k] / (1 - std::pow(0.999, step));
      gamma[k] -= rule.lr * m_hat / (std::sqrt(v_hat) + 1e-8);
      gamma[k] = std::max(std::min(gamma[k], kLargest[k]), 1e-8);
      ASSERT_NEAR(table.row(kRadius)[k], gamma[k], 1e-12) << step << " " << k;
    }
  }
}

TEST(RadiusNumbers, NeighborsInAGroupPullAtEachOther) {
  Table table({.tv = 0.5});
  const Numbers largest = {4, 2, 8, 5}, zero(4);
  table.radii.start(Numbers{2, 2, 2, 2}.data(), largest.data(), nullptr);  // γ = 1: ratios 1/4, 1/2, 1/8, 1/5
  table.radii.clamp(largest.data(), nullptr);
  Numbers given(4, NAN);
  table.radii.gradient(zero.data(), largest.data(), given.data(), nullptr);
  // d/dγ of 0.5 · (|α₂ − α₀| + |α₃ − α₂|) with α₀ > α₂ < α₃
  EXPECT_EQ(given, (Numbers{0.5 / 4, 0, -2 * 0.5 / 8, 0.5 / 5}));
}

TEST(RadiusNumbers, ComeBackToWhereTheyWereTold) {
  const Numbers along = {1, 1, 1, 1};
  Table table({});
  table.radii.start(kSmallest.data(), kLargest.data(), nullptr);
  table.radii.clamp(kLargest.data(), nullptr);
  table.radii.step(along.data(), kLargest.data(), nullptr);
  const auto move = [&] {
    table.radii.clamp(kLargest.data(), nullptr);
    table.radii.step(along.data(), kLargest.data(), nullptr);
  };
  const auto before = table.numbers;
  table.radii.remember();
  table.radii.restore(nullptr);
  EXPECT_EQ(table.numbers, before) << "nothing had moved";
  table.radii.remember();
  move(), move();
  EXPECT_NE(table.numbers, before);
  table.radii.restore(nullptr);
  EXPECT_EQ(table.numbers, before);

  table.radii.remember();
  move();
  table.report = code_of_weights(1);
  move();
  EXPECT_EQ(table.numbers, before) << "the report was not clean";

  Numbers elsewhere = {9, 9, 9, 9};  // whose owner looks at the report
  table.radii.learn_elsewhere(elsewhere.data());
  table.radii.clamp(kLargest.data(), nullptr);
  EXPECT_EQ(elsewhere, (Numbers{4, 2, kLowestRadius, 5}));
  EXPECT_EQ(table.row(kRadius), elsewhere);
}

}  // namespace
}  // namespace tpgm::kernels::test_tensor_batch
