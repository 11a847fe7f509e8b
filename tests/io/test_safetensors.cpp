// safetensors: round trips, files of the reference implementation, malformed files, failures while writing.
#include "tpgm/io/safetensors.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <cstdint>
#include <vector>

#include "scratch.h"

namespace tpgm::test_safetensors {
namespace {

using namespace test;
using Safetensors = test::Scratch;

const std::vector<at::ScalarType> kAllDtypes{at::kBool,
                                             at::kByte,
                                             at::kChar,
                                             at::kShort,
                                             at::kUInt16,
                                             at::kInt,
                                             at::kUInt32,
                                             at::kLong,
                                             at::kUInt64,
                                             at::kHalf,
                                             at::kBFloat16,
                                             at::kFloat,
                                             at::kDouble,
                                             at::kComplexFloat,
                                             at::kFloat8_e4m3fn,
                                             at::kFloat8_e5m2,
                                             at::kFloat8_e4m3fnuz,
                                             at::kFloat8_e5m2fnuz,
                                             at::kFloat8_e8m0fnu};

// Random bits of the dtype, NaNs and all.
at::Tensor random_bits(at::IntArrayRef shape, at::ScalarType dtype) {
  const int64_t bytes = c10::multiply_integers(shape) * static_cast<int64_t>(c10::elementSize(dtype));
  const at::Tensor bits = at::randint(0, dtype == at::kBool ? 2 : 256, {bytes}, at::kByte);
  return bits.view(dtype).reshape(shape);
}

// Header length, header, data: a file by hand.
std::string file_bytes(const std::string& header, const std::string& data = "") {
  std::string bytes(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + data;
}

std::filesystem::path golden(const std::string& name) {
  return std::filesystem::path(TPGM_TEST_DATA) / "io" / "goldens" / name;
}

TEST_F(Safetensors, RoundTripOfEveryDtypeAndRank) {
  const std::vector<std::vector<int64_t>> shapes{{}, {5}, {2, 3}, {3, 1, 2}, {2, 2, 3, 2}, {0}, {4, 0, 2}};
  NamedTensors tensors;
  for (const auto dtype : kAllDtypes) {
    for (size_t i = 0; i < shapes.size(); ++i) {
      tensors.insert(std::string(c10::toString(dtype)) + "." + std::to_string(i),
                     random_bits(shapes[i], dtype));
    }
  }
  save_safetensors(tensors, file("all.safetensors"), {{"a", "1"}, {"b", "\n\"é"}});
  const SafetensorsFile opened(file("all.safetensors"));
  EXPECT_EQ(opened.metadata(), (std::map<std::string, std::string>{{"a", "1"}, {"b", "\n\"é"}}));
  ASSERT_EQ(opened.entries().size(), tensors.size());
  for (const auto& item : tensors) {
    const at::Tensor loaded = opened.tensor(item.key());
    EXPECT_TRUE(same(loaded, item.value())) << item.key();
    EXPECT_TRUE(loaded.is_contiguous()) << item.key();
    EXPECT_FALSE(loaded.requires_grad());
  }
}

TEST_F(Safetensors, NonContiguousSharedAndLazyTensorsAreWrittenWhole) {
  const at::Tensor base = at::arange(24, at::kFloat).reshape({4, 6});
  const at::Tensor complex = at::complex(base, base + 1);
  const NamedTensors tensors{{"transposed", base.t()},
                             {"sliced", base.slice(1, 1, 6, 2)},
                             {"expanded", base[0].expand({3, 6})},
                             {"base", base},
                             {"alias", base},
                             {"conj", at::conj(complex)},
                             {"imag of conj", at::imag(at::conj(complex))},
                             {"parameter", base.clone().requires_grad_()}};
  save_safetensors(tensors, file("views.safetensors"));
  const NamedTensors loaded = SafetensorsFile(file("views.safetensors")).tensors();
  ASSERT_EQ(loaded.size(), tensors.size());
  for (const auto& item : tensors) {
    EXPECT_TRUE(same(loaded[item.key()], item.value().resolve_neg())) << item.key();
  }
}

TEST_F(Safetensors, BytesDependOnContentsAlone) {
  const at::Tensor half = at::ones({3}, at::kHalf), wide = at::ones({2}, at::kDouble),
                   byte = at::ones({1}, at::kByte);
  save_safetensors({{"c", half}, {"a", byte}, {"b", wide}, {"a2", wide}}, file("1"),
                   {{"x", "1"}, {"y", "2"}});
  save_safetensors({{"a2", wide}, {"a", byte}, {"b", wide}, {"c", half}}, file("2"),
                   {{"y", "2"}, {"x", "1"}});
  EXPECT_EQ(read_bytes(file("1")), read_bytes(file("2")));
  const SafetensorsFile opened(file("1"));
  std::vector<std::string> names;
  for (const auto& entry : opened.entries()) {
    names.push_back(entry.key());
    EXPECT_EQ(entry->offset % c10::elementSize(entry->dtype), 0U);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"a2", "b", "c", "a"}));
}

TEST_F(Safetensors, GoldenDtypes) {
  const SafetensorsFile opened(golden("dtypes.safetensors"));
  EXPECT_EQ(opened.entries().size(), kAllDtypes.size());
  const at::Tensor i = at::arange(6).reshape({2, 3});
  EXPECT_TRUE(same(opened.tensor("bool"), i % 2 == 0));
  EXPECT_TRUE(same(opened.tensor("complex64"), at::complex(i.to(at::kFloat), (i - 2).to(at::kFloat))));
  for (const auto& [name, dtype] : std::map<std::string, at::ScalarType>{
           {"int8", at::kChar}, {"int16", at::kShort}, {"int32", at::kInt}, {"int64", at::kLong}}) {
    EXPECT_TRUE(same(opened.tensor(name), (i - 2).to(dtype))) << name;
  }
  for (const auto& [name, dtype] : std::map<std::string, at::ScalarType>{
           {"uint8", at::kByte}, {"uint16", at::kUInt16}, {"uint32", at::kUInt32}, {"uint64", at::kUInt64}}) {
    EXPECT_TRUE(same(opened.tensor(name), (-1 - i).to(dtype))) << name;  // the largest value is -1, wrapped
  }
  for (const auto& [name, dtype] :
       std::map<std::string, at::ScalarType>{{"float16", at::kHalf},
                                             {"float32", at::kFloat},
                                             {"float64", at::kDouble},
                                             {"bfloat16", at::kBFloat16},
                                             {"float8_e4m3fn", at::kFloat8_e4m3fn},
                                             {"float8_e5m2", at::kFloat8_e5m2},
                                             {"float8_e4m3fnuz", at::kFloat8_e4m3fnuz},
                                             {"float8_e5m2fnuz", at::kFloat8_e5m2fnuz}}) {
    EXPECT_TRUE(same(opened.tensor(name), (i / 2. - 1).to(dtype))) << name;
  }
  EXPECT_TRUE(same(opened.tensor("float8_e8m0fnu"), at::exp2(i.to(at::kFloat)).to(at::kFloat8_e8m0fnu)));
}

TEST_F(Safetensors, GoldenShapesAndNames) {
  const SafetensorsFile shapes(golden("shapes.safetensors"));
  EXPECT_EQ(shapes.metadata(), (std::map<std::string, std::string>{{"format", "pt"}}));
  const std::vector<int64_t> sizes{2, 3, 1, 2};
  for (size_t rank = 0; rank <= 4; ++rank) {
    const at::IntArrayRef shape(sizes.data(), rank);
    const at::Tensor expected = at::arange(c10::multiply_integers(shape), at::kFloat).reshape(shape);
    EXPECT_TRUE(same(shapes.tensor("rank" + std::to_string(rank)), expected)) << rank;
  }
  EXPECT_TRUE(same(shapes.tensor("empty.first"), at::empty({0, 3}, at::kFloat)));
  EXPECT_TRUE(same(shapes.tensor("empty.last"), at::empty({3, 0}, at::kLong)));

  const SafetensorsFile names(golden("names.safetensors"));
  EXPECT_EQ(names.metadata(), (std::map<std::string, std::string>{{"ключ", "\"значение\"\x7f"}}));
  const std::vector<std::string> expected{"quote \" back\\slash", "tab\tnew\nline\x01", "δ/日本/🦊", ""};
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(names.tensor(expected[i]).item<int>(), static_cast<int>(i) + 1) << expected[i];
  }
  EXPECT_TRUE(SafetensorsFile(golden("nothing.safetensors")).entries().is_empty());
}

TEST_F(Safetensors, WritesTheBytesOfTheReferenceImplementation) {
  for (const std::string name : {"dtypes", "shapes", "names", "nothing"}) {
    const SafetensorsFile opened(golden(name + ".safetensors"));
    save_safetensors(opened.tensors(), file(name), opened.metadata());
    EXPECT_EQ(read_bytes(file(name)), read_bytes(opened.path())) << name;
  }
}

TEST_F(Safetensors, TensorsAliasTheMapOutliveItAndNeverReachTheFile) {
  save_safetensors({{"w", at::ones({8}, at::kFloat)}}, file("w.safetensors"));
  const std::string before = read_bytes(file("w.safetensors"));
  at::Tensor tensor, again;
  {
    const SafetensorsFile opened(file("w.safetensors"));
    tensor = opened.tensor("w");
    again = opened.tensor("w");
  }
  EXPECT_EQ(tensor.data_ptr(), again.data_ptr());
  tensor.fill_(7);
  EXPECT_EQ(again.sum().item<float>(), 56);
  EXPECT_EQ(read_bytes(file("w.safetensors")), before);
  // What is mapped can be written back to the file it came from.
  save_safetensors({{"w", tensor}}, file("w.safetensors"));
  EXPECT_EQ(SafetensorsFile(file("w.safetensors")).tensor("w").sum().item<float>(), 56);
  EXPECT_EQ(tensor.sum().item<float>(), 56);
}

TEST_F(Safetensors, UnalignedDataIsCopiedToAlignedMemory) {
  const std::vector<float> values{1, 2, 3};
  const std::string data(reinterpret_cast<const char*>(values.data()), 12);
  const std::string header = R"({"w":{"data_offsets":[0,12],"dtype":"F32","shape":[3]}})";
  for (size_t padding = 0; padding < 8; ++padding) {
    write_bytes(file("odd.safetensors"), file_bytes(header + std::string(padding, ' '), data));
    const at::Tensor tensor = SafetensorsFile(file("odd.safetensors")).tensor("w");
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data_ptr()) % 4, 0U);
    EXPECT_TRUE(same(tensor, at::tensor(values)));
  }
}

TEST_F(Safetensors, AcceptsWhatTheFormatAllows) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"{}", ""},
      {"{} \n\t", ""},
      {R"({"__metadata__":{}})", ""},
      // any order of the data, an empty tensor between two others, a field of a later version
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]},"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
       R"("c":{"dtype":"F64","shape":[0],"data_offsets":[1,1],"later":[{"x":null}]}})",
       "123"},
  };
  for (const auto& [header, data] : cases) {
    write_bytes(file("ok.safetensors"), file_bytes(header, data));
    EXPECT_NO_THROW(SafetensorsFile(file("ok.safetensors")).tensors()) << header;
  }
}

// One tensor of two bytes, unless told otherwise.
std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"a":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

TEST_F(Safetensors, RefusesMalformedFiles) {
  const std::string u8 = R"({"dtype":"U8","shape":[2],"data_offsets":[0,2]})";
  const std::string too_long{"\x01\xe1\xf5\x05\0\0\0\0{}", 10};        // 100,000,001
  const std::string absurd{"\xff\xff\xff\xff\xff\xff\xff\xff{}", 10};  // 2^64 - 1
  const std::string nested(100'000, '[');
  struct Case {
    std::string bytes;
    std::string message;
  };
  const std::vector<Case> cases{
      {"", "expected the length of the header (8 bytes), the data ends after 0"},
      {"1234567", "the data ends after 7"},
      {too_long, "100000001 bytes long, the most allowed"},
      {absurd, "bytes long, the most allowed"},
      {std::string{"\x03\0\0\0\0\0\0\0{}", 10},
       "byte 8: expected the header (3 bytes), the data ends after 2"},
      {file_bytes(""), "byte 8: expected '{'"},
      {file_bytes(" {}"), "byte 8: expected '{'"},
      {file_bytes("[]"), "byte 8: expected '{'"},
      {file_bytes("\xef\xbb\xbf{}"), "byte 8: expected '{'"},
      {file_bytes("{\"a\":"), "not JSON"},
      {file_bytes("{}{}"), "not JSON"},
      {file_bytes("{\"a\xff\":1}"), "not JSON"},
      {file_bytes("{\"a\":1e999}"), "not JSON"},
      {file_bytes("{\"a\":" + nested), "found an array"},
      {file_bytes(std::string("{}\0{", 4)), "NUL"},
      {file_bytes(R"({"a":)" + u8 + R"(,"a":)" + u8 + "}", "12"), "key 'a' twice"},
      {file_bytes(R"({"a":{"dtype":"U8","dtype":"I8","shape":[2],"data_offsets":[0,2]}})", "12"),
       "'dtype' twice"},
      {file_bytes(R"({"__metadata__":{"k":"1","k":"2"}})"), "key 'k' twice"},
      {file_bytes(R"({"__metadata__":null})"), "that describes '__metadata__', found null"},
      {file_bytes(R"({"__metadata__":["a"]})"), "that describes '__metadata__', found an array"},
      {file_bytes(R"({"__metadata__":{"k":1}})"), "expected a string under 'k' of __metadata__, found 1"},
      {file_bytes(R"({"a":7})"), "an object that describes 'a', found 7"},
      {file_bytes(R"({"a":{"shape":[2],"data_offsets":[0,2]}})", "12"), "'a' has no 'dtype'"},
      {file_bytes(R"({"a":{"dtype":"U8","data_offsets":[0,2]}})", "12"), "'a' has no 'shape'"},
      {file_bytes(R"({"a":{"dtype":"U8","shape":[2]}})", "12"), "'a' has no 'data_offsets'"},
      {file_bytes(one("7", "[2]", "[0,2]"), "12"), "a string as the dtype of 'a', found 7"},
      {file_bytes(one("\"F12\"", "[2]", "[0,2]"), "12"), "dtype 'F12' of 'a' is unknown"},
      {file_bytes(one("\"u8\"", "[2]", "[0,2]"), "12"), "dtype 'u8' of 'a' is unknown"},
      {file_bytes(one("\"U8\"", "2", "[0,2]"), "12"), "non-negative integers as the shape of 'a', found 2"},
      {file_bytes(one("\"U8\"", "[-2]", "[0,2]"), "12"), "non-negative integers as the shape of 'a', found"},
      {file_bytes(one("\"U8\"", "[2.0]", "[0,2]"), "12"), "non-negative integers as the shape of 'a', found"},
      {file_bytes(one("\"U8\"", "[\"2\"]", "[0,2]"), "12"),
       "non-negative integers as the shape of 'a', found"},
      {file_bytes(one("\"U8\"", "[[2]]", "[0,2]"), "12"), "non-negative integers as the shape of 'a', found"},
      {file_bytes(one("\"U8\"", "[18446744073709551616]", "[0,2]"), "12"),
       "non-negative integers as the shape of 'a', found"},
      {file_bytes(one("\"U8\"", "[9223372036854775808]", "[0,2]"), "12"), "overflows"},
      {file_bytes(one("\"F16\"", "[9223372036854775807]", "[0,2]"), "12"), "overflows"},
      {file_bytes(one("\"U8\"", "[4294967296,4294967297]", "[0,2]"), "12"), "overflows"},
      {file_bytes(one("\"U8\"", "[0,4294967296,4294967296]", "[0,0]")), "overflows"},
      {file_bytes(one("\"U8\"", "[3]", "[0,2]"), "12"), "2 bytes of data, but U8[3] takes 3"},
      {file_bytes(one("\"F32\"", "[]", "[0,2]"), "12"), "2 bytes of data, but F32[] takes 4"},
      {file_bytes(one("\"U8\"", "[2,0]", "[0,2]"), "12"), "2 bytes of data, but U8[2,0] takes 0"},
      {file_bytes(one("\"U8\"", "[2]", "[0,3]"), "12"), "ends at 3, but the file has only 2"},
      {file_bytes(one("\"U8\"", "[2]", "[9223372036854775807,18446744073709551615]"), "12"), "overflows"},
      {file_bytes(one("\"U8\"", "[2]", "[2,0]"), "12"), "begins at 2 and ends before"},
      {file_bytes(one("\"U8\"", "[2]", "[-2,0]"), "12"),
       "two non-negative integers as the data_offsets of 'a', found a negative"},
      {file_bytes(one("\"U8\"", "[2]", "[0.0,2]"), "12"), "data_offsets of 'a', found a fraction"},
      {file_bytes(one("\"U8\"", "[2]", "[0]"), "12"), "expected two data_offsets of 'a', found 1"},
      {file_bytes(one("\"U8\"", "[2]", "[0,1,2]"), "12"), "expected two data_offsets of 'a', found 3"},
      {file_bytes(one("\"U8\"", "[2]", "{\"0\":0}"), "12"), "data_offsets of 'a', found an object"},
      {file_bytes(R"({"a":)" + u8 + R"(,"b":)" + u8 + "}", "12"), "'b' overlaps"},
      {file_bytes(R"({"a":)" + u8 + R"(,"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", "123"),
       "overlaps"},
      {file_bytes(R"({"a":)" + u8 + R"(,"b":{"dtype":"U8","shape":[0],"data_offsets":[1,1]}})", "12"),
       "overlaps"},
      {file_bytes(one("\"U8\"", "[2]", "[1,3]"), "123"), "hole of 1 bytes before the data of 'a'"},
      {file_bytes(R"({"a":)" + u8 + R"(,"b":{"dtype":"U8","shape":[1],"data_offsets":[3,4]}})", "1234"),
       "hole"},
      {file_bytes(one("\"U8\"", "[2]", "[0,2]"), "123"), "1 bytes at the end belong to no tensor"},
      {file_bytes("{}", "1"), "1 bytes at the end belong to no tensor"},
      {file_bytes(one("\"BOOL\"", "[2]", "[0,2]"), std::string("\x01\x02")), "other than 0 and 1"},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto path = file("broken-" + std::to_string(i) + ".safetensors");
    write_bytes(path, cases[i].bytes);
    const std::string message = error_of([&] { SafetensorsFile{path}; });
    EXPECT_EQ(message.rfind("[SafetensorsFile] ", 0), 0U) << message;
    EXPECT_NE(message.find(path.string()), std::string::npos) << message;
    EXPECT_NE(message.find(cases[i].message), std::string::npos)
        << message << "\nexpected: " << cases[i].message;
    EXPECT_LT(message.size(), 1000U);
  }
}

TEST_F(Safetensors, RefusesEveryTruncationOfAGoodFile) {
  const std::string bytes = read_bytes(golden("shapes.safetensors"));
  for (size_t size = 0; size < bytes.size(); ++size) {
    write_bytes(file("cut.safetensors"), bytes.substr(0, size));
    EXPECT_THROW(SafetensorsFile(file("cut.safetensors")), c10::Error) << size;
  }
}

TEST_F(Safetensors, NamesWhatItCannotOpenOrFind) {
  EXPECT_NE(
      error_of([&] { SafetensorsFile(file("absent")); }).find("cannot open '" + file("absent").string()),
      std::string::npos);
  EXPECT_NE(error_of([&] { SafetensorsFile{folder_}; }).find("not a regular file"), std::string::npos);
  const SafetensorsFile opened(golden("shapes.safetensors"));
  EXPECT_NE(error_of([&] { opened.tensor("rank9"); }).find("no tensor 'rank9'"), std::string::npos);
}

TEST_F(Safetensors, BadTensorsAreRefusedByNameAndLeaveNothingBehind) {
  const at::Tensor good = at::ones({2});
  const at::Tensor quantized = at::quantize_per_tensor(good, 0.1, 0, at::kQInt8);
  const std::vector<std::tuple<std::string, at::Tensor, std::string>> cases{
      {"bad", at::Tensor(), "undefined"},
      {"bad", good.to_sparse(), "sparse"},
      {"bad", quantized, "quantized"},
      {"bad", at::empty({2}, at::device(at::kMeta)), "meta"},
      {"bad", at::ones({2}, at::kComplexDouble), "ComplexDouble"},
      {"__metadata__", good, "reserves"},
      {"\xff", good, "UTF-8"},
  };
  write_bytes(file("old"), "old");
  for (const auto& [name, tensor, expected] : cases) {
    const NamedTensors tensors{{"good", good}, {name, tensor}};
    const std::string message = error_of([&] { save_safetensors(tensors, file("old")); });
    EXPECT_EQ(message.rfind("[save_safetensors] ", 0), 0U) << message;
    EXPECT_NE(message.find("'" + name + "'"), std::string::npos) << message;
    EXPECT_NE(message.find(expected), std::string::npos) << message;
  }
  EXPECT_NE(error_of([&] { save_safetensors({{"good", good}}, file("old"), {{"k", "\xff"}}); }).find("UTF-8"),
            std::string::npos);
  EXPECT_EQ(read_bytes(file("old")), "old");
  EXPECT_EQ(files_in_folder(), 1U);
}

TEST_F(Safetensors, FoldersThatCannotBeWrittenTo) {
  const NamedTensors tensors{{"w", at::ones({2})}};
  const auto nowhere = file("no/such/folder/w.safetensors");
  EXPECT_NE(error_of([&] { save_safetensors(tensors, nowhere); }).find(nowhere.string()), std::string::npos);
  EXPECT_NE(error_of([&] { save_safetensors(tensors, ""); }).find("names no file"), std::string::npos);
  std::filesystem::create_directory(file("taken"));
  EXPECT_NE(error_of([&] { save_safetensors(tensors, file("taken")); }).find("it is a folder"),
            std::string::npos);
  EXPECT_EQ(files_in_folder(), 1U);
  if (::geteuid() == 0) return;  // nothing is read-only to root
  std::filesystem::permissions(file("taken"),
                               std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  EXPECT_THROW(save_safetensors(tensors, file("taken/w.safetensors")), c10::Error);
  EXPECT_TRUE(std::filesystem::is_empty(file("taken")));
}

TEST_F(Safetensors, ADiskThatFillsUpLeavesTheOldFile) {
  save_safetensors({{"w", at::ones({4})}}, file("w.safetensors"));
  const std::string before = read_bytes(file("w.safetensors"));
  // The limit on the size of files stands in for the end of the disk.
  rlimit old_limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  const rlimit limit{4096, old_limit.rlim_max};
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  const std::string message =
      error_of([&] { save_safetensors({{"w", at::ones({100'000})}}, file("w.safetensors")); });
  ::setrlimit(RLIMIT_FSIZE, &old_limit);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_NE(message.find("cannot write '" + file("w.safetensors").string()), std::string::npos) << message;
  EXPECT_EQ(read_bytes(file("w.safetensors")), before);
  EXPECT_EQ(files_in_folder(), 1U);
}

TEST_F(Safetensors, ANewFileHasTheUsualPermissions) {
  const auto mask = ::umask(022);
  save_safetensors({{"w", at::ones({4})}}, file("w.safetensors"));
  ::umask(mask);
  EXPECT_EQ(std::filesystem::status(file("w.safetensors")).permissions(),
            static_cast<std::filesystem::perms>(0644));
}

}  // namespace
}  // namespace tpgm::test_safetensors
