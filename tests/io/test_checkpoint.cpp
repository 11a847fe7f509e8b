// Checkpoints of every format against what PyTorch reads from them, nesting, prefixes, folders, and files
// that must be refused.
#include "tpgm/io/checkpoint.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <ostream>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "scratch.h"
#include "tpgm/io/safetensors.h"

namespace tpgm::test_checkpoint {
namespace {

using namespace test;
using CheckpointTest = test::Scratch;
namespace fs = std::filesystem;

fs::path golden(const std::string& name) { return fs::path(TPGM_TEST_DATA) / "io" / "goldens" / name; }
fs::path torch_golden(const std::string& name) { return golden("torch") / name; }

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const auto& text : texts) all += text + "\n";
  return all;
}

// safetensors has no complex128, so that the goldens hold "NAME.real", with pairs of doubles.
at::Tensor comparable(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kComplexDouble ? at::view_as_real(tensor) : tensor;
}

void expect_slices(const Checkpoint& checkpoint, const std::string& name, std::mt19937& random) {
  const at::Tensor flat = checkpoint.tensor(name).contiguous().flatten();
  const int64_t numel = checkpoint.entry(name).numel();
  ASSERT_EQ(flat.numel(), numel) << name;
  std::vector<std::pair<int64_t, int64_t>> ranges{{0, numel}, {0, 0}, {numel, 0}};
  for (int i = 0; i < 8; ++i) {
    const auto begin = static_cast<int64_t>(random() % static_cast<uint64_t>(numel + 1));
    ranges.emplace_back(begin, static_cast<int64_t>(random() % static_cast<uint64_t>(numel - begin + 1)));
  }
  for (const auto& [begin, count] : ranges) {
    EXPECT_TRUE(same(checkpoint.slice(name, begin, count), flat.narrow(0, begin, count)))
        << name << " " << begin << " + " << count;
  }
}

void expect_equal(const Checkpoint& checkpoint, const fs::path& expected_file) {
  const SafetensorsFile expected(expected_file);
  std::set<std::string> names(checkpoint.names().begin(), checkpoint.names().end()), expected_names;
  EXPECT_EQ(names.size(), checkpoint.names().size()) << "a name is there twice";
  std::mt19937 random(0);
  for (const auto& item : expected.tensors()) {
    std::string name = item.key();
    if (!checkpoint.contains(name) && name.ends_with(".real")) name.resize(name.size() - 5);
    expected_names.insert(name);
    ASSERT_TRUE(checkpoint.contains(name)) << name;
    const at::Tensor tensor = checkpoint.tensor(name);
    EXPECT_TRUE(same(comparable(tensor), item.value())) << name;
    EXPECT_EQ(checkpoint.entry(name).dtype, tensor.scalar_type()) << name;
    EXPECT_EQ(at::IntArrayRef(checkpoint.entry(name).shape), tensor.sizes()) << name;
    EXPECT_FALSE(tensor.requires_grad()) << name;
    expect_slices(checkpoint, name, random);
  }
  EXPECT_EQ(names, expected_names);
  EXPECT_EQ(checkpoint.tensors().size(), names.size());
}

struct Golden {
  std::string name;
  std::string key = {};
  std::string expected = {};  // of the same name unless said otherwise
  std::string prefix = {};
  std::vector<std::string> notes = {};
};

std::string test_name(const ::testing::TestParamInfo<Golden>& info) {
  return info.param.name + "_" + std::to_string(info.index);
}

void PrintTo(const Golden& golden, std::ostream* stream) { *stream << golden.name << " " << golden.key; }

class CheckpointGolden : public ::testing::TestWithParam<Golden> {};

TEST_P(CheckpointGolden, IsWhatPyTorchReads) {
  const Golden& param = GetParam();
  Checkpoint checkpoint(torch_golden(param.name + ".pt"), param.key);
  const auto expected = param.expected.empty() ? param.name : param.expected;
  expect_equal(checkpoint, torch_golden(expected + ".expected.safetensors"));
  EXPECT_EQ(checkpoint.path(), torch_golden(param.name + ".pt"));
  EXPECT_TRUE(checkpoint.metadata().empty());
  EXPECT_EQ(checkpoint.format(), param.name.starts_with("script_") ? "TorchScript archive"
                                 : contains(param.name, "legacy")  ? "PyTorch pickle (before 1.6)"
                                                                   : "PyTorch archive");
  for (const auto& note : param.notes) {
    EXPECT_TRUE(contains(joined(checkpoint.notes()), note)) << joined(checkpoint.notes()) << "lacks " << note;
  }

  EXPECT_EQ(checkpoint.prefix(), param.prefix);
  const std::string prefix = checkpoint.prefix();
  const std::vector<std::string> names = checkpoint.names();
  const NamedTensors tensors = checkpoint.tensors();
  checkpoint.restore_prefix();
  ASSERT_EQ(checkpoint.names().size(), names.size());
  for (const auto& name : names) EXPECT_TRUE(same(checkpoint.tensor(prefix + name), tensors[name])) << name;
}

INSTANTIATE_TEST_SUITE_P(Archives, CheckpointGolden,
                         ::testing::Values(Golden{"zip_dtypes"}, Golden{"zip_views"}, Golden{"zip_shapes"},
                                           Golden{"zip_module"}, Golden{"zip_parameters"}, Golden{"zip_tied"},
                                           Golden{"zip_subclasses"}, Golden{"zip_defaultdict"},
                                           Golden{"zip_names"}, Golden{"zip_protocol2"},
                                           Golden{"zip_protocol3"}, Golden{"zip_protocol4"},
                                           Golden{"zip_protocol5"}, Golden{"zip_many"},
                                           Golden{"zip_repacked"}, Golden{"zip_cuda"}),
                         test_name);

INSTANTIATE_TEST_SUITE_P(
    Streams, CheckpointGolden,
    ::testing::Values(Golden{"legacy_dtypes"}, Golden{"legacy_views"}, Golden{"legacy_shapes"},
                      Golden{"legacy_module"}, Golden{"legacy_parameters"}, Golden{"legacy_tied"},
                      Golden{"legacy_subclasses"}, Golden{"legacy_defaultdict"}, Golden{"legacy_names"},
                      Golden{"legacy_protocol2"}, Golden{"legacy_protocol3"}, Golden{"legacy_protocol4"},
                      Golden{"legacy_protocol5"}, Golden{"legacy_cuda"}, Golden{"legacy_storage_view"},
                      Golden{.name = "legacy_python2", .prefix = "module."}),
    test_name);

INSTANTIATE_TEST_SUITE_P(Scripts, CheckpointGolden,
                         ::testing::Values(Golden{"script_scripted"}, Golden{"script_traced"},
                                           Golden{"script_half"}, Golden{"script_linear"}),
                         test_name);

INSTANTIATE_TEST_SUITE_P(
    Nested, CheckpointGolden,
    ::testing::Values(Golden{.name = "nested_training", .notes = {"'state_dict'", "'epoch'", "'optimizer'"}},
                      Golden{.name = "nested_training4", .notes = {"'state_dict'"}},
                      Golden{.name = "nested_legacy", .notes = {"'state_dict'"}},
                      Golden{.name = "nested_model", .notes = {"'model'", "'optimizer'"}},
                      Golden{.name = "nested_twice", .notes = {"'model'", "'state_dict'"}},
                      Golden{.name = "nested_twice", .key = "model.state_dict", .notes = {"'state_dict'"}},
                      Golden{.name = "nested_unknown", .notes = {"'weird'"}},
                      Golden{.name = "nested_unknown", .key = "weird", .notes = {"'weird'"}},
                      Golden{.name = "nested_ema", .notes = {"'state_dict'", "'state_dict_ema'"}},
                      Golden{.name = "nested_ema", .key = "state_dict_ema", .expected = "nested_ema_ema"},
                      Golden{.name = "nested_dino", .notes = {"'optimizer'"}},
                      Golden{.name = "nested_dino", .key = "teacher", .expected = "nested_dino_teacher"},
                      Golden{.name = "nested_dino",
                             .key = "student",
                             .expected = "nested_dino_student",
                             .prefix = "module."}),
    test_name);

INSTANTIATE_TEST_SUITE_P(
    Prefixes, CheckpointGolden,
    ::testing::Values(
        Golden{.name = "prefix_ddp", .prefix = "module.", .notes = {"'module.'"}},
        Golden{.name = "prefix_compiled", .prefix = "_orig_mod.", .notes = {"'_orig_mod.'"}},
        Golden{.name = "prefix_ddp_compiled", .prefix = "module.", .notes = {"module.", "_orig_mod."}},
        Golden{.name = "prefix_backbone", .prefix = "backbone.", .notes = {"'backbone.'"}},
        Golden{.name = "prefix_inner", .notes = {"_orig_mod."}}, Golden{"prefix_not_all"}),
    test_name);

TEST_F(CheckpointTest, NoGoldenIsForgotten) {
  std::set<std::string> tested;
  const auto* unit_test = ::testing::UnitTest::GetInstance();
  for (int i = 0; i < unit_test->total_test_suite_count(); ++i) {
    const auto* suite = unit_test->GetTestSuite(i);
    for (int j = 0; j < suite->total_test_count(); ++j) {
      const std::string name = suite->GetTestInfo(j)->name();  // "IsWhatPyTorchReads/zip_dtypes_0"
      const size_t begin = name.rfind('/') + 1;
      tested.insert(name.substr(begin, name.rfind('_') - begin));
    }
  }
  for (const auto& item : fs::directory_iterator(golden("torch"))) {
    const std::string name = item.path().stem().string();
    if (item.path().extension() != ".pt" || name.starts_with("refused_")) continue;
    EXPECT_TRUE(tested.contains(name)) << item.path();
  }
}

TEST_F(CheckpointTest, SafetensorsAreReadAsTheyAre) {
  for (const std::string name : {"dtypes", "shapes", "names", "nothing"}) {
    const Checkpoint checkpoint(golden(name + ".safetensors"));
    expect_equal(checkpoint, golden(name + ".safetensors"));
    EXPECT_EQ(checkpoint.format(), "safetensors");
    EXPECT_EQ(checkpoint.metadata(), SafetensorsFile(golden(name + ".safetensors")).metadata());
    EXPECT_EQ(checkpoint.files(), std::vector{golden(name + ".safetensors")});
    EXPECT_EQ(checkpoint.prefix(), "");
  }
  save_safetensors({{"module.a", at::ones({2})}, {"module.b", at::zeros({3})}}, file("ddp"));
  Checkpoint wrapped(file("ddp"));
  EXPECT_EQ(wrapped.prefix(), "module.");
  EXPECT_TRUE(same(wrapped.tensor("a"), at::ones({2})));
  wrapped.restore_prefix();
  EXPECT_FALSE(wrapped.contains("a"));
  EXPECT_TRUE(same(wrapped.tensor("module.b"), at::zeros({3})));
}

TEST_F(CheckpointTest, ContentDecidesNotTheSuffix) {
  fs::copy_file(torch_golden("zip_module.pt"), file("a.safetensors"));
  fs::copy_file(torch_golden("hf_single/model.safetensors"), file("b.pt"));
  fs::copy_file(torch_golden("legacy_module.pt"), file("c"));
  fs::copy_file(torch_golden("script_half.pt"), file("d.bin"));
  expect_equal(Checkpoint(file("a.safetensors")), torch_golden("zip_module.expected.safetensors"));
  expect_equal(Checkpoint(file("b.pt")), torch_golden("hf.expected.safetensors"));
  expect_equal(Checkpoint(file("c")), torch_golden("legacy_module.expected.safetensors"));
  expect_equal(Checkpoint(file("d.bin")), torch_golden("script_half.expected.safetensors"));
}

TEST_F(CheckpointTest, TensorsAreStridedViewsThatOutliveItAndNeverReachTheFile) {
  for (const std::string kind : {"zip", "legacy"}) {
    const auto path = file(kind + ".pt");
    fs::copy_file(torch_golden(kind + "_views.pt"), path);
    const std::string before = read_bytes(path);
    at::Tensor base, transposed;
    {
      const Checkpoint checkpoint(path), copy = checkpoint;  // NOLINT: the copy is what is tested
      base = checkpoint.tensor("base");
      transposed = copy.tensor("transposed");
      EXPECT_EQ(checkpoint.entry("transposed").strides, (std::vector<int64_t>{1, 6}));
      EXPECT_EQ(checkpoint.entry("stepped").strides, (std::vector<int64_t>{6, 2}));
      EXPECT_EQ(checkpoint.entry("expanded").strides, (std::vector<int64_t>{0, 1}));
      EXPECT_TRUE(checkpoint.entry("base").strides.empty());
    }
    fs::remove(path);
    EXPECT_TRUE(same(transposed.t(), base));
    write_bytes(path, before);
    const Checkpoint checkpoint(path);
    checkpoint.tensor("base").fill_(-1);
    EXPECT_EQ(read_bytes(path), before);
    if (kind == "legacy") continue;  // its storages lie at odd offsets: tensors may be copies
    EXPECT_EQ(transposed.strides(), at::IntArrayRef({1, 6}));
    EXPECT_EQ(checkpoint.tensor("base").const_data_ptr(), checkpoint.tensor("tied").const_data_ptr());
    EXPECT_TRUE(same(checkpoint.tensor("tied"), at::full({4, 6}, -1, at::kFloat)));
  }
}

TEST_F(CheckpointTest, NamesWhatItCannotFind) {
  const Checkpoint checkpoint(torch_golden("zip_module.pt"));
  EXPECT_TRUE(contains(error_of([&] { checkpoint.tensor("no.such"); }), "no.such"));
  EXPECT_TRUE(contains(error_of([&] { checkpoint.slice("no.such", 0, 0); }), "no.such"));
  EXPECT_TRUE(contains(error_of([&] { checkpoint.entry("no.such"); }), "no.such"));
  EXPECT_TRUE(contains(error_of([&] { Checkpoint(file("absent.pt")); }), file("absent.pt").string()));
  const std::string message = error_of([&] { Checkpoint(torch_golden("nested_ema.pt"), "nope"); });
  EXPECT_TRUE(contains(message, "'nope'") && contains(message, "'state_dict_ema'")) << message;
  EXPECT_THROW(Checkpoint(torch_golden("nested_training.pt"), "epoch"), c10::Error);
  EXPECT_THROW(Checkpoint(torch_golden("script_half.pt"), "state_dict"), c10::Error);
  const auto refused = torch_golden("refused_list.pt");
  EXPECT_EQ(error_of([&] { Checkpoint checkpoint(refused); }).rfind("[Checkpoint] ", 0), 0U);
  EXPECT_EQ(error_of([&] { load_state_dict(refused); }).rfind("[load_state_dict] ", 0), 0U);
}

// --- refused
// --------------------------------------------------------------------------------------------------

TEST_F(CheckpointTest, RefusesByName) {
  const std::map<std::string, std::string> reasons{
      {"system_zip", "posix.system"},
      {"system_zip4", "posix.system"},
      {"system_legacy", "posix.system"},
      {"system_argument", "posix.system"},
      {"system_inst", "os.system"},
      {"system_obj", "os.system"},
      {"eval", "eval"},
      {"module_zip", "torch.nn.modules.container.Sequential"},
      {"module_legacy", "__main__.Tiny"},
      {"nested_module", "torch.nn.modules.container.Sequential"},
      {"sparse", "sparse"},
      {"sparse_csr", "sparse"},
      {"quantized", "quantized"},
      {"meta", "meta"},
      {"nested_tensor", "nested"},
      {"conj", "conj"},
      {"neg", "neg"},
      {"bare", "tensor"},
      {"list", "list"},
      {"no_tensors", "no tensors"},
      {"pickle", "pickle"},
      {"pickled_tensor", ""},
      {"big_endian_zip", "big-endian"},
      {"big_endian_legacy", "big-endian"},
      {"deflated", "compress"},
      {"beyond_storage", "'w'"},
      {"beyond_record", "'w'"},
      {"missing_record", "'w'"},
      {"path", "'w'"},
      {"overflow", "'w'"},
      {"huge_stride", "'w'"},
      {"negative_offset", "offset"},
      {"negative_size", "negative"},
      {"negative_stride", "negative"},
      {"ranks_differ", "strides"},
      {"float_size", "sizes"},
      {"wrong_kind", "module"},
      {"short_id", ""},
      {"unknown_storage", "OrderedDict"},
  };
  for (const auto& [name, reason] : reasons) {
    const auto path = torch_golden("refused_" + name + ".pt");
    const std::string message = error_of([&] { Checkpoint{path}; });
    EXPECT_EQ(message.rfind("[Checkpoint] ", 0), 0U) << message;
    ASSERT_TRUE(contains(message, path.string())) << message;
    std::string rest = message;  // the path may well contain the reason
    rest.erase(rest.find(path.string()), path.string().size());
    EXPECT_TRUE(contains(rest, reason)) << message << "\nexpected: " << reason;
    EXPECT_LT(message.size(), 1000U);
  }
  for (const auto& item : fs::directory_iterator(golden("torch"))) {
    const std::string name = item.path().stem().string();
    EXPECT_TRUE(!name.starts_with("refused_") || reasons.contains(name.substr(8))) << "not tested: " << name;
  }
}

TEST_F(CheckpointTest, RefusesEveryTruncation) {
  for (const std::string name : {"zip_tied", "legacy_tied", "script_linear"}) {
    const std::string bytes = read_bytes(torch_golden(name + ".pt"));
    for (size_t size = 0; size < bytes.size(); ++size) {
      write_bytes(file("cut.pt"), bytes.substr(0, size));
      EXPECT_THROW(Checkpoint(file("cut.pt")), c10::Error) << name << " " << size;
    }
  }
}

TEST_F(CheckpointTest, DamageIsReadOrRefusedNeverWorse) {
  std::mt19937 random(0);
  for (const std::string name : {"zip_views", "zip_tied", "legacy_views", "legacy_tied", "legacy_python2",
                                 "nested_training4", "script_linear"}) {
    const std::string good = read_bytes(torch_golden(name + ".pt"));
    for (int i = 0; i < 500; ++i) {
      std::string bytes = good;
      for (auto flips = 1 + random() % 3; flips > 0; --flips) {
        bytes[random() % bytes.size()] = static_cast<char>(random());
      }
      write_bytes(file("damaged.pt"), bytes);
      try {
        const Checkpoint checkpoint(file("damaged.pt"));
        for (const auto& tensor : checkpoint.names()) {
          const auto numel = checkpoint.entry(tensor).numel();
          checkpoint.slice(tensor, numel / 2, std::min<int64_t>(numel - numel / 2, 1000)).clone();
        }
      } catch (const c10::Error&) {  // what it should throw, and all it may throw
      }
    }
  }
}

TEST_F(CheckpointTest, RefusesOtherFiles) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"empty", ""},
      {"text.pt", "hello, world\n"},
      {"page.bin", "<!DOCTYPE html><html>Not found</html>"},
      {"pointer.bin", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"},
      {"zip.pt", std::string("PK\x05\x06", 4) + std::string(18, '\0')},
      {"zeros.pt", std::string(4096, '\0')},
      {"pickle.pt", "\x80\x02."}};
  for (const auto& [name, bytes] : cases) {
    write_bytes(file(name), bytes);
    const std::string message = error_of([&] { Checkpoint{file(name)}; });
    EXPECT_TRUE(contains(message, file(name).string())) << message;
  }
}

// --- folders
// --------------------------------------------------------------------------------------------------

void copy_folder(const fs::path& from, const fs::path& to) {
  fs::create_directories(to);
  for (const auto& item : fs::directory_iterator(from))
    fs::copy_file(item.path(), to / item.path().filename());
}

TEST_F(CheckpointTest, HuggingFaceFolders) {
  const auto expected = torch_golden("hf.expected.safetensors");
  const Checkpoint sharded(torch_golden("hf_sharded"));
  expect_equal(sharded, expected);
  EXPECT_TRUE(contains(sharded.format(), "safetensors") && contains(sharded.format(), "2 shards"))
      << sharded.format();
  EXPECT_EQ(sharded.metadata().at("format"), "pt");
  const std::set<fs::path> files(sharded.files().begin(), sharded.files().end());
  EXPECT_EQ(files, (std::set{torch_golden("hf_sharded/model.safetensors.index.json"),
                             torch_golden("hf_sharded/model-00001-of-00002.safetensors"),
                             torch_golden("hf_sharded/model-00002-of-00002.safetensors")}));
  EXPECT_EQ(sharded.mappings().size(), sharded.files().size());
  expect_equal(Checkpoint(torch_golden("hf_sharded/model.safetensors.index.json")), expected);

  const Checkpoint single(torch_golden("hf_single"));
  expect_equal(single, expected);
  EXPECT_EQ(single.format(), "safetensors");

  const Checkpoint bin(torch_golden("hf_bin"));
  expect_equal(bin, expected);
  EXPECT_EQ(bin.format(), "PyTorch archive, 2 shards");
  expect_equal(Checkpoint(torch_golden("hf_bin/pytorch_model.bin.index.json")), expected);

  // As many are on the hub: both formats.
  copy_folder(torch_golden("hf_single"), file("both"));
  fs::copy_file(torch_golden("zip_module.pt"), file("both/pytorch_model.bin"));
  const Checkpoint both(file("both"));
  expect_equal(both, expected);
  EXPECT_EQ(both.format(), "safetensors");

  // As in the hub's cache: names that link to blobs elsewhere.
  fs::create_directories(file("blobs"));
  fs::create_directories(file("snapshot"));
  for (const auto& item : fs::directory_iterator(torch_golden("hf_sharded"))) {
    const auto name = item.path().filename();
    fs::copy_file(item.path(), file("blobs") / name);
    fs::create_symlink(fs::path("..") / "blobs" / name, file("snapshot") / name);
  }
  expect_equal(Checkpoint(file("snapshot")), expected);
}

TEST_F(CheckpointTest, AFolderWithOneCheckpoint) {
  fs::create_directories(file("one"));
  fs::copy_file(torch_golden("nested_training.pt"), file("one/epoch3.pt"));
  write_bytes(file("one/log.txt"), "loss 1\n");
  write_bytes(file("one/config.json"), "{}");
  const Checkpoint checkpoint(file("one"));
  expect_equal(checkpoint, torch_golden("nested_training.expected.safetensors"));
  EXPECT_EQ(checkpoint.files(), std::vector{file("one/epoch3.pt")});
}

TEST_F(CheckpointTest, ARunFolderGivesTheBestElseTheLast) {
  fs::create_directories(file("run"));
  save_safetensors({{"w", at::ones({2})}}, file("run/best.safetensors"));
  save_safetensors({{"w", at::zeros({2})}}, file("run/last.safetensors"));
  const Checkpoint best(file("run"));
  EXPECT_TRUE(same(best.tensor("w"), at::ones({2})));
  EXPECT_TRUE(contains(joined(best.notes()), "best.safetensors")) << joined(best.notes());
  fs::remove(file("run/best.safetensors"));
  EXPECT_TRUE(same(Checkpoint(file("run")).tensor("w"), at::zeros({2})));
}

TEST_F(CheckpointTest, FoldersThatLeaveAChoiceOrNone) {
  fs::create_directories(file("empty"));
  EXPECT_TRUE(contains(error_of([&] { Checkpoint(file("empty")); }), file("empty").string()));
  write_bytes(file("empty/readme.md"), "nothing here");
  EXPECT_TRUE(contains(error_of([&] { Checkpoint(file("empty")); }), file("empty").string()));

  fs::create_directories(file("two"));
  fs::copy_file(torch_golden("zip_module.pt"), file("two/a.pt"));
  fs::copy_file(torch_golden("legacy_module.pt"), file("two/b.pt"));
  const std::string message = error_of([&] { Checkpoint(file("two")); });
  EXPECT_TRUE(contains(message, "a.pt") && contains(message, "b.pt")) << message;
}

TEST_F(CheckpointTest, BrokenIndexes) {
  const auto folder = file("model");
  const auto index = folder / "model.safetensors.index.json";
  fs::create_directories(folder);
  save_safetensors({{"w", at::ones({2})}}, folder / "shard.safetensors");
  save_safetensors({{"w", at::ones({2})}}, file("x.safetensors"));
  const std::string absolute = file("x.safetensors").string();
  struct Case {
    std::string json;
    std::vector<std::string> message;
  };
  const std::vector<Case> cases{
      {R"({"weight_map":{"w":"shard.safetensors","u":"absent.safetensors"}})", {"absent.safetensors"}},
      {R"({"weight_map":{"w":"shard.safetensors","u":"shard.safetensors"}})", {"'u'", "shard.safetensors"}},
      {R"({"weight_map":{"w":"../x.safetensors"}})", {"../x.safetensors"}},
      {R"({"weight_map":{"w":"sub/../../x.safetensors"}})", {"x.safetensors"}},
      {R"({"weight_map":{"w":")" + absolute + "\"}}", {absolute}},
      {R"({"weight_map":{"w":""}})", {}},
      {R"({"weight_map":{"w":"."}})", {}},
      {R"({"weight_map":{"w":7}})", {"'w'"}},
      {R"({"weight_map":["w"]})", {"weight_map"}},
      {R"({"metadata":{}})", {"weight_map"}},
      {R"({"weight_map":{"w":"shard.safetensors")", {}},
      {"[]", {}},
      {"", {}},
  };
  for (const auto& [json, fragments] : cases) {
    write_bytes(index, json);
    for (const auto& path : {folder, index}) {
      const std::string message = error_of([&] { Checkpoint{path}; });
      EXPECT_EQ(message.rfind("[Checkpoint] ", 0), 0U) << message;
      EXPECT_TRUE(contains(message, folder.string())) << message;
      for (const auto& fragment : fragments)
        EXPECT_TRUE(contains(message, fragment)) << json << "\n" << message;
    }
  }
  write_bytes(index, R"({"weight_map":{"w":"shard.safetensors"}})");  // nothing else was wrong
  EXPECT_TRUE(same(Checkpoint(folder).tensor("w"), at::ones({2})));
}

TEST_F(CheckpointTest, ADamagedShardIsNamed) {
  const std::vector<std::pair<std::string, std::string>> shards{
      {"hf_sharded", "model-00002-of-00002.safetensors"}, {"hf_bin", "pytorch_model-00002-of-00002.bin"}};
  for (const auto& [folder, shard] : shards) {
    copy_folder(torch_golden(folder), file(folder));
    fs::resize_file(file(folder) / shard, fs::file_size(file(folder) / shard) - 1);
    const std::string message = error_of([&] { Checkpoint{file(folder)}; });
    EXPECT_TRUE(contains(message, shard)) << message;
  }
}

}  // namespace
}  // namespace tpgm::test_checkpoint
