// Conversion against ATen's casts and against what PyTorch reads: types, names, selection, shards, what is
// refused.
#include "tpgm/checkpoints/convert.h"

#include <atomic>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "files.h"

namespace tpgm::test_convert {
namespace {

using namespace test;
namespace fs = std::filesystem;

using Renames = std::vector<std::pair<std::string, std::string>>;

class Convert : public test::Checkpoints {
 protected:
  NamedTensors convert(const Checkpoint& input, const ConvertOptions& options = {}) {
    result = convert_checkpoint(input, file("out.safetensors"), options);
    return load("out.safetensors");
  }
  std::string refused(const Checkpoint& input, const ConvertOptions& options) {
    const auto message = error_of([&] { convert_checkpoint(input, file("no.safetensors"), options); });
    EXPECT_TRUE(message.starts_with("[convert_checkpoint] ")) << message;
    EXPECT_EQ(count_of(message, "\n"), 0U) << message;
    EXPECT_FALSE(exists("no.safetensors"));
    return message;
  }
  std::set<std::string> names_after(const Checkpoint& input, const ConvertOptions& options) {
    const auto converted = convert(input, options).keys();
    return {converted.begin(), converted.end()};
  }
  Checkpoint save_names(const std::vector<std::string>& names) const {
    NamedTensors tensors;
    for (size_t i = 0; i < names.size(); ++i) tensors.insert(names[i], at::full({2}, static_cast<double>(i)));
    return save("names.safetensors", tensors);
  }

  Converted result;
};

const std::vector<at::ScalarType> kFloats{at::kDouble,          at::kFloat,          at::kHalf,
                                          at::kBFloat16,        at::kFloat8_e4m3fn,  at::kFloat8_e5m2,
                                          at::kFloat8_e4m3fnuz, at::kFloat8_e5m2fnuz};
const std::vector<at::ScalarType> kOthers{at::kBool, at::kByte,   at::kChar, at::kShort,  at::kUInt16,
                                          at::kInt,  at::kUInt32, at::kLong, at::kUInt64, at::kComplexFloat};

TEST_F(Convert, FloatsBecomeWhatATenMakesOfThem) {
  NamedTensors tensors;
  for (const auto dtype : kFloats) {
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {7}, {3, 5, 2}, {0, 4}, {300, 401}}) {
      tensors.insert(std::string(c10::toString(dtype)) + "." + std::to_string(tensors.size()),
                     random_tensor(shape, dtype));
    }
  }
  for (const auto dtype : kOthers) tensors.insert(c10::toString(dtype), random_bits({5, 3}, dtype));
  const auto input = save("in.safetensors", tensors);
  for (const auto dtype :
       {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kFloat8_e4m3fn, at::kFloat8_e5m2}) {
    NamedTensors expected;
    size_t bytes = 0;
    for (const auto& item : tensors) {
      const bool floating = at::isFloatingType(item.value().scalar_type());
      expected.insert(item.key(), floating ? item.value().to(dtype) : item.value());
      bytes += expected[item.key()].nbytes();
    }
    expect_same(convert(input, ConvertOptions().dtype(dtype)), expected);
    EXPECT_EQ(result.bytes, bytes);
    EXPECT_EQ(result.tensors, tensors.size());
    EXPECT_EQ(result.files, std::vector{file("out.safetensors")});
    EXPECT_TRUE(result.overflowed.empty()) << c10::toString(dtype) << " " << result.overflowed.front();
  }
}

TEST_F(Convert, WithoutATypeEveryBitIsKept) {
  NamedTensors tensors;
  for (const auto& dtypes : {kFloats, kOthers}) {
    for (const auto dtype : dtypes) tensors.insert(c10::toString(dtype), random_bits({50, 20}, dtype));
  }
  tensors.insert("e8m0", random_bits({100}, at::kFloat8_e8m0fnu));
  expect_same(convert(save("in.safetensors", tensors)), tensors);
  // Also those that have the type already.
  for (const auto dtype : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kFloat8_e5m2}) {
    const NamedTensors one{{"w", random_bits({50, 20}, dtype)}};
    expect_same(convert(save("one.safetensors", one), ConvertOptions().dtype(dtype)), one);
    EXPECT_TRUE(result.overflowed.empty());
  }
}

TEST_F(Convert, EveryFormatIsWhatPyTorchReads) {
  size_t seen = 0;
  for (const auto& item : fs::directory_iterator(golden("torch"))) {
    const std::string name = item.path().stem().string();
    if (item.path().extension() != ".pt" || name.starts_with("refused_")) continue;
    const Checkpoint input(item.path());
    std::vector<std::string> complex;  // 128 bits, which safetensors does not have
    for (const auto& each : input.names()) {
      if (input.entry(each).dtype == at::kComplexDouble) complex.push_back(each);
    }
    NamedTensors expected;
    for (const auto& each : SafetensorsFile(golden("torch/" + name + ".expected.safetensors")).tensors()) {
      if (input.contains(each.key())) expected.insert(each.key(), each.value());
    }
    SCOPED_TRACE(name);
    EXPECT_EQ(expected.size() + complex.size(), input.names().size());
    if (!complex.empty()) {
      const auto message = refused(input, {});
      EXPECT_TRUE(contains(message, "'" + complex.front() + "'") && contains(message, "ComplexDouble"))
          << message;
    }
    expect_same(convert(input, ConvertOptions().exclude(complex)), expected);
    ++seen;
  }
  EXPECT_GT(seen, 40U);
  const NamedTensors expected = SafetensorsFile(golden("torch/hf.expected.safetensors")).tensors();
  for (const std::string name : {"hf_single", "hf_sharded", "hf_bin"}) {
    expect_same(convert(Checkpoint(golden("torch/" + name))), expected);
  }
  for (const std::string name : {"dtypes", "shapes", "names", "nothing"}) {
    SCOPED_TRACE(name);
    expect_same(convert(Checkpoint(golden(name + ".safetensors"))),
                SafetensorsFile(golden(name + ".safetensors")).tensors());
  }
}

TEST_F(Convert, AKeyTakesAnotherEntry) {
  expect_same(convert(Checkpoint(golden("torch/nested_ema.pt"))),
              SafetensorsFile(golden("torch/nested_ema.expected.safetensors")).tensors());
  expect_same(convert(Checkpoint(golden("torch/nested_ema.pt"), "state_dict_ema")),
              SafetensorsFile(golden("torch/nested_ema_ema.expected.safetensors")).tensors());
}

TEST_F(Convert, Renames) {
  const auto input = save_names({"encoder.0.weight", "encoder.1.weight", "head.bias", "scale"});
  using Names = std::set<std::string>;
  const auto names = [&](const Renames& renames) {
    return names_after(input, ConvertOptions().renames(renames));
  };
  EXPECT_EQ(names({{"encoder.*", "visual.*"}}),
            (Names{"visual.0.weight", "visual.1.weight", "head.bias", "scale"}));
  EXPECT_EQ(names({{"encoder.*", "*"}}), (Names{"0.weight", "1.weight", "head.bias", "scale"}));
  EXPECT_EQ(names({{"*", "model.*"}}),
            (Names{"model.encoder.0.weight", "model.encoder.1.weight", "model.head.bias", "model.scale"}));
  EXPECT_EQ(names({{"scale", "logit_scale"}}),
            (Names{"encoder.0.weight", "encoder.1.weight", "head.bias", "logit_scale"}));
  EXPECT_EQ(names({{"encoder.*.weight", "layer*.w"}}), (Names{"layer0.w", "layer1.w", "head.bias", "scale"}));
  EXPECT_EQ(names({{"*.*.weight", "*[*]"}}), (Names{"encoder[0]", "encoder[1]", "head.bias", "scale"}));
  EXPECT_EQ(names({{"*.bias", "*"}}), (Names{"encoder.0.weight", "encoder.1.weight", "head", "scale"}));
  EXPECT_EQ(names({{"h*d*", "b*"}}),
            (Names{"encoder.0.weight", "encoder.1.weight", "bea", "scale"}));  // fewer
  // The first as short as possible, as in a shell's ${name#pattern}.
  EXPECT_EQ(names({{"*e*", "<*|*>"}}),
            (Names{"<|ncoder.0.weight>", "<|ncoder.1.weight>", "<h|ad.bias>", "<scal|>"}));
  // One after the other, each on what the one before has made; swaps need a place between.
  EXPECT_EQ(names({{"encoder.*", "a.*"}, {"a.*", "b.*"}, {"head.*", "encoder.*"}}),
            (Names{"b.0.weight", "b.1.weight", "encoder.bias", "scale"}));
  EXPECT_EQ(names({{"encoder.0.*", "t.*"}, {"encoder.1.*", "encoder.0.*"}, {"t.*", "encoder.1.*"}}),
            (Names{"encoder.0.weight", "encoder.1.weight", "head.bias", "scale"}));
  const NamedTensors swapped = load("out.safetensors"), original = load("names.safetensors");
  EXPECT_TRUE(same(swapped["encoder.0.weight"], original["encoder.1.weight"]));
  EXPECT_TRUE(same(swapped["encoder.1.weight"], original["encoder.0.weight"]));
}

TEST_F(Convert, RenamesThatCannotBe) {
  const auto input = save_names({"encoder.0.weight", "encoder.1.weight", "head.bias"});
  const auto message = [&](const Renames& renames) {
    return refused(input, ConvertOptions().renames(renames));
  };
  auto text = message({{"enc.*", "x.*"}});
  EXPECT_TRUE(contains(text, "`rename` 'enc.*=x.*' matches no name") && contains(text, "the nearest is"))
      << text;
  text = message({{"head.bias", "b"}, {"head.*", "x.*"}});  // gone by then
  EXPECT_TRUE(contains(text, "'head.*=x.*' matches no name")) << text;
  text = message({{"encoder.*", "*.*"}});
  EXPECT_TRUE(contains(text, "'encoder.*=*.*' has more stars on the right")) << text;
  text = message({{"head.bias", "*"}});
  EXPECT_TRUE(contains(text, "more stars")) << text;
  text = message({{"encoder.*.weight", "w"}});
  EXPECT_TRUE(contains(text, "'encoder.1.weight' into 'w', which another tensor is called already")) << text;
  text = message({{"head.bias", "encoder.0.weight"}});
  EXPECT_TRUE(contains(text, "'encoder.0.weight', which another tensor is called already")) << text;
  text = message({{"head.bias", ""}});
  EXPECT_TRUE(contains(text, "not a name")) << text;
  text = message({{"head.bias", "__metadata__"}});
  EXPECT_TRUE(contains(text, "__metadata__")) << text;
  text = refused(input, ConvertOptions().only({"encoder.*"}).renames({{"head.*", "x.*"}}));  // left out
  EXPECT_TRUE(contains(text, "matches no name")) << text;
}

TEST_F(Convert, SelectsByTheNamesBeforeRenaming) {
  const auto input = save_names({"a.w", "a.b", "b.w", "c.w"});
  using Names = std::set<std::string>;
  EXPECT_EQ(names_after(input, ConvertOptions().only({"a.*", "c.w"})), (Names{"a.w", "a.b", "c.w"}));
  EXPECT_EQ(names_after(input, ConvertOptions().exclude({"a.*", "c.w"})), (Names{"b.w"}));
  EXPECT_EQ(names_after(input, ConvertOptions().only({"*.w"}).exclude({"a.*"}).renames({{"b.*", "a.*"}})),
            (Names{"a.w", "c.w"}));
  EXPECT_EQ(result.tensors, 2U);
  EXPECT_EQ(result.bytes, 16U);
  EXPECT_TRUE(contains(refused(input, ConvertOptions().only({"d.*"})), "`only` 'd.*' matches no parameter"));
  EXPECT_TRUE(contains(refused(input, ConvertOptions().exclude({"d.*"})), "`exclude` 'd.*' matches no"));
  EXPECT_TRUE(contains(refused(input, ConvertOptions().only({"a.*"}).exclude({"a.?"})), "leave nothing of"));
}

TEST_F(Convert, ShardsHaveAnIndex) {
  NamedTensors tensors;
  for (int i = 0; i < 6; ++i) tensors.insert("layer." + std::to_string(i), random_tensor({100}));
  const auto input = save("in.safetensors", tensors);
  fs::create_directory(file("out"));
  const auto converted =
      convert_checkpoint(input, file("out/model.safetensors"), ConvertOptions().shard_size(800));
  EXPECT_EQ(
      converted.files,
      (std::vector{file("out/model-00001-of-00003.safetensors"), file("out/model-00002-of-00003.safetensors"),
                   file("out/model-00003-of-00003.safetensors"), file("out/model.safetensors.index.json")}));
  for (const auto& each : converted.files) EXPECT_TRUE(fs::exists(each)) << each;
  EXPECT_EQ(nlohmann::json::parse(bytes("out/model.safetensors.index.json"))["metadata"]["total_size"], 2400);
  expect_same(Checkpoint(file("out")).tensors(), tensors);
  // By the new type: half the bytes, half the shards.
  const auto half =
      convert_checkpoint(input, file("h.safetensors"),
                         ConvertOptions().shard_size(800).dtype(at::kHalf).renames({{"*", "x.*"}}));
  EXPECT_EQ(half.files.size(), 3U);
  const Checkpoint read(file("h.safetensors.index.json"));
  for (const auto& item : tensors) {
    EXPECT_TRUE(same(read.tensor("x." + item.key()), item.value().to(at::kHalf))) << item.key();
  }
  // From shards into a file.
  expect_same(convert(Checkpoint(file("out"))), tensors);
}

TEST_F(Convert, ShardsDoNotReplaceTheInputs) {
  const NamedTensors tensors{{"a", random_tensor({100})}, {"b", random_tensor({100})}};
  fs::create_directory(file("m"));
  convert_checkpoint(save("in.safetensors", tensors), file("m/model.safetensors"),
                     ConvertOptions().shard_size(400));
  const Checkpoint shards(file("m"));
  EXPECT_TRUE(contains(error_of([&] {
                         convert_checkpoint(shards, file("m/model.safetensors"),
                                            ConvertOptions().shard_size(400).renames({{"a", "z"}}));
                       }),
                       "is an input"));
  expect_same(Checkpoint(file("m")).tensors(), tensors);
}

TEST_F(Convert, SaysWhatTheNewTypeCannotHold) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  struct Case {
    at::ScalarType from, to;
    double fits, too_much;
  };
  for (const auto& [from, to, fits, too_much] :
       {Case{at::kFloat, at::kHalf, 65504, 65520}, Case{at::kDouble, at::kHalf, -65504, -1e5},
        Case{at::kBFloat16, at::kHalf, 65280, 65536}, Case{at::kFloat, at::kBFloat16, 3.38e38, kLargest},
        Case{at::kFloat, at::kBFloat16, -3.38e38, -kLargest}, Case{at::kDouble, at::kBFloat16, 3e38, 1e300},
        Case{at::kDouble, at::kFloat, kLargest, 1e39}, Case{at::kFloat, at::kFloat8_e4m3fn, 448, 1000},
        Case{at::kHalf, at::kFloat8_e5m2, 57344, 65504}, Case{at::kBFloat16, at::kFloat8_e4m3fn, -448, -1e30},
        Case{at::kFloat8_e5m2, at::kFloat8_e4m3fn, 448, 57344}}) {
    at::Tensor good = at::zeros({6}, at::kDouble), bad = at::zeros({6}, at::kDouble);
    // What was not finite before does not count. e4m3 has no infinity; LibTorch makes its largest number of
    // it.
    good[1] = bad[1] = to == at::kFloat8_e4m3fn ? 0 : INFINITY;
    good[2] = bad[2] = NAN;
    good[3] = fits;
    bad[4] = too_much;
    const auto input = save(
        "in.safetensors", {{"bad", bad.to(from)}, {"good", good.to(from)}, {"i", at::ones({2}, at::kLong)}});
    const NamedTensors converted = convert(input, ConvertOptions().dtype(to).renames({{"bad", "worse"}}));
    EXPECT_TRUE(same(converted["worse"], bad.to(from).to(to)));
    EXPECT_EQ(result.overflowed, std::vector<std::string>{"worse"})
        << c10::toString(from) << " " << c10::toString(to);
  }
}

TEST_F(Convert, OneValueTooLargeIsFoundInManyChunks) {
  at::Tensor large = at::ones({3'000'001}), fine = at::ones({3'000'001});
  large[3'000'000] = 1e6;
  const auto input = save("in.safetensors", {{"fine", fine}, {"large", large}});
  std::atomic<size_t> done = 0;
  result = convert_checkpoint(input, file("out.safetensors"), ConvertOptions().dtype(at::kHalf),
                              [&](size_t bytes) { done += bytes; });
  EXPECT_EQ(result.overflowed, std::vector<std::string>{"large"});
  EXPECT_EQ(done, large.nbytes() * 2);
  EXPECT_TRUE(same(load("out.safetensors")["large"], large.to(at::kHalf)));
}

TEST_F(Convert, NothingOverflowsIntoAWiderType) {
  NamedTensors tensors;
  for (const auto dtype : kFloats) tensors.insert(c10::toString(dtype), random_bits({64, 64}, dtype));
  tensors.erase("Double");
  const auto input = save("in.safetensors", tensors);
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const NamedTensors converted = convert(input, ConvertOptions().dtype(dtype));
    EXPECT_TRUE(result.overflowed.empty());
    for (const auto& item : tensors) {
      EXPECT_TRUE(
          at::allclose(converted[item.key()].to(at::kDouble), item.value().to(at::kDouble), 0, 0, true))
          << item.key();
    }
  }
}

TEST_F(Convert, NamesOfTypes) {
  for (const auto& [name, dtype] :
       std::map<std::string, at::ScalarType>{{"fp64", at::kDouble},
                                             {"F64", at::kDouble},
                                             {"float64", at::kDouble},
                                             {"fp32", at::kFloat},
                                             {"float32", at::kFloat},
                                             {"F32", at::kFloat},
                                             {"fp16", at::kHalf},
                                             {"float16", at::kHalf},
                                             {"F16", at::kHalf},
                                             {"bf16", at::kBFloat16},
                                             {"bfloat16", at::kBFloat16},
                                             {"BF16", at::kBFloat16},
                                             {"fp8_e4m3", at::kFloat8_e4m3fn},
                                             {"float8_e4m3fn", at::kFloat8_e4m3fn},
                                             {"F8_E4M3", at::kFloat8_e4m3fn},
                                             {"fp8_e5m2", at::kFloat8_e5m2},
                                             {"float8_e5m2", at::kFloat8_e5m2},
                                             {"F8_E5M2", at::kFloat8_e5m2}}) {
    EXPECT_EQ(parse_dtype(name), dtype) << name;
  }
  for (const std::string name : {"", "int8", "I64", "fp12", "half "}) {
    const auto message = error_of([&] { parse_dtype(name); });
    EXPECT_TRUE(contains(message, "'" + name + "'") && contains(message, "bf16")) << message;
  }
}

TEST_F(Convert, MetadataSayWhereItComesFrom) {
  const auto input = save("in.safetensors", {{"a.w", at::ones({2})}, {"b.w", at::ones({2})}},
                          {{"license", "MIT"}, {"tpgm.command", "tpgm wise x y"}, {"tpgm.ratio", "0.5"}});
  convert(input, ConvertOptions()
                     .dtype(at::kBFloat16)
                     .renames({{"a.*", "c.*"}})
                     .only({"a.*", "b.*"})
                     .exclude({"b.w"})
                     .command("convert.py in.safetensors"));
  const Metadata metadata = Checkpoint(file("out.safetensors")).metadata();
  EXPECT_EQ(metadata.at("format"), "pt");
  EXPECT_EQ(metadata.at("license"), "MIT");
  EXPECT_EQ(metadata.count("tpgm.ratio"), 0U);
  EXPECT_EQ(metadata.at("tpgm.command"), "convert.py in.safetensors");
  const auto inputs = nlohmann::json::parse(metadata.at("tpgm.inputs"));
  ASSERT_EQ(inputs.size(), 1U);
  EXPECT_EQ(inputs[0]["made_by"], "tpgm wise x y");
  EXPECT_EQ(inputs[0]["files"][0]["bytes"], fs::file_size(file("in.safetensors")));
  for (const std::string slash : {"", "/"}) {
    convert(Checkpoint(golden("torch/hf_bin").string() + slash));
    const Metadata of_folder = Checkpoint(file("out.safetensors")).metadata();
    EXPECT_EQ(of_folder.count("tpgm.command"), 0U);
    EXPECT_EQ(nlohmann::json::parse(of_folder.at("tpgm.inputs"))[0]["name"], "hf_bin");
    EXPECT_EQ(nlohmann::json::parse(of_folder.at("tpgm.inputs"))[0]["format"], "PyTorch archive, 2 shards");
  }
}

TEST_F(Convert, BytesDependNeitherOnFoldersNorOnThreads) {
  const NamedTensors tensors{{"w", random_tensor({1'000'003})}, {"v", random_tensor({10, 10}, at::kHalf)}};
  std::string first;
  for (const int threads : {1, 2, 5}) {
    const auto folder = std::to_string(threads) + "/";
    const auto input = save(folder + "in.safetensors", tensors);
    at::set_num_threads(threads);
    convert_checkpoint(input, file(folder + "x.safetensors"), ConvertOptions().dtype(at::kBFloat16));
    if (first.empty()) first = bytes(folder + "x.safetensors");
    EXPECT_TRUE(bytes(folder + "x.safetensors") == first) << threads;
  }
}

TEST_F(Convert, FailuresLeaveNothingBehind) {
  const NamedTensors tensors{{"w", random_tensor({100'000})}};
  const auto input = save("in.safetensors", tensors);
  fs::create_symlink(file("in.safetensors"), file("link.safetensors"));
  fs::create_hard_link(file("in.safetensors"), file("hard.safetensors"));
  test::write_bytes(file("old.safetensors"), "old");
  for (const std::string name : {"in.safetensors", "link.safetensors", "hard.safetensors"}) {
    EXPECT_TRUE(contains(error_of([&] { convert_checkpoint(input, file(name), {}); }), "is an input"))
        << name;
  }
  EXPECT_TRUE(contains(error_of([&] { convert_checkpoint(input, file("x.pt"), {}); }), "*.safetensors"));
  EXPECT_TRUE(contains(error_of([&] { convert_checkpoint(input, file("no/x.safetensors"), {}); }),
                       file("no/x.safetensors").string()));
  for (const int64_t shard_size : {0, 1000}) {
    const test::FileSizeLimit limit(4096);
    const auto message = error_of(
        [&] { convert_checkpoint(input, file("old.safetensors"), ConvertOptions().shard_size(shard_size)); });
    EXPECT_TRUE(contains(message, "cannot write '" + file("old.safetensors").string())) << message;
  }
  EXPECT_EQ(bytes("old.safetensors"), "old");
  EXPECT_EQ(files_in_folder(), 4U);
  expect_same(load("in.safetensors"), tensors);
}

}  // namespace
}  // namespace tpgm::test_convert
