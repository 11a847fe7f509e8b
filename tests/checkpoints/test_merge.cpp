// Merging of two checkpoints against ATen in double and against the method on a module; what is copied, what
// is refused, what is left behind.
#include "tpgm/checkpoints/merge.h"

#include <atomic>
#include <cmath>
#include <nlohmann/json.hpp>

#include "files.h"
#include "tests/methods/training.h"
#include "tpgm/methods/wise.h"

namespace tpgm::test_merge {
namespace {

using namespace test;
namespace fs = std::filesystem;

const std::vector<at::ScalarType> kNumbers{at::kDouble,      at::kFloat,           at::kHalf,
                                           at::kBFloat16,    at::kComplexFloat,    at::kFloat8_e4m3fn,
                                           at::kFloat8_e5m2, at::kFloat8_e4m3fnuz, at::kFloat8_e5m2fnuz};
const std::vector<at::ScalarType> kIntegers{at::kBool, at::kByte,   at::kChar, at::kShort, at::kUInt16,
                                            at::kInt,  at::kUInt32, at::kLong, at::kUInt64};
const std::vector<std::vector<int64_t>> kShapes{{},           {5}, {3, 4},    {2, 3, 4},
                                                {2, 1, 3, 3}, {0}, {3, 0, 2}, {301, 257}};

// Half a step of a type: relative to the value, and where numbers are smallest.
struct Rounding {
  double relative, absolute;
};

Rounding rounding_of(at::ScalarType dtype) {
  const auto type = at::isComplexType(dtype) ? at::toRealValueType(dtype) : dtype;
  const auto of = [](int bits, int smallest) {
    return Rounding{std::ldexp(1, -bits), std::ldexp(0.5, smallest)};
  };
  return type == at::kDouble            ? of(53, -1074)
         : type == at::kFloat           ? of(24, -149)
         : type == at::kHalf            ? of(11, -24)
         : type == at::kBFloat16        ? of(8, -133)
         : type == at::kFloat8_e4m3fn   ? of(4, -9)
         : type == at::kFloat8_e5m2     ? of(3, -16)
         : type == at::kFloat8_e4m3fnuz ? of(4, -10)
                                        : of(3, -17);
}

// θ₀ + ratio (θ − θ₀), rounded once to the type of `actual`. What comes before may be computed in fp32: the
// ratio, the difference and the product, each rounded once.
::testing::AssertionResult interpolated(const at::Tensor& actual, const at::Tensor& pretrained,
                                        const at::Tensor& finetuned, double ratio) {
  if (actual.scalar_type() != finetuned.scalar_type()) return ::testing::AssertionFailure() << "type";
  if (actual.sizes() != finetuned.sizes()) return ::testing::AssertionFailure() << "shape";
  const at::Tensor anchor = in_double(pretrained), delta = in_double(finetuned) - anchor;
  const at::Tensor exact = anchor + ratio * delta;
  const auto [relative, absolute] = rounding_of(actual.scalar_type());
  const double computed = actual.scalar_type() == at::kDouble ? 0x1p-52 : 0x1p-24;
  const at::Tensor allowed =
      relative * exact.abs() + absolute + computed * (exact.abs() + 3 * std::abs(ratio) * delta.abs());
  const at::Tensor off = (in_double(actual) - exact).abs() / allowed;
  if (off.numel() == 0 || off.max().item<double>() <= 1) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << off.max().item<double>() << " times what rounding explains";
}

class Merge : public test::Checkpoints {
 protected:
  NamedTensors merge(const Checkpoint& pretrained, const Checkpoint& finetuned,
                     const MergeOptions& options = {}) const {
    merge_checkpoints(pretrained, finetuned, {file("merged.safetensors")}, options);
    return load("merged.safetensors");
  }
  static MergeOptions ratio(double value) { return MergeOptions().ratios({value}); }
};

std::string name_of(at::ScalarType dtype, size_t i) {
  return std::string(c10::toString(dtype)) + "." + std::to_string(i);
}

NamedTensors of_every_type(const std::vector<at::ScalarType>& dtypes) {
  NamedTensors tensors;
  for (const auto dtype : dtypes) {
    for (size_t i = 0; i < kShapes.size(); ++i) {
      tensors.insert(name_of(dtype, i), random_tensor(kShapes[i], dtype));
    }
  }
  return tensors;
}

TEST_F(Merge, IsOneRoundingAwayFromTheSumInEveryType) {
  const NamedTensors pre = of_every_type(kNumbers), ft = of_every_type(kNumbers);
  const auto a = save("pre.safetensors", pre), b = save("ft.safetensors", ft);
  for (const double value : {0.5, 0.1, 0.9, -0.3, 1.7}) {
    const NamedTensors merged = merge(a, b, ratio(value));
    ASSERT_EQ(merged.size(), ft.size());
    for (const auto& item : merged) {
      EXPECT_TRUE(interpolated(item.value(), pre[item.key()], ft[item.key()], value))
          << item.key() << " " << value;
    }
  }
  for (const auto dtype : kNumbers) {  // the test must be able to fail
    const auto name = name_of(dtype, kShapes.size() - 1);
    EXPECT_FALSE(interpolated(ft[name], pre[name], ft[name], 0.9)) << name;
  }
}

TEST_F(Merge, RatiosZeroAndOneAreTheInputsBitForBit) {
  NamedTensors pre, ft;
  for (const auto dtype : kNumbers) {
    pre.insert(c10::toString(dtype), random_bits({33, 70}, dtype));  // with NaNs and infinities
    ft.insert(c10::toString(dtype), random_bits({33, 70}, dtype));
  }
  const auto a = save("pre.safetensors", pre), b = save("ft.safetensors", ft);
  expect_same(merge(a, b, ratio(0)), pre);
  expect_same(merge(a, b, ratio(1)), ft);
}

TEST_F(Merge, IntegersAndBoolsAreTheFineTunedOnes) {
  NamedTensors pre = of_every_type(kIntegers), ft = of_every_type(kIntegers);
  pre.insert("w", at::zeros({2}));
  ft.insert("w", at::ones({2}));
  const auto a = save("pre.safetensors", pre), b = save("ft.safetensors", ft);
  for (const double value : {0.0, 0.5, 1.0}) {
    NamedTensors expected = ft;
    expected["w"] = at::full({2}, value);
    expect_same(merge(a, b, ratio(value)), expected);
    expect_same(merge(a, b, ratio(value).filters({{"[!w]*", 0.25}})), expected);
  }
}

TEST_F(Merge, AgreesWithTheMethodBitForBit) {
  at::set_num_threads(1);
  for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    auto net = testing::make_net(at::kCPU);
    testing::train_plainly(net, 2);
    net->to(dtype);
    net->norm->num_batches_tracked = at::full({}, 2, at::kLong);
    const auto anchor = testing::copy(net);
    {
      const torch::NoGradGuard no_grad;
      for (auto& item : named_tensors(*net)) {
        if (at::isFloatingType(item.value().scalar_type())) {
          item.value().add_(at::randn_like(item.value()).mul_(0.1));
        }
      }
      net->norm->num_batches_tracked.fill_(7);
    }
    const auto tuned = testing::copy(net);
    const auto a = save("pre.safetensors", anchor), b = save("ft.safetensors", tuned);
    for (const double value : {0.5, 0.3, 1.0, 0.0, 1.25}) {
      for (const std::vector<std::string>& exclude : {std::vector<std::string>{}, {"head.*", "norm.*"}}) {
        testing::assign(net, tuned);
        Wise(*net, anchor, WiseOptions().ratio(value).exclude(exclude)).finish({});
        expect_same(merge(a, b, ratio(value).exclude(exclude)), testing::copy(net));
      }
    }
  }
}

TEST_F(Merge, TheLastFilterThatMatchesCounts) {
  NamedTensors pre, ft;
  for (const std::string name : {"visual.0.weight", "visual.0.bias", "visual.1.weight", "text.weight"}) {
    pre.insert(name, at::zeros({4}));
    ft.insert(name, at::ones({4}));
  }
  const auto a = save("pre.safetensors", pre), b = save("ft.safetensors", ft);
  const NamedTensors expected{{"visual.0.weight", at::full({4}, 0.25)},
                              {"visual.0.bias", at::full({4}, 0.125)},
                              {"visual.1.weight", at::full({4}, 0.75)},
                              {"text.weight", at::full({4}, 0.5)}};
  expect_same(merge(a, b,
                    MergeOptions().filters(
                        {{"*bias", 0.0}, {"visual.*", 0.75}, {"visual.0.*", 0.25}, {"*.bias", 0.125}})),
              expected);
  // In all outputs of a sweep; 0 and 1 among them.
  merge_checkpoints(a, b, {file("0.safetensors"), file("1.safetensors"), file("2.safetensors")},
                    MergeOptions()
                        .ratios({0.0, 0.5, 1.0})
                        .filters({{"visual.*", 0.75}, {"visual.0.bias", 1.0}, {"visual.0.weight", 0.0}}));
  for (int k = 0; k < 3; ++k) {
    expect_same(load(std::to_string(k) + ".safetensors"), {{"visual.0.weight", pre["visual.0.weight"]},
                                                           {"visual.0.bias", ft["visual.0.bias"]},
                                                           {"visual.1.weight", at::full({4}, 0.75)},
                                                           {"text.weight", at::full({4}, 0.5 * k)}});
  }
}

TEST_F(Merge, ExcludedTensorsAreTheFineTunedOnesOrDropped) {
  const NamedTensors pre{
      {"body.w", at::zeros({2})}, {"head.w", at::zeros({1000, 2})}, {"old.w", at::zeros({1})}};
  const NamedTensors ft{{"body.w", at::ones({2})},
                        {"head.w", random_bits({10, 2}, at::kFloat)},
                        {"head.b", random_bits({10}, at::kHalf)}};
  const auto a = save("pre.safetensors", pre), b = save("ft.safetensors", ft);
  for (const double value : {0.0, 0.5}) {
    expect_same(merge(a, b, ratio(value).exclude({"head.*", "old.w"}).filters({{"head.w", 0.1}})),
                {{"body.w", at::full({2}, value)}, {"head.w", ft["head.w"]}, {"head.b", ft["head.b"]}});
  }
}

TEST_F(Merge, MixedTypesAreRoundedOnceToTheFineTunedType) {
  const std::vector<at::ScalarType> floats{at::kDouble,   at::kFloat,         at::kHalf,
                                           at::kBFloat16, at::kFloat8_e4m3fn, at::kFloat8_e5m2};
  NamedTensors pre, ft;
  for (const auto from : floats) {
    for (const auto to : floats) {
      const auto name = std::string(c10::toString(from)) + " " + c10::toString(to);
      pre.insert(name, random_tensor({100, 7}, from));
      ft.insert(name, random_tensor({100, 7}, to));
    }
  }
  pre.insert("real complex", random_tensor({9}, at::kFloat));
  ft.insert("real complex", random_tensor({9}, at::kComplexFloat));
  const auto a = save("pre.safetensors", pre), b = save("ft.safetensors", ft);
  for (const double value : {0.5, 0.1, 0.0, 1.0}) {
    for (const auto& item : merge(a, b, ratio(value))) {
      const auto& name = item.key();
      if (value == 0 || value == 1) {
        EXPECT_TRUE(same(item.value(), (value == 0 ? pre : ft)[name].to(item.value().scalar_type()))) << name;
      } else {
        const at::Tensor anchor = item.value().is_complex() ? pre[name].to(at::kComplexFloat) : pre[name];
        EXPECT_TRUE(interpolated(item.value(), anchor, ft[name], value)) << name << " " << value;
      }
    }
  }
}

TEST_F(Merge, EveryFormatGoesInOnBothSides) {
  for (const std::string name :
       {"torch/zip_views", "torch/legacy_views", "torch/zip_shapes", "torch/legacy_shapes", "torch/zip_tied",
        "torch/legacy_module", "torch/legacy_subclasses", "torch/script_half", "torch/script_traced",
        "torch/nested_training", "torch/prefix_ddp"}) {
    const Checkpoint strided(golden(name + ".pt"));
    const NamedTensors expected = SafetensorsFile(golden(name + ".expected.safetensors")).tensors();
    NamedTensors other;
    for (const auto& item : expected) {
      other.insert(item.key(), random_tensor(item.value().sizes(), item.value().scalar_type()));
    }
    const auto plain = save("plain.safetensors", other);
    const auto check = [&](const NamedTensors& merged, const NamedTensors& pre, const NamedTensors& ft) {
      ASSERT_EQ(merged.size(), expected.size()) << name;
      for (const auto& item : merged) {
        if (at::isIntegralType(item.value().scalar_type(), true)) {
          EXPECT_TRUE(same(item.value(), ft[item.key()])) << name << " " << item.key();
        } else {
          EXPECT_TRUE(interpolated(item.value(), pre[item.key()], ft[item.key()], 0.3))
              << name << " " << item.key();
        }
      }
    };
    check(merge(strided, plain, ratio(0.3)), expected, other);
    check(merge(plain, strided, ratio(0.3)), other, expected);
    expect_same(merge(plain, strided, ratio(1)), expected);
  }
  const NamedTensors expected = SafetensorsFile(golden("torch/hf.expected.safetensors")).tensors();
  for (const std::string name : {"hf_single", "hf_sharded", "hf_bin"}) {
    expect_same(merge(Checkpoint(golden("torch/hf_single")), Checkpoint(golden("torch/" + name)), ratio(1)),
                expected);
  }
}

TEST_F(Merge, TensorsOfManyChunks) {
  const NamedTensors pre{{"w", random_tensor({5'000'011})}, {"h", random_tensor({1'500'007}, at::kHalf)}},
      ft{{"w", random_tensor({5'000'011})}, {"h", random_tensor({1'500'007}, at::kHalf)}};
  const auto a = save("pre.safetensors", pre), b = save("ft.safetensors", ft);
  std::atomic<size_t> done = 0, calls = 0;
  merge_checkpoints(a, b, {file("m.safetensors")}, MergeOptions().ratios({0.7}), [&](size_t bytes) {
    done += bytes;
    ++calls;
  });
  EXPECT_EQ(done, ft["w"].nbytes() + ft["h"].nbytes());
  EXPECT_GT(calls, 10U);
  const NamedTensors merged = load("m.safetensors");
  for (const std::string name : {"w", "h"}) {
    EXPECT_TRUE(interpolated(merged[name], pre[name], ft[name], 0.7)) << name;
  }
}

TEST_F(Merge, NothingIsAFileToo) {
  const auto nothing = save("a.safetensors", NamedTensors()),
             also_nothing = save("b.safetensors", NamedTensors());
  EXPECT_TRUE(merge(nothing, also_nothing).is_empty());
  const auto empty = save("c.safetensors", {{"e", at::empty({0, 3})}, {"s", at::zeros({})}}),
             scalar = save("d.safetensors", {{"e", at::empty({0, 3})}, {"s", at::ones({})}});
  expect_same(merge(empty, scalar), {{"e", at::empty({0, 3})}, {"s", at::full({}, 0.5)}});
}

TEST_F(Merge, WhatIsNotFiniteStaysWhereItIs) {
  at::Tensor from = at::zeros({6}), to = at::ones({6});
  from[1] = INFINITY;
  from[2] = NAN;
  to[3] = INFINITY;
  to[4] = NAN;
  const auto a = save("pre.safetensors", {{"w", from}}), b = save("ft.safetensors", {{"w", to}});
  const at::Tensor merged = merge(a, b)["w"], expected = from + 0.5 * (to - from);
  EXPECT_TRUE(at::allclose(merged, expected, 0, 0, /*equal_nan=*/true)) << merged << expected;
  EXPECT_EQ(merged[0].item<float>(), 0.5F);
  EXPECT_EQ(merged[5].item<float>(), 0.5F);
}

TEST_F(Merge, ASweepGivesTheBytesOfSingleRuns) {
  const auto a = save("pre.safetensors", of_every_type(kNumbers)),
             b = save("ft.safetensors", of_every_type(kNumbers), {{"note", "kept"}});
  const auto options = [] { return MergeOptions().filters({{"Half.*", 0.2}}).exclude({"Double.*"}); };
  const std::vector<double> ratios{0.1, 1, 0.5, 0, -1};
  std::vector<fs::path> outputs;
  for (size_t k = 0; k < ratios.size(); ++k) outputs.push_back(file(std::to_string(k) + ".safetensors"));
  merge_checkpoints(a, b, outputs, options().ratios(ratios));
  for (size_t k = 0; k < ratios.size(); ++k) {
    merge_checkpoints(a, b, {file("single.safetensors")}, options().ratios({ratios[k]}));
    EXPECT_TRUE(bytes("single.safetensors") == read_bytes(outputs[k])) << ratios[k];
    EXPECT_FALSE(bytes("single.safetensors") == read_bytes(outputs[(k + 1) % ratios.size()])) << ratios[k];
  }
}

TEST_F(Merge, BytesDependNeitherOnFoldersNorOnThreads) {
  const NamedTensors pre{{"w", random_tensor({1'000'003})}, {"v", random_tensor({100, 100}, at::kHalf)}},
      ft{{"w", random_tensor({1'000'003})}, {"v", random_tensor({100, 100}, at::kHalf)}};
  std::string first;
  for (const int threads : {1, 2, 7}) {
    const auto folder = std::to_string(threads) + "/";
    const auto a = save(folder + "in/pre.safetensors", pre), b = save(folder + "ft.safetensors", ft);
    at::set_num_threads(threads);
    merge_checkpoints(a, b, {file(folder + "out.safetensors")}, ratio(0.3));
    if (first.empty()) first = bytes(folder + "out.safetensors");
    EXPECT_TRUE(bytes(folder + "out.safetensors") == first) << threads;
  }
  const auto here = fs::current_path();
  fs::current_path(file("1"));  // relative
  merge_checkpoints(Checkpoint("in/../in/pre.safetensors"), Checkpoint("ft.safetensors"),
                    {"again.safetensors"}, ratio(0.3));
  fs::current_path(here);
  EXPECT_TRUE(bytes("1/again.safetensors") == first);
}

TEST_F(Merge, MetadataSayWhereItComesFrom) {
  const auto a = save("pre.safetensors", {{"w.0", at::zeros({2})}}, {{"secret", "of the other"}}),
             b = save("ft.safetensors", {{"w.0", at::ones({2})}},
                      {{"license", "MIT"}, {"tpgm.ratio", "7"}, {"tpgm.strange", "x"}});
  merge_checkpoints(
      a, b, {file("m.safetensors"), file("half.safetensors")},
      MergeOptions().ratios({0.25, 0.5}).filters({{"w*", 0.5}}).exclude({"w.0"}).command([](double ratio) {
        return "merge.py " + std::to_string(ratio);
      }));
  const Metadata first = Checkpoint(file("m.safetensors")).metadata();
  EXPECT_EQ(first.at("format"), "pt");
  EXPECT_EQ(first.at("license"), "MIT");
  EXPECT_EQ(first.at("tpgm.ratio"), "0.25");
  EXPECT_EQ(first.at("tpgm.command"), "merge.py 0.250000");
  EXPECT_EQ(Checkpoint(file("half.safetensors")).metadata().at("tpgm.command"), "merge.py 0.500000");
  EXPECT_EQ(first.count("tpgm.version"), 1U);
  EXPECT_EQ(first.count("tpgm.strange") + first.count("secret"), 0U);
  EXPECT_EQ(first.size(), 6U);
  auto inputs = nlohmann::json::parse(first.at("tpgm.inputs"));
  ASSERT_EQ(inputs.size(), 2U);
  EXPECT_EQ(inputs[0]["name"], "pre.safetensors");
  EXPECT_EQ(inputs[1]["name"], "ft.safetensors");
  for (const auto& input : inputs) {
    EXPECT_EQ(input["format"], "safetensors");
    EXPECT_FALSE(input.contains("made_by"));
    ASSERT_EQ(input["files"].size(), 1U);
    EXPECT_EQ(input["files"][0]["file"], input["name"]);
    EXPECT_EQ(input["files"][0]["bytes"], fs::file_size(file(input["name"])));
    const std::string hash = input["files"][0]["hash"];
    EXPECT_EQ(hash.size(), std::string("xxh3-128:").size() + 32) << hash;
    EXPECT_NE(hash.find_first_not_of('0', 9), std::string::npos) << hash;
  }
  EXPECT_NE(inputs[0]["files"][0]["hash"], inputs[1]["files"][0]["hash"]);

  // The next in the chain knows what its inputs were made by.
  merge_checkpoints(Checkpoint(file("m.safetensors")), a, {file("n.safetensors")}, ratio(0.5));
  const Metadata second = Checkpoint(file("n.safetensors")).metadata();
  EXPECT_EQ(second.count("tpgm.command"), 0U);
  inputs = nlohmann::json::parse(second.at("tpgm.inputs"));
  EXPECT_EQ(inputs[0]["made_by"], first.at("tpgm.command"));
  EXPECT_FALSE(inputs[1].contains("made_by"));
  EXPECT_FALSE(contains(read_bytes(file("n.safetensors")), folder_.string()));
}

TEST_F(Merge, MetadataNameFoldersAndTheirFiles) {
  for (const std::string slash : {"", "/"}) {
    const Checkpoint folder(golden("torch/hf_sharded").string() + slash);
    merge_checkpoints(folder, folder, {file("m.safetensors")}, ratio(0.5));
    const Metadata metadata = Checkpoint(file("m.safetensors")).metadata();
    const auto inputs = nlohmann::json::parse(metadata.at("tpgm.inputs"));
    EXPECT_EQ(inputs[0]["name"], "hf_sharded");
    EXPECT_EQ(inputs[0]["format"], "safetensors, 2 shards");
    EXPECT_EQ(inputs[0]["files"].size(), 3U);  // and the index
    for (const auto& each : inputs[0]["files"]) {
      EXPECT_EQ(each["bytes"], fs::file_size(golden("torch/hf_sharded") / each["file"].get<std::string>()));
    }
  }
}

TEST_F(Merge, ManyMismatchesAreTheFirstTenAndACount) {
  NamedTensors pre{{"common", at::zeros({2})}, {"old.weight", at::zeros({2})}},
      ft{{"common", at::zeros({2})}};
  for (int i = 10; i < 22; ++i) {
    pre.insert("head." + std::to_string(i), at::zeros({3}));
    ft.insert("head." + std::to_string(i), at::zeros({2, 3}));
  }
  const auto a = save("pre.safetensors", pre), b = save("ft.safetensors", ft);
  const std::string message = error_of([&] { merge(a, b); });
  EXPECT_TRUE(message.starts_with("[merge_checkpoints] 13 tensors do not fit:\n")) << message;
  EXPECT_TRUE(contains(
      message, "'head.10' is [3] in '" + a.path().string() + "', [2,3] in '" + b.path().string() + "'"))
      << message;
  EXPECT_EQ(count_of(message, "\n  '"), 10U) << message;
  EXPECT_TRUE(contains(message, "and 3 more")) << message;
  EXPECT_TRUE(contains(message, "`exclude` 'head.*'")) << message;
  EXPECT_FALSE(exists("merged.safetensors"));
  EXPECT_EQ(files_in_folder(), 2U);
  EXPECT_EQ(merge(a, b, MergeOptions().exclude({"head.*", "old.*"})).size(), 13U);
}

TEST_F(Merge, OneMismatchIsOneLine) {
  const auto a = save("a.safetensors", {{"x.w", at::zeros({2})}, {"y.w", at::zeros({2})}}),
             b = save("b.safetensors", {{"x.w", at::zeros({2})}}),
             c = save("c.safetensors", {{"x.w", at::zeros({2})}, {"y.w", at::zeros({3})}}),
             d = save("d.safetensors", {{"x.w", at::zeros({2})}, {"y.w", at::zeros({2}, at::kComplexFloat)}}),
             e = save("e.safetensors", {{"z.w", at::zeros({2})}});
  const auto message = [&](const Checkpoint& from, const Checkpoint& to) {
    const std::string text = error_of([&] { merge(from, to); });
    EXPECT_EQ(count_of(text, "\n"), 0U) << text;
    EXPECT_TRUE(contains(text, "'y.w'")) << text;
    EXPECT_TRUE(contains(text, "`exclude` 'y.*'")) << text;
    EXPECT_TRUE(contains(text, from.path().string()) && contains(text, to.path().string())) << text;
    return text;
  };
  EXPECT_TRUE(contains(message(a, b), "but not in"));
  EXPECT_TRUE(contains(message(b, a), "but not in"));
  EXPECT_TRUE(contains(message(a, c), "[2]"));
  EXPECT_TRUE(contains(message(d, a), "ComplexFloat"));
  EXPECT_TRUE(contains(error_of([&] { merge(a, e); }), "no name is common to both"));
}

TEST_F(Merge, NoOutputIsAnInput) {
  const NamedTensors pre{{"w", at::zeros({2})}}, ft{{"w", at::ones({2})}};
  const auto a = save("pre.safetensors", pre), b = save("ft.safetensors", ft);
  fs::create_symlink(file("ft.safetensors"), file("link.safetensors"));
  fs::create_hard_link(file("pre.safetensors"), file("hard.safetensors"));
  fs::create_directory_symlink(folder_, file("folder"));
  for (const std::string name : {"pre.safetensors", "ft.safetensors", "link.safetensors", "hard.safetensors",
                                 "folder/pre.safetensors", "./folder/ft.safetensors"}) {
    const auto message = error_of([&] {
      merge_checkpoints(a, b, {file("x.safetensors"), file(name)}, MergeOptions().ratios({0.1, 0.2}));
    });
    EXPECT_TRUE(contains(message, "is an input; choose another name")) << message;
    EXPECT_TRUE(contains(message, file(name).string())) << message;
  }
  expect_same(load("pre.safetensors"), pre);
  expect_same(load("ft.safetensors"), ft);
  EXPECT_TRUE(fs::is_symlink(file("link.safetensors")));
  EXPECT_FALSE(exists("x.safetensors"));
  const auto linked = Checkpoint(file("link.safetensors"));  // the input may be the link, too
  EXPECT_TRUE(contains(error_of([&] { merge_checkpoints(a, linked, {file("ft.safetensors")}, ratio(0.5)); }),
                       "is an input"));
}

TEST_F(Merge, ShardsAreNoInputEither) {
  const NamedTensors ft{{"a.w", random_tensor({100})}, {"b.w", random_tensor({100})}};
  const auto plain = save("pre.safetensors", ft);
  fs::create_directory(file("model"));
  merge_checkpoints(plain, plain, {file("model/model.safetensors")}, ratio(1).shard_size(400));
  ASSERT_TRUE(exists("model/model-00002-of-00002.safetensors"));
  const auto before = bytes("model/model-00001-of-00002.safetensors");
  EXPECT_TRUE(contains(error_of([&] {
                         merge_checkpoints(plain, Checkpoint(file("model")),
                                           {file("model/model.safetensors")}, ratio(0.5).shard_size(400));
                       }),
                       "is an input"));
  EXPECT_TRUE(bytes("model/model-00001-of-00002.safetensors") == before);
}

TEST_F(Merge, RefusesWhatCannotBe) {
  const auto a = save("pre.safetensors", {{"body.w", at::zeros({2})}}),
             b = save("ft.safetensors", {{"body.w", at::ones({2})}});
  const auto message = [&](const std::vector<fs::path>& outputs, const MergeOptions& options) {
    return error_of([&] { merge_checkpoints(a, b, outputs, options); });
  };
  const std::vector<fs::path> one{file("x.safetensors")};
  EXPECT_TRUE(contains(message(one, MergeOptions().ratios({0.1, 0.2})), "2 ratios and 1 outputs"));
  EXPECT_TRUE(contains(message({}, MergeOptions().ratios({})), "0 ratios"));
  EXPECT_TRUE(contains(message(one, ratio(NAN)), "nan"));
  EXPECT_TRUE(contains(message(one, ratio(INFINITY)), "inf"));
  EXPECT_TRUE(contains(message(one, MergeOptions().filters({{"*", -INFINITY}})), "inf"));
  EXPECT_TRUE(contains(message(one, MergeOptions().filters({{"bdy.*", 0.1}})),
                       "`filter` 'bdy.*' matches no parameter; the nearest is 'body.w'"));
  EXPECT_TRUE(contains(message(one, MergeOptions().exclude({"haed.*"})), "`exclude` 'haed.*' matches no"));
  for (const std::string name : {"x.pt", "x", "x.safetensors.bak", "safetensors", ".safetensors", "x.json",
                                 "x.safetensors.index.json"}) {
    EXPECT_TRUE(contains(message({file(name)}, {}), "name it *.safetensors")) << name;
  }
  EXPECT_EQ(files_in_folder(), 2U);
}

TEST_F(Merge, PrefixesAreAligned) {
  const auto tensors = [](const std::vector<std::string>& names, double value) {
    NamedTensors result;
    for (const auto& name : names) result.insert(name, at::full({2}, value));
    return result;
  };
  struct Case {
    std::vector<std::string> pre, ft, exclude, expected;
  };
  const std::vector<Case> cases{
      {{"module.x", "module.y"}, {"x", "y"}, {}, {"x", "y"}},
      {{"x", "y"}, {"module.x", "module.y"}, {}, {"x", "y"}},
      {{"module.x"}, {"_orig_mod.x"}, {}, {"x"}},
      {{"backbone.x", "backbone.y"},
       {"backbone.x", "backbone.y", "head.w"},
       {"head.*"},
       {"backbone.x", "backbone.y", "head.w"}},
      {{"backbone.x", "head.w"}, {"backbone.x"}, {"head.*"}, {"backbone.x"}},
      {{"module.backbone.x", "module.head.w"}, {"backbone.x", "head.w"}, {}, {"backbone.x", "head.w"}},
      {{"backbone.x"}, {"module.backbone.x"}, {}, {"x"}},
  };
  for (const auto& each : cases) {
    const auto a = save("pre.safetensors", tensors(each.pre, 0)),
               b = save("ft.safetensors", tensors(each.ft, 1));
    const NamedTensors merged = merge(a, b, MergeOptions().exclude(each.exclude));
    NamedTensors expected = tensors(each.expected, 0.5);
    for (auto& item : expected) {
      if (item.key() == "head.w" && !each.exclude.empty()) item.value().fill_(1);
    }
    expect_same(merged, expected);
  }
}

TEST_F(Merge, ShardsHaveAnIndexAndTheSizeAskedFor) {
  NamedTensors pre, ft;
  for (int i = 0; i < 7; ++i) {
    pre.insert("layer." + std::to_string(i), random_tensor({100}));
    ft.insert("layer." + std::to_string(i), random_tensor({100}));
  }
  pre.insert("large", random_tensor({500}));
  ft.insert("large", random_tensor({500}));
  ft.insert("empty", at::empty({0}));
  pre.insert("empty", at::empty({0}));
  const auto a = save("pre.safetensors", pre), b = save("ft.safetensors", ft);
  const NamedTensors whole = merge(a, b, ratio(0.3));
  fs::create_directory(file("out"));
  merge_checkpoints(a, b, {file("out/model.safetensors")}, ratio(0.3).shard_size(1000));

  const auto index = nlohmann::json::parse(bytes("out/model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], 7 * 400 + 2000);
  EXPECT_EQ(index["weight_map"].size(), ft.size());
  std::map<std::string, size_t> sizes;
  for (const auto& [name, shard] : index["weight_map"].items()) {
    const SafetensorsFile opened(file("out") / shard.get<std::string>());
    EXPECT_TRUE(same(opened.tensor(name), whole[name])) << name;
    sizes[shard] += whole[name].nbytes();
  }
  EXPECT_EQ(fs::exists(file("out/model.safetensors")), false);
  EXPECT_EQ(static_cast<size_t>(std::distance(fs::directory_iterator(file("out")), {})), sizes.size() + 1);
  EXPECT_GE(sizes.size(), 5U);
  size_t number = 0;
  for (const auto& [shard, size] : sizes) {
    char expected[64];
    std::snprintf(expected, sizeof expected, "model-%05zu-of-%05zu.safetensors", ++number, sizes.size());
    EXPECT_EQ(shard, expected);
    EXPECT_TRUE(size <= 1000 || size == 2000) << shard << " " << size;
  }
  const Checkpoint read(file("out"));
  EXPECT_EQ(read.format(), "safetensors, " + std::to_string(sizes.size()) + " shards");
  expect_same(read.tensors(), whole);
  EXPECT_EQ(read.metadata().at("tpgm.ratio"), "0.3");

  // One shard is a file; and shards do not hide behind a file of the plain name.
  merge_checkpoints(a, b, {file("one.safetensors")}, ratio(0.3).shard_size(1'000'000));
  expect_same(load("one.safetensors"), whole);
  EXPECT_FALSE(exists("one.safetensors.index.json"));
  EXPECT_TRUE(contains(
      error_of([&] { merge_checkpoints(a, b, {file("one.safetensors")}, ratio(0.3).shard_size(1000)); }),
      "exists"));
}

TEST_F(Merge, AFolderThatIsNotThereLeavesNothingBehind) {
  const auto a = save("pre.safetensors", {{"w", at::zeros({2})}}),
             b = save("ft.safetensors", {{"w", at::ones({2})}});
  const auto nowhere = file("no/such/x.safetensors");
  const auto message = error_of(
      [&] { merge_checkpoints(a, b, {file("x.safetensors"), nowhere}, MergeOptions().ratios({0.1, 0.2})); });
  EXPECT_TRUE(contains(message, nowhere.string())) << message;
  EXPECT_EQ(files_in_folder(), 2U);
  if (::geteuid() == 0) return;  // nothing is read-only to root
  fs::create_directory(file("locked"));
  fs::permissions(file("locked"), fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_THROW(merge_checkpoints(a, b, {file("locked/x.safetensors")}, {}), c10::Error);
  EXPECT_TRUE(fs::is_empty(file("locked")));
}

TEST_F(Merge, ADiskThatFillsUpLeavesTheOldFiles) {
  const auto a = save("pre.safetensors", {{"w", at::zeros({100'000})}}),
             b = save("ft.safetensors", {{"w", at::ones({100'000})}});
  test::write_bytes(file("x.safetensors"), "old");
  std::string message;
  {
    const test::FileSizeLimit limit(4096);
    message = error_of([&] {
      merge_checkpoints(a, b, {file("y.safetensors"), file("x.safetensors")},
                        MergeOptions().ratios({0.1, 0.2}));
    });
  }
  EXPECT_TRUE(contains(message, "cannot write '" + file("y.safetensors").string())) << message;
  EXPECT_EQ(bytes("x.safetensors"), "old");
  EXPECT_EQ(files_in_folder(), 3U);
}

TEST_F(Merge, ADiskThatFillsUpAtTheIndexLeavesTheOldShards) {
  NamedTensors tensors;
  for (int i = 0; i < 64; ++i) {
    tensors.insert(std::string(100, 'x') + "." + std::to_string(i), at::ones({100}));
  }
  const auto a = save("pre.safetensors", tensors);
  const auto options = [](double value) { return ratio(value).shard_size(400); };
  fs::create_directory(file("out"));
  merge_checkpoints(a, a, {file("out/model.safetensors")}, options(0.25));
  const auto index = bytes("out/model.safetensors.index.json"),
             shard = bytes("out/model-00001-of-00064.safetensors");
  ASSERT_GT(index.size(), 8192U);  // larger than any shard
  {
    const test::FileSizeLimit limit(8192);
    EXPECT_THROW(merge_checkpoints(a, a, {file("out/model.safetensors")}, options(0.5)), c10::Error);
  }
  EXPECT_TRUE(bytes("out/model.safetensors.index.json") == index);
  EXPECT_TRUE(bytes("out/model-00001-of-00064.safetensors") == shard);
  EXPECT_EQ(static_cast<size_t>(std::distance(fs::directory_iterator(file("out")), {})), 65U);
}

TEST_F(Merge, AFolderInThePlaceOfOneOutputKeepsTheOthersFromAppearing) {
  const auto a = save("pre.safetensors", {{"w", at::zeros({2})}}),
             b = save("ft.safetensors", {{"w", at::ones({2})}});
  fs::create_directory(file("taken.safetensors"));
  EXPECT_THROW(merge_checkpoints(a, b, {file("x.safetensors"), file("taken.safetensors")},
                                 MergeOptions().ratios({0.1, 0.2})),
               c10::Error);
  EXPECT_EQ(files_in_folder(), 3U);
}

TEST_F(Merge, OldOutputsAreReplaced) {
  const auto a = save("pre.safetensors", {{"w", at::zeros({2})}}),
             b = save("ft.safetensors", {{"w", at::ones({2})}});
  test::write_bytes(file("merged.safetensors"), std::string(100'000, 'x'));
  expect_same(merge(a, b), {{"w", at::full({2}, 0.5)}});
  EXPECT_EQ(files_in_folder(), 3U);
}

}  // namespace
}  // namespace tpgm::test_merge
