// Distances of two checkpoints against ATen in double.
#include "tpgm/checkpoints/compare.h"

#include <atomic>
#include <cmath>
#include <map>

#include "files.h"
#include "tpgm/base/names.h"
#include "tpgm/checkpoints/arithmetic.h"

namespace tpgm::test_compare {
namespace {

using namespace test;
namespace fs = std::filesystem;

// Equal but for the order of the sum; NaN equals NaN.
::testing::AssertionResult near(double actual, double expected) {
  if (actual == expected || (std::isnan(actual) && std::isnan(expected)) ||
      std::abs(actual - expected) <= 1e-9 * std::abs(expected)) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << actual << ", expected " << expected;
}

double l2_of(const at::Tensor& tensor) { return tensor.pow(2).sum().sqrt().item<double>(); }

struct Expected {
  double l2, mars, relative, cosine;
};

Expected expected_of(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor from = in_double(a), to = in_double(b);
  at::Tensor size = (to - from).abs();
  if (a.is_complex() || b.is_complex()) size = (b.to(at::kComplexDouble) - a.to(at::kComplexDouble)).abs();
  Expected expected{};
  expected.l2 = l2_of(size);
  expected.mars = size.numel() == 0 ? 0
                  : size.dim() < 2  ? size.sum().item<double>()
                                    : size.flatten(1).sum(1).max().item<double>();
  expected.relative = expected.l2 == 0 ? 0 : expected.l2 / l2_of(from);
  expected.cosine = (from * to).sum().item<double>() / l2_of(from) / l2_of(to);
  return expected;
}

class Compare : public test::Checkpoints {
 protected:
  Comparison compare(const NamedTensors& a, const NamedTensors& b) {
    return compare_checkpoints(save("a.safetensors", a), save("b.safetensors", b));
  }
  void check(const NamedTensors& a, const NamedTensors& b) {
    const Comparison comparison = compare(a, b);
    ASSERT_EQ(comparison.tensors.size(), a.size());
    for (const auto& each : comparison.tensors) {
      const auto expected = expected_of(a[each.name], b[each.name]);
      EXPECT_EQ(at::IntArrayRef(each.shape), a[each.name].sizes()) << each.name;
      EXPECT_EQ(each.numel, a[each.name].numel()) << each.name;
      EXPECT_EQ(each.block, block_name(each.name).empty() ? each.name : block_name(each.name));
      EXPECT_TRUE(near(each.l2, expected.l2)) << "l2 of " << each.name;
      EXPECT_TRUE(near(each.mars, expected.mars)) << "mars of " << each.name;
      EXPECT_TRUE(near(each.relative, expected.relative)) << "relative of " << each.name;
      if (std::isnan(expected.cosine)) {
        EXPECT_TRUE(std::isnan(each.cosine)) << each.name;
      } else {
        EXPECT_NEAR(each.cosine, expected.cosine, 1e-9) << each.name;
      }
    }
  }
};

const std::vector<std::vector<int64_t>> kShapes{
    {},     {1},    {37},      {5, 7},       {4, 3, 2},       {2, 3, 4, 5},       {1, 1000}, {1000, 1},  {0},
    {0, 4}, {4, 0}, {700'001}, {3, 600'011}, {2, 2, 1 << 18}, {5, (1 << 18) + 1}, {1 << 18}, {3000, 301}};

TEST_F(Compare, EveryShape) {
  NamedTensors a, b;
  for (size_t i = 0; i < kShapes.size(); ++i) {
    a.insert(std::to_string(i) + ".w", random_tensor(kShapes[i]));
    b.insert(std::to_string(i) + ".w", a[std::to_string(i) + ".w"] + 0.01 * random_tensor(kShapes[i]));
  }
  check(a, b);
}

TEST_F(Compare, EveryPairOfTypes) {
  const std::vector<at::ScalarType> dtypes{at::kDouble,        at::kFloat,       at::kHalf,  at::kBFloat16,
                                           at::kFloat8_e4m3fn, at::kFloat8_e5m2, at::kLong,  at::kChar,
                                           at::kByte,          at::kBool,        at::kUInt16};
  NamedTensors a, b;
  for (const auto from : dtypes) {
    for (const auto to : dtypes) {
      const auto name = std::string(c10::toString(from)) + " " + c10::toString(to);
      a.insert(name, random_tensor({13, 11}, from));
      b.insert(name, random_tensor({13, 11}, to));
    }
  }
  check(a, b);
}

TEST_F(Compare, ComplexNumbers) {
  check(
      {{"w", random_tensor({3, 5}, at::kComplexFloat)}, {"v", random_tensor({400'000}, at::kComplexFloat)}},
      {{"w", random_tensor({3, 5}, at::kComplexFloat)}, {"v", random_tensor({400'000}, at::kComplexFloat)}});
}

TEST_F(Compare, ComplexNumbersWithRealOnes) {
  const NamedTensors complex{{"w", random_tensor({3, 5}, at::kComplexFloat)}},
      real{{"w", random_tensor({3, 5})}};
  const NamedTensors widened{{"w", real["w"].to(at::kComplexFloat)}};
  for (const bool turned : {false, true}) {
    const auto expected =
        turned ? expected_of(widened["w"], complex["w"]) : expected_of(complex["w"], widened["w"]);
    const auto result = turned ? compare(real, complex) : compare(complex, real);
    ASSERT_EQ(result.tensors.size(), 1U);
    EXPECT_TRUE(near(result.tensors[0].l2, expected.l2)) << turned;
    EXPECT_TRUE(near(result.tensors[0].relative, expected.relative)) << turned;
  }
}

TEST_F(Compare, UnchangedIsBitForBit) {
  at::Tensor zero = at::zeros({3}), minus_zero = -at::zeros({3}), moved = at::ones({400'000});
  const at::Tensor ones = moved.clone();
  moved[399'999] = 1.0F + 0x1p-20F;
  const Comparison comparison = compare({{"same", ones},
                                         {"moved", ones},
                                         {"zero", zero},
                                         {"wider", at::ones({3}, at::kHalf)},
                                         {"rounded", at::full({3}, 0.1, at::kHalf)},
                                         {"empty", at::empty({0})},
                                         {"int", at::ones({2}, at::kLong)}},
                                        {{"same", ones},
                                         {"moved", moved},
                                         {"zero", minus_zero},
                                         {"wider", at::ones({3})},
                                         {"rounded", at::full({3}, 0.1)},
                                         {"empty", at::empty({0})},
                                         {"int", at::full({2}, 2, at::kLong)}});
  std::map<std::string, TensorDistance> by_name;
  for (const auto& each : comparison.tensors) by_name[each.name] = each;
  EXPECT_TRUE(by_name["same"].unchanged && by_name["wider"].unchanged && by_name["empty"].unchanged);
  EXPECT_FALSE(by_name["moved"].unchanged || by_name["zero"].unchanged || by_name["rounded"].unchanged ||
               by_name["int"].unchanged);
  EXPECT_EQ(by_name["zero"].l2, 0);  // not the same bits, but no distance
  EXPECT_EQ(by_name["zero"].relative, 0);
  EXPECT_TRUE(std::isnan(by_name["zero"].cosine));
  EXPECT_EQ(by_name["moved"].l2, 0x1p-20);
  EXPECT_EQ(by_name["moved"].mars, 0x1p-20);
  EXPECT_NEAR(by_name["same"].cosine, 1, 1e-12);
}

TEST_F(Compare, FromZeroEverythingIsInfinitelyFar) {
  const auto result = compare({{"w", at::zeros({4})}}, {{"w", at::ones({4})}});
  EXPECT_EQ(result.tensors[0].l2, 2);
  EXPECT_EQ(result.tensors[0].relative, INFINITY);
  EXPECT_TRUE(std::isnan(result.tensors[0].cosine));
  EXPECT_EQ(result.all.relative, INFINITY);
}

TEST_F(Compare, NaNIsNotLost) {
  for (const auto& [row, column] : std::vector<std::pair<int64_t, int64_t>>{{0, 0}, {1, 299'999}, {2, 5}}) {
    at::Tensor a = at::ones({3, 300'000}), b = at::ones({3, 300'000});
    b[row][column] = NAN;
    b[(row + 1) % 3][7] = 3;
    const auto result = compare({{"0.w", a}, {"0.v", at::zeros({2})}, {"1.w", at::ones({1})}},
                                {{"0.w", b}, {"0.v", at::ones({2})}, {"1.w", at::zeros({1})}});
    for (const auto& each : result.tensors) EXPECT_EQ(std::isnan(each.l2), each.name == "0.w") << each.name;
    const auto& tensor = *std::find_if(result.tensors.begin(), result.tensors.end(),
                                       [](const auto& each) { return each.name == "0.w"; });
    EXPECT_TRUE(std::isnan(tensor.mars) && std::isnan(tensor.relative) && std::isnan(tensor.cosine));
    EXPECT_FALSE(tensor.unchanged);
    ASSERT_EQ(result.blocks.size(), 2U);
    EXPECT_TRUE(std::isnan(result.blocks[0].l2) && std::isnan(result.blocks[0].mars));
    EXPECT_EQ(result.blocks[1].l2, 1);
    EXPECT_TRUE(std::isnan(result.all.l2) && std::isnan(result.all.mars));
  }
}

// A mask of -∞ in a checkpoint must not make everything NaN.
TEST_F(Compare, WhatIsNotFiniteAndHasNotMovedIsNoDistance) {
  at::Tensor mask = at::zeros({4});
  mask[1] = -INFINITY;
  mask[2] = NAN;
  const auto result =
      compare({{"0.mask", mask}, {"0.w", at::ones({4})}}, {{"0.mask", mask}, {"0.w", at::zeros({4})}});
  for (const auto& each : result.tensors) {
    EXPECT_EQ(each.unchanged, each.name == "0.mask");
    EXPECT_EQ(each.l2, each.unchanged ? 0 : 2) << each.name;
    EXPECT_EQ(each.mars, each.unchanged ? 0 : 4) << each.name;
  }
  for (const auto& block : {result.blocks[0], result.all}) {
    EXPECT_EQ(block.l2, 2);
    EXPECT_EQ(block.mean_l2, 1);
    EXPECT_EQ(block.mars, 4);
  }
}

TEST_F(Compare, BlocksAreTheirParametersAsOneVector) {
  NamedTensors a, b;
  for (const std::string name :
       {"conv1.weight", "layer1.0.conv1.weight", "layer1.0.conv1.bias", "layer1.10.conv1.weight",
        "layer1.2.conv1.weight", "layer1.2.bn1.weight", "fc.weight", "fc.bias"}) {
    a.insert(name, random_tensor({20, 30}));
    b.insert(name, random_tensor({20, 30}));
  }
  for (auto* each : {&a, &b}) {  // buffers
    each->insert("layer1.2.bn1.running_mean", random_tensor({20}));
    each->insert("layer1.2.bn1.running_var", 1e6 * random_tensor({20}));
    each->insert("layer1.2.bn1.num_batches_tracked", random_tensor({}, at::kLong));
    each->insert("position_ids", random_tensor({7}, at::kLong));
    each->insert("visible", random_tensor({7}, at::kBool));
  }
  const Comparison comparison = compare(a, b);
  std::map<std::string, std::vector<const TensorDistance*>> members;
  size_t buffers = 0;
  for (const auto& each : comparison.tensors) {
    const bool buffer =
        contains(each.name, "running_") || at::isIntegralType(a[each.name].scalar_type(), true);
    EXPECT_EQ(each.buffer, buffer) << each.name;
    buffers += buffer ? 1 : 0;
    if (!buffer) {
      members[each.block].push_back(&each);
      members["all"].push_back(&each);
    }
  }
  EXPECT_EQ(buffers, 5U);
  std::vector<std::string> names;
  for (const auto& block : comparison.blocks) names.push_back(block.name);
  EXPECT_EQ(names, (std::vector<std::string>{"conv1", "layer1.0", "layer1.2", "layer1.10", "fc"}));
  auto blocks = comparison.blocks;
  blocks.push_back(comparison.all);
  blocks.back().name = "all";
  for (const auto& block : blocks) {
    at::Tensor from, to;
    std::vector<at::Tensor> froms, tos;
    double l2 = 0, mars = 0;
    int64_t numel = 0;
    for (const auto* each : members[block.name]) {
      froms.push_back(in_double(a[each->name]).flatten());
      tos.push_back(in_double(b[each->name]).flatten());
      l2 += l2_of(tos.back() - froms.back());
      mars = std::max(mars, expected_of(a[each->name], b[each->name]).mars);
      numel += each->numel;
    }
    from = at::cat(froms);
    to = at::cat(tos);
    EXPECT_EQ(block.tensors, static_cast<int64_t>(froms.size())) << block.name;
    EXPECT_EQ(block.numel, numel) << block.name;
    EXPECT_TRUE(near(block.l2, l2_of(to - from))) << block.name;
    EXPECT_TRUE(near(block.mean_l2, l2 / static_cast<double>(froms.size()))) << block.name;
    EXPECT_TRUE(near(block.mars, mars)) << block.name;
    EXPECT_TRUE(near(block.relative, l2_of(to - from) / l2_of(from))) << block.name;
  }
}

TEST_F(Compare, BlocksComeByDepth) {
  NamedTensors tensors;
  for (const std::string name :
       {"visual.ln_post.weight", "visual.transformer.resblocks.10.w", "visual.transformer.resblocks.9.w",
        "visual.conv1.weight", "visual.ln_pre.weight", "visual.class_embedding.x", "encoder_layer_3.w"}) {
    tensors.insert(name, at::ones({1}));
  }
  std::vector<std::string> names;
  for (const auto& block : compare(tensors, tensors).blocks) names.push_back(block.name);
  EXPECT_EQ(names, (std::vector<std::string>{"visual.class_embedding", "visual.conv1", "visual.ln_pre",
                                             "encoder_layer_3", "visual.transformer.resblocks.9",
                                             "visual.transformer.resblocks.10", "visual.ln_post"}));
}

TEST_F(Compare, MissingReshapedAndSelected) {
  const NamedTensors a{{"x.w", at::ones({2})},
                       {"old.w", at::ones({2})},
                       {"head.w", at::ones({10, 2})},
                       {"y", at::ones({2, 1})}},
      b{{"x.w", at::ones({2})},
        {"new.w", at::ones({2})},
        {"head.w", at::ones({3, 2})},
        {"y", at::ones({1, 2})}};
  const auto pre = save("a.safetensors", a), ft = save("b.safetensors", b);
  const Comparison all = compare_checkpoints(pre, ft);
  ASSERT_EQ(all.tensors.size(), 1U);
  EXPECT_EQ(all.tensors[0].name, "x.w");
  EXPECT_EQ(all.only_a, std::vector<std::string>{"old.w"});
  EXPECT_EQ(all.only_b, std::vector<std::string>{"new.w"});
  ASSERT_EQ(all.reshaped.size(), 2U);
  EXPECT_EQ(all.reshaped[0].name, "head.w");
  EXPECT_EQ(all.reshaped[0].a, (std::vector<int64_t>{10, 2}));
  EXPECT_EQ(all.reshaped[0].b, (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(all.reshaped[1].name, "y");  // as many elements, another shape

  const Comparison some = compare_checkpoints(pre, ft, {"*.w"}, {"head.*", "new.*"});
  EXPECT_EQ(some.tensors.size(), 1U);
  EXPECT_TRUE(some.reshaped.empty() && some.only_b.empty());
  EXPECT_EQ(some.only_a.size(), 1U);
  EXPECT_TRUE(contains(error_of([&] { compare_checkpoints(pre, ft, {"z.*"}); }),
                       "`only` 'z.*' matches no parameter"));
  EXPECT_TRUE(
      contains(error_of([&] { compare_checkpoints(pre, ft, {}, {"z.*"}); }), "`exclude` 'z.*' matches no"));

  const Comparison nothing = compare(NamedTensors(), NamedTensors());
  EXPECT_TRUE(nothing.tensors.empty() && nothing.blocks.empty());
  EXPECT_EQ(nothing.all.tensors, 0);
  EXPECT_EQ(nothing.all.mean_l2, 0);
}

TEST_F(Compare, PrefixesAreAligned) {
  const auto one = [](const std::string& prefix) {
    return NamedTensors{{prefix + "x", at::ones({2})}, {prefix + "y", at::ones({2})}};
  };
  NamedTensors with_head = one("backbone.");
  with_head.insert("head", at::ones({2}));
  for (const auto& [a, b, common] : std::vector<std::tuple<NamedTensors, NamedTensors, std::string>>{
           {one("module."), one(""), "x"},
           {one(""), one("module."), "x"},
           {one("module."), one("_orig_mod."), "x"},
           {one("backbone."), with_head, "backbone.x"},
           {with_head, one("module.backbone."), "backbone.x"}}) {
    const Comparison comparison = compare(a, b);
    ASSERT_EQ(comparison.tensors.size(), 2U) << a.keys() << b.keys();
    EXPECT_EQ(comparison.tensors[0].name, common);
    EXPECT_EQ(comparison.only_a.size() + comparison.only_b.size(),
              a.contains("head") || b.contains("head") ? 1U : 0U);
  }
}

TEST_F(Compare, StridedFilesAndTheirPlainCopies) {
  for (const std::string name :
       {"zip_views", "legacy_views", "zip_shapes", "legacy_shapes", "script_half", "zip_dtypes"}) {
    const Checkpoint strided(golden("torch/" + name + ".pt")),
        plain(golden("torch/" + name + ".expected.safetensors"));
    const Comparison comparison = compare_checkpoints(strided, plain);
    EXPECT_GT(comparison.tensors.size(), 2U);
    for (const auto& each : comparison.tensors) EXPECT_TRUE(each.unchanged) << name << " " << each.name;
  }
}

TEST_F(Compare, ThreadsDoNotChangeADigit) {
  const NamedTensors a{{"0.w", random_tensor({3, 600'000})}, {"1.w", random_tensor({2000, 700}, at::kHalf)}},
      b{{"0.w", random_tensor({3, 600'000})}, {"1.w", random_tensor({2000, 700}, at::kHalf)}};
  const auto pre = save("a.safetensors", a), ft = save("b.safetensors", b);
  std::vector<double> first;
  for (const int threads : {1, 2, 5}) {
    at::set_num_threads(threads);
    std::atomic<size_t> done = 0;
    const Comparison comparison = compare_checkpoints(pre, ft, {}, {}, [&](size_t bytes) { done += bytes; });
    EXPECT_EQ(done, 2 * (a["0.w"].nbytes() + a["1.w"].nbytes()));
    std::vector<double> numbers{comparison.all.l2, comparison.all.mars, comparison.all.relative,
                                comparison.all.mean_l2};
    for (const auto& each : comparison.tensors) {
      numbers.insert(numbers.end(), {each.l2, each.mars, each.relative, each.cosine});
    }
    if (first.empty()) first = numbers;
    EXPECT_EQ(numbers, first) << threads;
  }
}

TEST_F(Compare, NumbersInNamesAreOrderedAsNumbers) {
  std::vector<std::string> names{"",
                                 "a",
                                 "a.b",
                                 "layer.1",
                                 "layer.1.w",
                                 "layer.2",
                                 "layer.2.w",
                                 "layer.10",
                                 "layer.10.a",
                                 "layer.10.b",
                                 "layer.99999999999999999999",
                                 "layer.100000000000000000000",
                                 "layer.x",
                                 "z"};
  for (size_t i = 0; i < names.size(); ++i) {
    for (size_t j = 0; j < names.size(); ++j) {
      EXPECT_EQ(natural_less(names[i], names[j]), i < j) << names[i] << " " << names[j];
    }
  }
  EXPECT_FALSE(natural_less("a01", "a1") && natural_less("a1", "a01"));
  EXPECT_TRUE(natural_less("a01.b", "a1.c") && natural_less("a1.b", "a01.c"));
}

TEST(L2Distance, OfTensorsOfAnyRealTypeAndOrder) {
  const auto a = torch::randn({7, 5, 3}, torch::kDouble), b = torch::randn({7, 5, 3}, torch::kDouble);
  for (const auto type : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const auto other : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
      const at::Tensor x = a.to(type).set_requires_grad(true), y = b.to(other);
      const double expected = l2_of(in_double(x.detach()) - in_double(y));
      EXPECT_TRUE(near(l2_distance(x, y), expected));
      EXPECT_TRUE(near(l2_distance(x.permute({2, 0, 1}), y.permute({2, 0, 1}).contiguous()), expected));
    }
  }
  EXPECT_EQ(l2_distance(torch::zeros({0}), torch::zeros({0})), 0);
}

}  // namespace
}  // namespace tpgm::test_compare
