// Tars: WebDataset's, class folders in them, and malformed ones.
#include "tpgm/data/sources/tar.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>

#include "tests/data/data_files.h"
#include "tpgm/data/dataset.h"
#include "tpgm/data/sources/braces.h"
#include "tpgm/data/sources/tar_format.h"
#include "tpgm/data/sources/tar_reader.h"

namespace tpgm {
namespace {

namespace fs = std::filesystem;
using namespace test;
using Names = std::vector<std::string>;

TarReader reader_of(const std::string& bytes) {
  return TarReader(bytes.size(), [&bytes](uint64_t at, char* to, size_t size) {
    ASSERT_LE(at + size, bytes.size()) << "read beyond the file";
    std::memcpy(to, bytes.data() + at, size);
  });
}

std::vector<ShardSample> indexed(const std::string& bytes) {
  TarReader reader = reader_of(bytes);
  return index_shard(reader);
}

// A header and its bytes, well-formed or not.
std::string tar_entry(const std::string& name, char type, const std::string& bytes,
                      const std::string& size = "") {
  TarHeader header{};
  std::memcpy(header.name, name.data(), name.size());
  const std::string octal = size.empty() ? fmt::format("{:011o}", bytes.size()) : size;
  std::memcpy(header.size, octal.data(), octal.size());
  header.type = type;
  std::memcpy(header.magic, "ustar\00000", 8);
  const std::string sum = fmt::format("{:06o}", tar_checksum(header));
  std::memcpy(header.checksum, sum.data(), sum.size());
  std::string result(reinterpret_cast<const char*>(&header), kTarBlock);
  result += bytes;
  result.resize((result.size() + kTarBlock - 1) / kTarBlock * kTarBlock, '\0');
  return result;
}

const std::string kTarEnd(2 * kTarBlock, '\0');

class TarGoldens : public ::testing::TestWithParam<const char*> {};

TEST_P(TarGoldens, OfPythonAreRead) {
  const fs::path path = fs::path(TPGM_TEST_DATA) / "data" / "goldens" / "tars" / GetParam();
  const std::string bytes = read_bytes(path);
  std::string folder;
  for (int i = 0; i < 4; ++i) folder += "a_folder_with_a_name_that_takes_room/";
  const auto samples = indexed(bytes);
  ASSERT_EQ(samples.size(), 3u);
  const Names images = {"train/000.jpg", "train/" + folder + "001.png", "train/empty.JPEG"};
  const Names labels = {"2", "0", "1"};
  std::string second;
  for (int i = 0; i < 100; ++i) second += "picture 1";
  const Names contents = {"picture 0", second, ""};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(samples[i].encoded, images[i]);
    EXPECT_EQ(samples[i].label, labels[i]);
    EXPECT_EQ(bytes.substr(samples[i].offset, samples[i].size), contents[i]);
  }
  const auto parts = read_tar_shards({path});
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].split, "train");
  EXPECT_EQ(parts[0].read(0), "picture 0");
  EXPECT_EQ(parts[0].read(1), "");
  EXPECT_EQ(parts[1].read(0), second);
  EXPECT_EQ(parts[0].place(0), path.string() + ": train/000.jpg");
}

INSTANTIATE_TEST_SUITE_P(Each, TarGoldens,
                         ::testing::Values("ustar.tar", "gnu.tar", "pax.tar", "base256.tar"),
                         [](const auto& info) {
                           return std::string(info.param).substr(0, std::string(info.param).find('.'));
                         });

class Tars : public test::Scratch {};

TEST_F(Tars, WhatIsWrittenIsReadByUsAndBySystemTar) {
  const Names names = {"a.jpg", std::string(96, 'x') + ".png", std::string(97, 'y') + ".png",
                       "folder/" + std::string(150, 'z') + "/" + std::string(150, 'z') + ".jpg",
                       "caf\xc3\xa9.jpg"};
  Files files;
  for (size_t i = 0; i < names.size(); ++i)
    files.emplace_back(names[i], std::string(i * 300, 'a' + static_cast<char>(i)));
  write_tar(file("x.tar"), files);
  const std::string bytes = read_bytes(file("x.tar"));
  auto reader = reader_of(bytes);
  for (const auto& [name, content] : files) {
    const auto entry = reader.next();
    ASSERT_TRUE(entry.has_value());
    EXPECT_EQ(entry->name, name);
    EXPECT_EQ(reader.bytes(*entry), content);
  }
  EXPECT_FALSE(reader.next().has_value());
  EXPECT_EQ(bytes.size() % kTarBlock, 0u);
  write_tar(file("again.tar"), files);
  EXPECT_EQ(read_bytes(file("again.tar")), bytes);
  if (std::system("tar --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "no tar to compare with";
  fs::create_directories(file("out"));
  const std::string command = "tar -xf '" + file("x.tar").string() + "' -C '" + file("out").string() + "'";
  ASSERT_EQ(std::system(command.c_str()), 0);
  for (const auto& [name, content] : files) {
    EXPECT_EQ(read_bytes(file("out") / name), content) << name;
  }
}

TEST_F(Tars, NamesTooLongForAFolderStillMakeATar) {
  const std::string name = std::string(40, 'a') + "/" + std::string(4000, 'b') + ".jpg";
  write_tar(file("x.tar"), {{name, "1"}});
  EXPECT_EQ(indexed(read_bytes(file("x.tar"))).at(0).encoded, name);
}

TEST_F(Tars, LabelsThatAreNumbers) {
  write_tar(file("train-000.tar"), {{"0.jpg", "a"}, {"0.cls", "3"}, {"1.png", "b"}, {"1.cls", " 0\n"}});
  write_tar(file("train-001.tar"), {{"2.cls", "1"}, {"2.txt", "a caption"}, {"2.jpeg", "c"}});
  const Dataset data(folder_.string());
  EXPECT_EQ(data.titles(), (Names{"train"}));
  EXPECT_EQ(data.classes(), (Names{"0", "1", "2", "3"}));
  const auto& part = *data.parts()[0];
  EXPECT_EQ(labels_of(part), (std::vector<int64_t>{3, 0, 1}));
  EXPECT_EQ(part.read(0) + part.read(1) + part.read(2), "abc");
  EXPECT_EQ(part.place(2), file("train-001.tar").string() + ": 2.jpeg");
  EXPECT_FALSE(part.in_files());
  put_file(file("classnames.txt"), "a\nb\nc\nd\n");
  EXPECT_EQ(Dataset(folder_.string()).classes(), (Names{"a", "b", "c", "d"}));
  put_file(file("classes.txt"), "a\nb\nc\n");
  EXPECT_HAS(error_of([&] { Dataset(folder_.string()); }), "have a label 3, but their list of classes has 3");
}

TEST_F(Tars, LabelsThatAreNames) {
  write_tar(file("x.tar"), {{"0.jpg", "a"}, {"0.cls", "dog"}, {"1.jpg", "b"}, {"1.cls", "cat\n"}});
  EXPECT_EQ(Dataset(file("x.tar").string()).classes(), (Names{"cat", "dog"}));
  EXPECT_EQ(labels_of(*Dataset(file("x.tar").string()).parts()[0]), (std::vector<int64_t>{1, 0}));
  put_file(file("classes.txt"), "dog\nant\ncat\n");
  EXPECT_EQ(labels_of(*Dataset(file("x.tar").string()).parts()[0]), (std::vector<int64_t>{0, 2}));
  put_file(file("classes.txt"), "dog\nant\n");
  EXPECT_HAS(error_of([&] { Dataset(file("x.tar").string()); }),
             "a label 'cat' that is neither a number nor in their list of classes");
}

TEST_F(Tars, LabelsInJson) {
  write_tar(file("x.tar"), {{"0.jpg", "a"},
                            {"0.json", R"({"caption": "a", "label": 1})"},
                            {"1.jpg", "b"},
                            {"1.json", R"({"cls": "0"})"},
                            {"2.jpg", "c"},
                            {"2.json", R"({"class": 2, "label": null})"}});
  EXPECT_EQ(labels_of(read_tar_shards({file("x.tar")}).at(0)), (std::vector<int64_t>{1, 0, 2}));
  for (const char* text : {"[1]", "{", "", "{\"label\": \"\\ud800\"}", "{\"label\":1}x"}) {
    write_tar(file("x.tar"), {{"0.jpg", "a"}, {"0.json", text}});
    EXPECT_HAS(error_of([&] { read_tar_shards({file("x.tar")}); }), "'0.json'") << text;
  }
  write_tar(file("x.tar"), {{"0.jpg", "a"}, {"0.json", R"({"caption": "a"})"}});
  EXPECT_EQ(labels_of(read_tar_shards({file("x.tar")}).at(0)), (std::vector<int64_t>{-1}));
}

TEST_F(Tars, FoldersOfKeysAreParts) {
  write_tar(file("a.tar"),
            {{"train/0.jpg", "a"}, {"train/0.cls", "0"}, {"val/0.jpg", "b"}, {"val/0.cls", "1"}});
  write_tar(file("b.tar"), {{"./train/1.jpg", "c"}, {"./train/1.cls", "1"}});
  const Dataset data(folder_.string());
  EXPECT_EQ(data.titles(), (Names{"train", "val"}));
  EXPECT_EQ(names_of(*data.parts()[0]), (Names{"train/0.jpg", "train/1.jpg"}));
  EXPECT_EQ(data.parts()[0]->read(1), "c");
}

TEST_F(Tars, NamesOfFilesAreParts) {
  for (const char* name :
       {"real_train-000000.tar", "real_train-000001.tar", "real_test-0.tar", "sketch_00.tar"}) {
    write_tar(file(name), {{"0.jpg", name}, {"0.cls", "0"}});
  }
  EXPECT_EQ(Dataset(folder_.string()).titles(), (Names{"real/test", "real/train", "sketch"}));
}

TEST_F(Tars, ClassFoldersWithParts) {
  write_tar(file("x.tar"), {{"real/cat/1.png", "a"},
                            {"real/dog/2.1.png", "b"},
                            {"real/dog/.hidden.png", "c"},
                            {"sketch/train/ant/3.png", "d"},
                            {"readme.txt", "e"}});
  const Dataset data(file("x.tar").string());
  EXPECT_EQ(data.titles(), (Names{"real", "sketch/train"}));
  EXPECT_EQ(data.classes(), (Names{"ant", "cat", "dog"}));
  EXPECT_EQ(labels_of(*data.part("real", Role::kTrain)), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(names_of(*data.part("real", Role::kTrain)), (Names{"real/cat/1.png", "real/dog/2.1.png"}));
  EXPECT_EQ(data.part("sketch", Role::kTrain)->read(0), "d");
  const auto matched = Dataset(file("x.tar").string(), DatasetOptions().classes({"dog", "x", "cat", "ant"}));
  EXPECT_EQ(labels_of(*matched.part("real", Role::kTrain)), (std::vector<int64_t>{2, 0}));
}

// Names only name: nothing is unpacked, and links are skipped.
TEST_F(Tars, NamesAndLinksDoNotLeaveTheTar) {
  std::string bytes;
  for (const char* name : {"../../up/cat/1.png", "a/../../up/cat/2.png", "/abs/cat/3.png", "./a/cat/4.png"})
    bytes += tar_entry(name, '0', "image");
  for (const char type : {'1', '2'})  // hard and symbolic links
    bytes += tar_entry(fmt::format("a/cat/link{}.png", type), type, "");
  Names found;
  for (const auto& sample : indexed(bytes + kTarEnd)) found.push_back(sample.encoded);
  EXPECT_EQ(found, (Names{"abs/cat/3.png", "a/cat/4.png"}));
}

TEST_F(Tars, FlatTarsHaveNoLabels) {
  write_tar(file("all.tar"), {{"1.png", "a"}, {"2.png", "b"}});
  EXPECT_EQ(labels_of(*Dataset(file("all.tar").string()).parts()[0]), (std::vector<int64_t>{-1, -1}));
}

TEST_F(Tars, ImagesWithoutALabelAmongOthersAreAnError) {
  write_tar(file("x.tar"), {{"0.jpg", "a"}, {"0.cls", "0"}, {"1.jpg", "b"}, {"2.jpg", "c"}, {"2.cls", "  "}});
  EXPECT_HAS(error_of([&] { Dataset(file("x.tar").string()); }), "'1.jpg' has no label (.cls or .json)");
}

TEST_F(Tars, TwoImagesOfOneKeyAreAnErrorWhereThereAreLabels) {
  write_tar(file("x.tar"), {{"a/0.jpg", "a"}, {"a/0.cls", "0"}, {"a/0.png", "b"}});
  EXPECT_HAS(error_of([&] { Dataset(file("x.tar").string()); }), "'a/0.png' has no label");
  write_tar(file("y.tar"), {{"cat/img.1.jpg", "a"}, {"cat/img.2.jpg", "b"}});
  EXPECT_EQ(Dataset(file("y.tar").string()).parts()[0]->size(), 2);
}

TEST_F(Tars, OfClassFoldersAloneAreNamedAfterTheFile) {
  write_tar(file("train.tar"), {{"cat/1.jpg", "a"}, {"dog/2.jpg", "b"}});
  write_tar(file("val-000.tar"), {{"/cat/3.jpg", "c"}});
  write_tar(file("val-001.tar"), {{"dog/4.jpg", "d"}, {".hidden/5.jpg", "e"}, {"__MACOSX/cat/6.jpg", "f"}});
  const Dataset data(folder_.string());
  EXPECT_EQ(data.titles(), (Names{"train", "val"}));
  EXPECT_EQ(data.parts()[1]->size(), 2);
}

TEST_F(Tars, NamesThatAreNotAmongTheGivenClassesAreAnError) {
  write_tar(file("folders.tar"), {{"p/zzz/1.jpg", "a"}, {"p/yyy/2.jpg", "b"}});
  write_tar(file("names.tar"), {{"1.jpg", "a"}, {"1.cls", "zzz"}, {"2.jpg", "b"}, {"2.cls", "yyy"}});
  for (const char* name : {"folders.tar", "names.tar"}) {
    EXPECT_HAS(
        error_of([&] { Dataset(file(name).string(), DatasetOptions().classes({"aaa", "bbb", "zzz"})); }),
        "class 'yyy'");
  }
  write_tar(file("numbers.tar"), {{"1.jpg", "a"}, {"1.cls", "2"}});
  const Dataset numbers(file("numbers.tar").string(), DatasetOptions().classes({"aaa", "bbb", "zzz"}));
  EXPECT_EQ(labels_of(*numbers.parts()[0]), std::vector<int64_t>{2});
}

TEST_F(Tars, NumbersThatAreNoPositionsAreRefused) {
  for (const char* label : {"-1", "100000"}) {
    write_tar(file("x.tar"), {{"1.jpg", "a"}, {"1.cls", "2"}, {"2.jpg", "a"}, {"2.cls", label}});
    EXPECT_HAS(error_of([&] { Dataset(file("x.tar").string()); }), fmt::format("have a label {}", label));
  }
}

TEST_F(Tars, WithoutImages) {
  write_tar(file("x.tar"), {{"0.cls", "0"}, {"1.txt", "b"}});
  EXPECT_HAS(error_of([&] { Dataset(file("x.tar").string()); }), "no image");
  for (const std::string& bytes : {std::string(), kTarEnd}) {
    write_bytes(file("x.tar"), bytes);
    EXPECT_HAS(error_of([&] { Dataset(file("x.tar").string()); }), "no image");
  }
}

TEST_F(Tars, BracesNameTheMissingFile) {
  for (const char* name : {"a-08.tar", "a-09.tar", "a-10.tar", "b-10.tar"}) {
    write_tar(file(name), {{std::string(name) + ".jpg", name}});
  }
  const std::string base = folder_.string() + "/";
  EXPECT_EQ(expand_braces(base + "a-{08..10}.tar"),
            (std::vector<fs::path>{file("a-08.tar"), file("a-09.tar"), file("a-10.tar")}));
  EXPECT_EQ(expand_braces(base + "{b,a}-{10..10}.tar"),
            (std::vector<fs::path>{file("b-10.tar"), file("a-10.tar")}));
  EXPECT_EQ(expand_braces(base + "a-08.tar").size(), 1u);
  EXPECT_EQ(Dataset(base + "a-{08..10}.tar").parts()[0]->size(), 3);
  const auto error = error_of([&] { Dataset(base + "a-{08..12}.tar"); });
  EXPECT_HAS(error, "there is no file '" + base + "a-11.tar', one of the 5 of '");
  EXPECT_HAS(error_of([&] { expand_braces(base + "a-{08..12.tar"); }), "has a '{' without its '}'");
  for (const char* range : {"{3..1}", "{a..c}", "{0..99999999}", "{..}", "{-1..2}", "{1..}"}) {
    EXPECT_HAS(error_of([&] { expand_braces(base + range); }), "expected a range such as {000..146}");
  }
  EXPECT_HAS(error_of([&] { expand_braces("{000..999}{000..999}{000..999}"); }), "more than a million");
  // Few names, but long ones.
  EXPECT_HAS(error_of([&] { expand_braces("{" + std::string(30000, '0') + "..9999}"); }),
             "more than 256 MiB");
}

TEST_F(Tars, CutAnywhereTheyAreRefusedOrShorter) {
  write_tar(file("x.tar"), {{"train/0.jpg", std::string(600, 'a')},
                            {"train/0.cls", "0"},
                            {"train/" + std::string(120, 'n') + ".jpg", "b"},
                            {"train/" + std::string(120, 'n') + ".cls", "1"}});
  const std::string whole = read_bytes(file("x.tar"));
  const auto all = indexed(whole);
  ASSERT_EQ(all.size(), 2u);
  size_t refused = 0, shorter = 0;
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::string cut = whole.substr(0, size);
    try {
      const auto samples = indexed(cut);
      ASSERT_LE(samples.size(), all.size());
      for (size_t i = 0; i < samples.size(); ++i) {
        ASSERT_EQ(samples[i].encoded, all[i].encoded);
        ASSERT_TRUE(samples[i].label.empty() || samples[i].label == all[i].label);
        ASSERT_LE(samples[i].offset + samples[i].size, size);
      }
      ++shorter;
    } catch (const Malformed& malformed) {
      EXPECT_FALSE(malformed.reason.empty());
      ++refused;
    }
  }
  EXPECT_GT(refused, shorter);
}

TEST_F(Tars, ImagesOfOtherFormatsAreCounted) {
  write_tar(file("x.tar"), {{"train/0.gif", "GIF8"},
                            {"train/0.cls", "1"},
                            {"train/1.png", encoded("1.png", blocks(1))},
                            {"train/1.cls", "0"},
                            {"train/.2.gif", "hidden"},
                            {"train/3.BMP", "BM"}});
  const Dataset data(file("x.tar").string());
  EXPECT_EQ(data.parts().at(0)->size(), 1);
  EXPECT_EQ(data.unread(), (UnreadFiles{{".gif", 1}, {".bmp", 1}}));
}

TEST_F(Tars, CutWhileInUseTheyAreRefused) {
  write_tar(file("x.tar"), {{"0.jpg", std::string(600, 'a')}, {"0.cls", "0"}});
  const auto part = read_tar_shards({file("x.tar")}).at(0);
  fs::resize_file(file("x.tar"), 700);
  EXPECT_HAS(refusal_of([&] { part.read(0); }), "ends early");
  fs::remove(file("x.tar"));
  EXPECT_HAS(refusal_of([&] { part.read(0); }), "No such file");
}

TEST_F(Tars, AWrongBitInAHeaderIsNoticed) {
  write_tar(file("x.tar"), {{"0.jpg", "image"}, {"0.cls", "0"}});
  const std::string whole = read_bytes(file("x.tar"));
  size_t refused = 0;
  for (size_t i = 0; i < kTarBlock; ++i) {
    std::string bytes = whole;
    bytes[i] = static_cast<char>(bytes[i] ^ 1);
    try {
      const auto samples = indexed(bytes);
      ASSERT_EQ(samples.size(), 1u) << i;
      EXPECT_EQ(samples[0].encoded, "0.jpg") << i;
    } catch (const Malformed&) {
      ++refused;
    }
  }
  EXPECT_GE(refused, kTarBlock - 1);  // behind its NUL the checksum's field has a byte that says nothing
  std::string bytes = whole;
  bytes[0] = 'x';
  write_bytes(file("x.tar"), bytes);
  EXPECT_HAS(error_of([&] { Dataset(file("x.tar").string()); }), "its checksum is wrong");
}

TEST_F(Tars, CompressedOnesAreToldFromDamagedOnes) {
  write_bytes(file("x.tar"), "\x1f\x8b\x08" + std::string(1000, 'z'));
  EXPECT_HAS(error_of([&] { Dataset(file("x.tar").string()); }), "gunzip");
  write_bytes(file("x.tar"), std::string(1000, 'z'));
  EXPECT_HAS(error_of([&] { Dataset(file("x.tar").string()); }),
             "byte 0: the checksum of a file is not a number");
}

TEST(TarHeaders, LiesAboutSizesAreRefused) {
  const auto expect = [](const std::string& bytes, const char* reason) {
    EXPECT_HAS(refusal_of([&] { indexed(bytes); }), reason);
  };
  expect(tar_entry("a.jpg", '0', "x", "77777777777") + kTarEnd,
         "it ends in the middle of a file of 8589934591");
  expect(tar_entry("a.jpg", '0', "x", "\xff" + std::string(11, '\xff')), "the size is too large");
  expect(tar_entry("a.jpg", '0', "x", "\x80" + std::string(3, '\0') + std::string(8, '\xff')),
         "the size is too large");
  expect(tar_entry("a.jpg", '0', "x", "12x"), "the size of a file is not a number");
  expect(tar_entry("a.jpg", '0', "x", std::string(12, ' ')), "the size of a file is not a number");
  expect(tar_entry("a", 'L', std::string(70'000, 'n')) + kTarEnd, "a name of 70000 bytes");
  for (const char* record : {"x", "11 path=a\n", "10 pathab\n", "4 a\n", "99999999999999999999 ", "3 \n"}) {
    expect(tar_entry("a", 'x', record) + tar_entry("a.jpg", '0', "") + kTarEnd, "a pax record is malformed");
  }
  expect(tar_entry("a", 'x', "10 size=x\n") + tar_entry("a.jpg", '0', ""),
         "a pax record's size is not a number");
  expect(tar_entry("a", 'x', "12 size=900\n") + tar_entry("a.jpg", '0', ""), "middle of a file of 900 bytes");
}

TEST(TarHeaders, PaxSizesAndGlobalRecords) {
  const std::string bytes =
      tar_entry("g", 'g', "17 comment=hello\n") + tar_entry("x", 'x', "10 size=3\n15 path=ab.jpg\n") +
      tar_entry("short.jpg", '0', "abc", "00000000000") + tar_entry("b.png", '\0', "de") + kTarEnd;
  const auto samples = indexed(bytes);
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[0].encoded, "ab.jpg");
  EXPECT_EQ(bytes.substr(samples[0].offset, samples[0].size), "abc");
  EXPECT_EQ(samples[1].encoded, "b.png");
}

TEST(TarHeaders, LargeLabelsAreRefused) {
  const std::string large(2 << 20, '1');
  EXPECT_HAS(
      refusal_of([&] { indexed(tar_entry("a.jpg", '0', "") + tar_entry("a.cls", '0', large) + kTarEnd); }),
      "'a.cls' has 2097152 bytes");
}

}  // namespace
}  // namespace tpgm
