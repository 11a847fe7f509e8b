// Where pictures come from: folders, lists and tars laid out as the known data sets are, and as nobody
// should.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>

#include "tests/data/data_files.h"
#include "tpgm/data/class_list.h"
#include "tpgm/data/dataset.h"
#include "tpgm/data/image_list.h"
#include "tpgm/data/picture.h"
#include "tpgm/data/tar_format.h"
#include "tpgm/data/tar_reader.h"
#include "tpgm/data/tar_shards.h"

namespace tpgm {
namespace {

namespace fs = std::filesystem;
using test::encoded;
using test::error_of;
using test::Files;
using test::read_bytes;
using test::refusal_of;
using test::write_bytes;
using test::write_file;
using test::write_picture;
using test::write_tar;
using Names = std::vector<std::string>;

Names names_of(const Samples& samples) {
  Names names;
  for (int64_t i = 0; i < samples.size(); ++i) names.emplace_back(samples.name(i));
  return names;
}

std::vector<int64_t> labels_of(const Samples& samples) {
  return {samples.labels().begin(), samples.labels().end()};
}

// Of each picture by its class's name.
std::map<std::string, int64_t> count_by_class(const Samples& samples) {
  std::map<std::string, int64_t> counts;
  for (int64_t i = 0; i < samples.size(); ++i) {
    ++counts[samples.classes.at(static_cast<size_t>(samples.label(i)))];
  }
  return counts;
}

// ---------------------------------------------------------------------------------------------------------
// The known layouts, made by scripts/make_small_datasets.

const Names kDomainNet = {"aircraft_carrier", "airplane", "alarm_clock", "ambulance", "angel",
                          "animal_migration", "ant",      "anvil",       "apple",     "arm",
                          "asparagus",        "axe"};
const Names kImageNet = {"n01440764", "n01443537", "n01484850", "n01491361", "n01494475", "n01496331",
                         "n01498041", "n01514668", "n01514859", "n01518878", "n01530575", "n01531178"};

class KnownLayouts : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    root_ = fs::temp_directory_path() / ("tpgm-layouts-" + std::to_string(::getpid()));
    const fs::path script = fs::path(TPGM_TEST_DATA).parent_path() / "scripts" / "make_small_datasets";
    const std::string command =
        "python3 '" + script.string() + "' '" + root_.string() + "' --classes 12 --per-class 3";
    made_ = std::system(command.c_str()) == 0;
  }
  static void TearDownTestSuite() { test::remove_folder(root_); }
  void SetUp() override { ASSERT_TRUE(made_); }

  static Dataset open(const std::string& name, const Names& classes = {}) {
    return Dataset((root_ / name).string(), DatasetOptions().classes(classes));
  }
  static void expect_readable(const Dataset& data) {
    for (const auto& part : data.parts()) {
      for (int64_t i = 0; i < part->size(); ++i) {
        ASSERT_GT(Picture(part->read(i)).decode().pixels.size(), 0u) << part->place(i);
      }
    }
  }

  static inline fs::path root_;
  static inline bool made_ = false;
};

TEST_F(KnownLayouts, DomainNet) {
  const auto data = open("domainnet");
  EXPECT_EQ(data.titles(), (Names{"clipart/test", "clipart/train", "infograph/test", "infograph/train",
                                  "painting/test", "painting/train", "quickdraw/test", "quickdraw/train",
                                  "real/test", "real/train", "sketch/test", "sketch/train"}));
  EXPECT_EQ(data.classes(), kDomainNet);
  for (const auto& part : data.parts()) {
    EXPECT_EQ(part->classes, kDomainNet);
    EXPECT_EQ(count_by_class(*part).size(), 12u);
    EXPECT_EQ(part->size(), part->split == "train" ? 24 : 12);
  }
  const auto train = data.part("real", Role::kTrain), test = data.part("real", Role::kTest);
  EXPECT_EQ(train->title(), "real/train");
  EXPECT_EQ(test->title(), "real/test");
  EXPECT_EQ(train->name(0), "real/aircraft_carrier/real_001_000001.jpg");
  EXPECT_EQ(train->label(2), 1);
  EXPECT_EQ(data.part("real/test", Role::kTrain), test);
  expect_readable(data);
}

TEST_F(KnownLayouts, OneListOfDomainNet) {
  const auto data = open("domainnet/sketch_train.txt");
  EXPECT_EQ(data.titles(), (Names{"sketch/train"}));
  EXPECT_EQ(data.classes(), kDomainNet);
}

TEST_F(KnownLayouts, DomainNetWithoutItsLists) {
  const auto data = open("domainnet/real/");
  EXPECT_EQ(data.titles(), (Names{"real"}));
  EXPECT_EQ(data.classes(), kDomainNet);
  EXPECT_EQ(data.parts()[0]->size(), 36);
}

TEST_F(KnownLayouts, ImageNet) {
  const auto data = open("imagenet");
  EXPECT_EQ(data.titles(), (Names{"train", "val"}));
  EXPECT_EQ(data.classes(), kImageNet);
  EXPECT_EQ(data.part("train", Role::kTrain)->size(), 36);
  EXPECT_EQ(data.part("val", Role::kTest)->size(), 36);
  EXPECT_EQ(data.find("", "val"), data.part("val", Role::kTest));
  expect_readable(data);
}

TEST_F(KnownLayouts, ImageNetV2HasNumbersThatArePositions) {
  const auto alone = open("imagenetv2-matched-frequency-format-val");
  EXPECT_EQ(alone.titles(), (Names{"imagenetv2-matched-frequency-format-val"}));
  EXPECT_EQ(alone.classes(), (Names{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"}));
  const auto matched = open("imagenetv2-matched-frequency-format-val", kImageNet);
  EXPECT_EQ(matched.classes(), kImageNet);
  const auto& part = *matched.parts()[0];
  EXPECT_EQ(part.size(), 36);
  for (int64_t i = 0; i < part.size(); ++i) {
    const std::string name(part.name(i));
    EXPECT_EQ(std::to_string(part.label(i)), name.substr(0, name.find('/')));
  }
  EXPECT_HAS(
      error_of([] { open("imagenetv2-matched-frequency-format-val", {"a", "b", "c"}); }),
      "class 3 of 'imagenetv2-matched-frequency-format-val' is not one of 3 classes (they count from 0)");
}

TEST_F(KnownLayouts, RelativesOfImageNetAreMatchedByName) {
  for (const std::string name : {"imagenet-r", "imagenet-a", "sketch"}) {
    const auto data = open(name, kImageNet);
    EXPECT_EQ(data.classes(), kImageNet);
    ASSERT_EQ(data.parts().size(), 1u);
    const auto& part = *data.parts()[0];
    EXPECT_EQ(part.size(), name == "imagenet-r" ? 21 : name == "imagenet-a" ? 6 : 36);
    for (int64_t i = 0; i < part.size(); ++i) {
      EXPECT_TRUE(part.name(i).starts_with(kImageNet[static_cast<size_t>(part.label(i))] + "/"));
    }
    expect_readable(data);
  }
  EXPECT_EQ(open("imagenet-r").notes(), (Names{"1 other files were left out"}));  // its README
  Names without = kImageNet;
  without[1] = "n01443538";
  EXPECT_HAS(error_of([&] { open("imagenet-r", without); }),
             "class 'n01443537' of 'imagenet-r' is not one of the 12 classes; the nearest is 'n01443538'");
}

TEST_F(KnownLayouts, ClassesCanBeTakenFromAnotherDataSet) {
  EXPECT_EQ(load_class_list(root_ / "imagenet" / "val"), kImageNet);
  EXPECT_HAS(error_of([] { load_class_list(root_ / "imagenet"); }), "is no folder of class folders");
}

TEST_F(KnownLayouts, Pacs) {
  const auto data = open("pacs");
  EXPECT_EQ(data.titles(), (Names{"art_painting", "cartoon", "photo", "sketch"}));
  EXPECT_EQ(data.classes(), (Names{"dog", "elephant", "giraffe", "guitar", "horse", "house", "person"}));
  for (const auto& part : data.parts()) EXPECT_EQ(part->size(), 21);
  for (const Role role : {Role::kTrain, Role::kTest}) {
    EXPECT_EQ(data.part("art_painting", role)->title(), "art_painting");
  }
  expect_readable(data);
}

TEST_F(KnownLayouts, OfficeHome) {
  const auto data = open("office-home");
  EXPECT_EQ(data.titles(), (Names{"Art", "Clipart", "Product", "Real World"}));
  EXPECT_EQ(data.classes().size(), 12u);
  EXPECT_EQ(data.part("Real World", Role::kTest)->name(0), "Real World/Alarm_Clock/00001.jpg");
  expect_readable(data);
}

TEST_F(KnownLayouts, UnknownNamesGetTheNearest) {
  const auto data = open("domainnet");
  const auto error = error_of([&] { data.part("skecth", Role::kTrain); });
  EXPECT_HAS(error, "has no 'skecth' to train on");
  EXPECT_HAS(error, "sketch/test, sketch/train");
  EXPECT_HAS(error, "Did you mean 'sketch'?");
  EXPECT_HAS(error_of([&] { data.part("real/tset", Role::kTest); }), "Did you mean 'real/test'?");
  EXPECT_EQ(data.find("real", "radius"), nullptr);
}

// ---------------------------------------------------------------------------------------------------------
// Folders.

class ImageFolder : public test::Scratch {
 protected:
  std::vector<Samples> read() { return read_image_folder(folder_); }
};

TEST_F(ImageFolder, PartsOfAllDepths) {
  write_picture(file("real/train/cat/1.png"), 1);
  write_picture(file("real/test/cat/1.png"), 2);
  write_picture(file("sketch/dog/1.png"), 3);
  write_picture(file("train/bird/deep/below/1.png"), 4);  // no picture before it: 'below' is the class
  const auto parts = read();
  ASSERT_EQ(parts.size(), 4u);
  EXPECT_EQ(parts[0].title() + " " + parts[1].title() + " " + parts[2].title(),
            "real/test real/train sketch");
  EXPECT_EQ(parts[3].title(), "bird/deep/train");
  EXPECT_EQ(parts[3].classes, (Names{"below"}));
  const Dataset data(folder_.string());
  EXPECT_EQ(data.classes(), (Names{"below", "cat", "dog"}));
  EXPECT_EQ(labels_of(*data.part("sketch", Role::kTest)), (std::vector<int64_t>{2}));
}

TEST_F(ImageFolder, AClassHasAllThatIsBelowIt) {
  write_picture(file("cat/1.jpg"), 1);
  write_picture(file("cat/more/2.PNG"), 2);
  write_picture(file("dog/x/2.JPEG"), 3);
  write_picture(file("dog/1.jpeg"), 4);
  const auto parts = read();
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].title(), "");
  EXPECT_EQ(Dataset(folder_.string()).titles(), (Names{folder_.filename().string()}));
  EXPECT_EQ(parts[0].classes, (Names{"cat", "dog"}));
  EXPECT_EQ(names_of(parts[0]), (Names{"cat/1.jpg", "cat/more/2.PNG", "dog/1.jpeg", "dog/x/2.JPEG"}));
}

TEST_F(ImageFolder, NumbersAreSortedByValueUnlessThereAreNames) {
  for (const char* name : {"10", "2", "1"}) write_picture(file(std::string("all/") + name + "/x.png"), 1);
  for (const char* name : {"10", "2", "a"}) write_picture(file(std::string("some/") + name + "/x.png"), 1);
  const auto parts = read();
  EXPECT_EQ(parts.at(0).classes, (Names{"1", "2", "10"}));
  EXPECT_EQ(parts.at(1).classes, (Names{"10", "2", "a"}));
}

TEST_F(ImageFolder, HiddenFilesAndLeftoversAreLeftOut) {
  write_picture(file("cat/1.png"), 1);
  write_file(file("cat/._1.png"), "a Mac was here");
  write_file(file("cat/.DS_Store"), "");
  write_picture(file(".thumbnails/x/1.png"), 1);
  write_picture(file("__MACOSX/cat/1.png"), 1);
  write_file(file("cat/Thumbs.db"), "");
  write_file(file("cat/2.webp"), "");
  write_file(file("cat/3.webp"), "");
  write_file(file("empty/readme.md"), "");
  Unread unread;
  const auto parts = read_image_folder(folder_, &unread);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(names_of(parts[0]), (Names{"cat/1.png"}));
  EXPECT_EQ(unread, (Unread{{".webp", 2}, {".db", 1}, {".md", 1}}));
  EXPECT_EQ(Dataset(folder_.string()).notes(),
            (Names{"2 files .webp are not read; only JPEG and PNG are", "2 other files were left out"}));
}

TEST_F(ImageFolder, PicturesAloneHaveNoLabels) {
  write_picture(file("b.png"), 1);
  write_picture(file("a.jpg"), 2);
  const Dataset data(folder_.string());
  const auto part = data.part(folder_.filename().string(), Role::kTest);
  EXPECT_EQ(names_of(*part), (Names{"a.jpg", "b.png"}));
  EXPECT_EQ(labels_of(*part), (std::vector<int64_t>{-1, -1}));
  EXPECT_TRUE(data.classes().empty());
  EXPECT_EQ(Dataset(folder_.string(), DatasetOptions().classes({"x"})).classes(), (Names{"x"}));
}

TEST_F(ImageFolder, LinksAreFollowed) {
  write_picture(file("elsewhere/pictures/1.png"), 1);
  fs::create_directories(file("data/dog"));
  fs::create_directory_symlink(file("elsewhere/pictures"), file("data/cat"));
  fs::create_symlink(file("elsewhere/pictures/1.png"), file("data/dog/linked.png"));
  const Dataset data(file("data").string());
  EXPECT_EQ(data.classes(), (Names{"cat", "dog"}));
  EXPECT_EQ(data.parts()[0]->read(0), data.parts()[0]->read(1));
}

TEST_F(ImageFolder, LinksInACircleAreNamed) {
  write_picture(file("cat/1.png"), 1);
  fs::create_directory_symlink(file("cat"), file("cat/again"));
  EXPECT_HAS(error_of([&] { read(); }), "does a link lead in a circle?");
  fs::remove(file("cat/again"));
  fs::create_directories(file("dog"));
  fs::create_directory_symlink(folder_, file("dog/up"));
  EXPECT_HAS(error_of([&] { read(); }), "does a link lead in a circle?");
}

TEST_F(ImageFolder, ABrokenLinkIsABadPictureAndNoMore) {
  write_picture(file("cat/1.png"), 1);
  fs::create_symlink(file("nowhere"), file("cat/2.png"));
  fs::create_directory_symlink(file("nowhere"), file("dog"));
  const auto parts = read();
  ASSERT_EQ(parts.at(0).size(), 2);
  EXPECT_HAS(refusal_of([&] { parts[0].read(1); }), "No such file");
}

TEST_F(ImageFolder, WhatCannotBeListedIsAnError) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  write_picture(file("cat/1.png"), 1);
  fs::create_directories(file("dog"));
  fs::permissions(file("dog"), fs::perms::none);
  EXPECT_HAS(error_of([&] { read(); }), "cannot read the folder");
  fs::permissions(file("dog"), fs::perms::owner_all);
}

TEST_F(ImageFolder, AFileThatVanishesIsRefusedWhenItIsRead) {
  write_picture(file("cat/1.png"), 1);
  fs::create_directories(file("cat/2.png"));
  const auto part = read().at(0);
  EXPECT_EQ(part.read(0), read_bytes(file("cat/1.png")));
  EXPECT_EQ(part.place(0), file("cat/1.png").string());
  fs::remove(file("cat/1.png"));
  EXPECT_HAS(refusal_of([&] { part.read(0); }), "No such file");
  EXPECT_HAS(refusal_of([&] { part.read(1); }), "no regular file");
}

TEST_F(ImageFolder, NamesNeedNotBeUtf8) {
  const std::string odd = "caf\xe9", name = "\xff\xfe \n.png";
  write_picture(folder_ / odd / name, 1);
  const auto part = read().at(0);
  EXPECT_EQ(part.classes, (Names{odd}));
  EXPECT_EQ(part.read(0), read_bytes(folder_ / odd / name));
  const auto error = error_of([&] { Dataset(folder_.string(), DatasetOptions().classes({"cafe"})); });
  EXPECT_HAS(error, "class 'caf?'");
}

TEST_F(ImageFolder, NothingToReadIsAnErrorThatSaysWhatWasThere) {
  EXPECT_HAS(error_of([&] { Dataset(folder_.string()); }), "no picture (.jpg, .jpeg, .png) is below");
  write_file(file("cat/1.webp"), "");
  EXPECT_HAS(error_of([&] { Dataset(folder_.string()); }), "1 files .webp are not read");
  EXPECT_HAS(error_of([&] { Dataset(file("nowhere").string()); }), "there is no '");
}

TEST_F(ImageFolder, PartsHaveTheClassesOfAllParts) {
  write_picture(file("a/cat/1.png"), 1);
  write_picture(file("b/dog/1.png"), 2);
  write_picture(file("b/ant/1.png"), 2);
  const Dataset data(folder_.string());
  EXPECT_EQ(data.classes(), (Names{"ant", "cat", "dog"}));
  EXPECT_EQ(labels_of(*data.part("a", Role::kTrain)), (std::vector<int64_t>{1}));
  EXPECT_EQ(labels_of(*data.part("b", Role::kTrain)), (std::vector<int64_t>{0, 2}));
}

TEST(Parts, NamesOfDomainsAndSplits) {
  const auto part = [](const auto& set, const std::string& name) {
    Samples samples;
    set(samples, name);
    return std::pair(samples.domain, samples.split);
  };
  using Part = std::pair<std::string, std::string>;
  const std::map<std::string, Part> folders = {{"real/train", {"real", "train"}},
                                               {"train/real", {"real", "train"}},
                                               {"train", {"", "train"}},
                                               {"sketch", {"sketch", ""}},
                                               {"art_painting", {"art_painting", ""}},
                                               {"", {"", ""}},
                                               {"a/b/validation", {"a/b", "validation"}},
                                               {"Real World", {"Real World", ""}}};
  for (const auto& [name, expected] : folders) EXPECT_EQ(part(set_part, name), expected) << name;
  const std::map<std::string, Part> files = {
      {"real_train", {"real", "train"}}, {"a-val", {"a", "val"}}, {"x_y_selection", {"x_y", "selection"}},
      {"x_radius", {"x", "radius"}},     {"test", {"", "test"}},  {"art_painting", {"art_painting", ""}}};
  for (const auto& [name, expected] : files) EXPECT_EQ(part(set_part_of_file, name), expected) << name;
}

TEST(Parts, EndingsOfPictures) {
  for (const char* name : {"a.jpg", "a.JPG", "a.JPEG", "b.c.Png", "0.1_x _ y.jpg"})
    EXPECT_TRUE(is_picture(name));
  for (const char* name : {"a.jpg.txt", "jpg", "a.webp", "", ".", "a."}) EXPECT_FALSE(is_picture(name));
}

// ---------------------------------------------------------------------------------------------------------
// Lists.

Samples parsed(const std::string& text) { return parse_image_list(text, "/pictures"); }

TEST(ImageListLines, AreAPathAndALabel) {
  const auto list = parsed("a/1.jpg 0\nb/2 3.jpg 1\r\n\n  c/4.jpg\t \t2  \r\n \t\r\n/abs/d/5.jpg 3");
  EXPECT_EQ(names_of(list), (Names{"a/1.jpg", "b/2 3.jpg", "c/4.jpg", "/abs/d/5.jpg"}));
  EXPECT_EQ(labels_of(list), (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(list.classes, (Names{"a", "b", "c", "d"}));
  EXPECT_EQ(list.place(0), "/pictures/a/1.jpg");
  EXPECT_EQ(list.place(3), "/abs/d/5.jpg");
}

TEST(ImageListLines, WrongOnesAreNamedByNumber) {
  for (const char* line : {"a.jpg", "a.jpg -1", "a.jpg x", "a.jpg 1x", "a.jpg 1.0", "a.jpg 1000000",
                           "a.jpg 99999999999999999999", "7", "a.jpg +1", "a\x01.jpg 0x1"}) {
    const auto reason = refusal_of([&] { parsed("x.jpg 0\n\r\n" + std::string(line) + "\ny.jpg 1\n"); });
    EXPECT_HAS(reason, "line 3: expected a path, a space and a label from 0 to 999999, got '") << line;
  }
  EXPECT_HAS(refusal_of([] { parsed(std::string("a\0.jpg 0", 8)); }), "line 1");
  for (const char* text : {"", "\n", " \r\n\t\n"})
    EXPECT_EQ(refusal_of([&] { parsed(text); }), "it is empty");
}

TEST(ImageListLines, ClassesAreNamedAfterFoldersOnlyIfTheyTellThemApart) {
  EXPECT_EQ(parsed("r/cat/1.jpg 0\ns/cat/2.jpg 0\nr/dog/1.jpg 2\n").classes, (Names{"cat", "1", "dog"}));
  const Names numbers = {"0", "1"};
  EXPECT_EQ(parsed("cat/1.jpg 0\ncat/2.jpg 1\n").classes, numbers);               // one folder, two labels
  EXPECT_EQ(parsed("cat/1.jpg 0\ndog/2.jpg 0\nant/1.jpg 1\n").classes, numbers);  // one label, two folders
  EXPECT_EQ(parsed("1.jpg 0\ndog/2.jpg 1\n").classes, numbers);                   // no folder
  EXPECT_EQ(parsed("/1.jpg 1\n").classes, numbers);
}

class ImageList : public test::Scratch {};

TEST_F(ImageList, PathsAreRelativeToItsFolderOrTheOneAbove) {
  write_picture(file("real/cat/1.png"), 1);
  write_file(file("real_train.txt"), "real/cat/1.png 0\n");
  write_file(file("lists/real_test.txt"), "real/cat/1.png 0\n");
  for (const char* name : {"real_train.txt", "lists/real_test.txt"}) {
    EXPECT_EQ(read_image_list(file(name)).read(0), read_bytes(file("real/cat/1.png")));
  }
  EXPECT_EQ(Dataset(file("lists").string()).titles(), (Names{"real/test"}));
  write_file(file("far/away/x.txt"), "real/cat/1.png 0\n");
  EXPECT_HAS(error_of([&] { read_image_list(file("far/away/x.txt")); }),
             "its first picture, 'real/cat/1.png', is neither in its folder nor in the one above");
  write_file(file("far/away/y.txt"), file("real/cat/1.png").string() + " 0\n");
  EXPECT_EQ(read_image_list(file("far/away/y.txt")).read(0), read_bytes(file("real/cat/1.png")));
}

TEST_F(ImageList, ErrorsNameTheList) {
  write_file(file("x.txt"), "a.png 0\nb.png\n");
  const auto error = error_of([&] { read_image_list(file("x.txt")); });
  EXPECT_HAS(error, file("x.txt").string());
  EXPECT_HAS(error, "line 2");
  EXPECT_HAS(error_of([&] { Dataset(file("none.txt").string()); }), "none.txt");
}

TEST_F(ImageList, RelativePathsOfTheListItself) {
  write_picture(file("cat/1.png"), 1);
  write_file(file("lists/x.txt"), "cat/1.png 0\n");
  write_file(file("y.txt"), "cat/1.png 0\n");
  const auto before = fs::current_path();
  fs::current_path(folder_);
  EXPECT_EQ(read_image_list("lists/x.txt").read(0), read_bytes("cat/1.png"));
  EXPECT_EQ(read_image_list("y.txt").read(0), read_bytes("cat/1.png"));
  EXPECT_EQ(Dataset("y.txt").titles(), (Names{"y"}));
  fs::current_path(before);
}

TEST_F(ImageList, ListsOfOneDataSetMustAgree) {
  write_picture(file("cat/1.png"), 1);
  write_file(file("a_train.txt"), "cat/1.png 0\ndog/1.png 1\n");
  write_file(file("a_test.txt"), "cat/1.png 0\nant/1.png 2\n");
  EXPECT_EQ(Dataset(folder_.string()).classes(), (Names{"cat", "dog", "ant"}));
  write_file(file("b_test.txt"), "cat/1.png 1\n");
  EXPECT_HAS(error_of([&] { Dataset(folder_.string()); }), "lists of one data set must agree");
  EXPECT_HAS(error_of([&] { Dataset(folder_.string()); }),
             "class 1 is 'dog' in one list and 'cat' in 'b/test'");
}

TEST_F(ImageList, NamesBeatNumbersOfAnotherList) {
  write_picture(file("cat/1.png"), 1);
  write_picture(file("1.png"), 1);
  write_file(file("a.txt"), "1.png 0\n1.png 3\n");
  write_file(file("b.txt"), "cat/1.png 0\ndog/1.png 1\n");
  EXPECT_EQ(Dataset(folder_.string()).classes(), (Names{"cat", "dog", "2", "3"}));
}

TEST_F(ImageList, AClassListBesideNamesTheNumbers) {
  write_picture(file("1.png"), 1);
  write_file(file("a.txt"), "1.png 0\n1.png 2\n");
  write_file(file("classes.txt"), "tench\r\ngreat white shark\n\ngoldfish\nextra 1\n");
  const Dataset data(folder_.string());
  EXPECT_EQ(data.titles(), (Names{"a"}));
  EXPECT_EQ(data.classes(), (Names{"tench", "great white shark", "goldfish", "extra 1"}));
  EXPECT_EQ(labels_of(*data.parts()[0]), (std::vector<int64_t>{0, 2}));
  write_file(file("classes.txt"), "tench\n");
  EXPECT_HAS(error_of([&] { Dataset(folder_.string()); }), "'a' has 3 classes, more than the 1");
  write_file(file("classes.txt"), "tench\nshark\ntench\n");
  EXPECT_HAS(error_of([&] { Dataset(folder_.string()); }), "has the class 'tench' twice");
  write_file(file("classes.txt"), "\n");
  EXPECT_HAS(error_of([&] { Dataset(folder_.string()); }), "is empty; expected a class a line");
}

TEST_F(ImageList, GivenClassesAreMatchedByNameOrElseByPosition) {
  write_picture(file("cat/1.png"), 1);
  write_file(file("a.txt"), "cat/1.png 0\ndog/1.png 1\n");
  const auto labels = [&](const Names& classes) {
    return labels_of(*Dataset(folder_.string(), DatasetOptions().classes(classes)).parts()[0]);
  };
  EXPECT_EQ(labels({"dog", "ant", "cat"}), (std::vector<int64_t>{2, 0}));
  EXPECT_EQ(labels({"Katze", "Hund", "Ameise"}), (std::vector<int64_t>{0, 1}));
  EXPECT_HAS(error_of([&] { labels({"Katze"}); }), "more than the 1 it is matched with");
}

TEST_F(ImageList, IsWrittenWithAbsolutePaths) {
  write_picture(file("data/cat one/1.png"), 1);
  write_picture(file("data/dog/2.png"), 2);
  const auto part = read_image_folder(file("data")).at(0);
  fs::create_directories(file("lists"));
  write_image_list(part, {1, 0, 1}, file("lists/some.txt"));
  const auto list = read_image_list(file("lists/some.txt"));
  EXPECT_EQ(labels_of(list), (std::vector<int64_t>{1, 0, 1}));
  EXPECT_EQ(list.place(1), file("data/cat one/1.png").string());
  EXPECT_EQ(list.read(0), part.read(1));
  EXPECT_EQ(list.classes, (Names{"cat one", "dog"}));
}

TEST_F(ImageList, IsToldFromOtherText) {
  write_file(file("list.txt"), "a b/1.png 4\r\n");
  EXPECT_TRUE(is_image_list(file("list.txt")));
  for (const char* text : {"", "\n", "some words\n", "n01440764 tench, Tinca tinca\n", "a.png\n", "3\n"}) {
    write_file(file("other.txt"), text);
    EXPECT_FALSE(is_image_list(file("other.txt"))) << text;
  }
  EXPECT_FALSE(is_image_list(file("none.txt")));
  EXPECT_FALSE(is_image_list(folder_));
}

TEST_F(ImageList, AMillionLinesTakeLittleMemory) {
  write_picture(file("real/class_000/real_001_000000.jpg"), 1);
  std::string text;
  for (int i = 0; i < 1'000'000; ++i) {
    text += fmt::format("real/class_{:03}/real_{:03}_{:06}.jpg {}\n", i % 345, i % 345 + 1, i, i % 345);
  }
  write_bytes(file("real_train.txt"), text);
  text = std::string();
  std::ofstream("/proc/self/clear_refs") << "5";  // forgets the peak so far
  const int64_t before = test::status_kib("VmRSS");
  const auto start = std::chrono::steady_clock::now();
  const Dataset data(file("real_train.txt").string());
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const int64_t peak = test::status_kib("VmHWM") - before, held = test::status_kib("VmRSS") - before;
  std::printf("a list of 1,000,000 lines (%ju MB): %.2f s, %jd MiB at most, %jd MiB held\n",
              static_cast<uintmax_t>(fs::file_size(file("real_train.txt")) / 1'000'000), seconds.count(),
              static_cast<intmax_t>(peak / 1024), static_cast<intmax_t>(held / 1024));
  EXPECT_EQ(data.parts()[0]->size(), 1'000'000);
  EXPECT_EQ(data.classes().size(), 345u);
  EXPECT_EQ(data.parts()[0]->name(999'999), "real/class_189/real_190_999999.jpg");
  EXPECT_LT(peak, 300 << 10);
}

// ---------------------------------------------------------------------------------------------------------
// Tars.

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

// A header and its bytes, as anybody might write them.
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
  const Names pictures = {"train/000.jpg", "train/" + folder + "001.png", "train/empty.JPEG"};
  const Names labels = {"2", "0", "1"};
  std::string second;
  for (int i = 0; i < 100; ++i) second += "picture 1";
  const Names contents = {"picture 0", second, ""};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(samples[i].picture, pictures[i]);
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
  EXPECT_EQ(indexed(read_bytes(file("x.tar"))).at(0).picture, name);
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
  write_file(file("classnames.txt"), "a\nb\nc\nd\n");
  EXPECT_EQ(Dataset(folder_.string()).classes(), (Names{"a", "b", "c", "d"}));
  write_file(file("classes.txt"), "a\nb\nc\n");
  EXPECT_HAS(error_of([&] { Dataset(folder_.string()); }), "have a label 3, but their list of classes has 3");
}

TEST_F(Tars, LabelsThatAreNames) {
  write_tar(file("x.tar"), {{"0.jpg", "a"}, {"0.cls", "dog"}, {"1.jpg", "b"}, {"1.cls", "cat\n"}});
  EXPECT_EQ(Dataset(file("x.tar").string()).classes(), (Names{"cat", "dog"}));
  EXPECT_EQ(labels_of(*Dataset(file("x.tar").string()).parts()[0]), (std::vector<int64_t>{1, 0}));
  write_file(file("classes.txt"), "dog\nant\ncat\n");
  EXPECT_EQ(labels_of(*Dataset(file("x.tar").string()).parts()[0]), (std::vector<int64_t>{0, 2}));
  write_file(file("classes.txt"), "dog\nant\n");
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

TEST_F(Tars, FlatTarsHaveNoLabels) {
  write_tar(file("all.tar"), {{"1.png", "a"}, {"2.png", "b"}});
  EXPECT_EQ(labels_of(*Dataset(file("all.tar").string()).parts()[0]), (std::vector<int64_t>{-1, -1}));
}

TEST_F(Tars, PicturesWithoutALabelAmongOthersAreAnError) {
  write_tar(file("x.tar"), {{"0.jpg", "a"}, {"0.cls", "0"}, {"1.jpg", "b"}, {"2.jpg", "c"}, {"2.cls", "  "}});
  EXPECT_HAS(error_of([&] { Dataset(file("x.tar").string()); }), "'1.jpg' has no label (.cls or .json)");
}

TEST_F(Tars, TwoPicturesOfOneKeyAreAnError) {
  write_tar(file("x.tar"), {{"a/0.jpg", "a"}, {"a/0.cls", "0"}, {"a/0.png", "b"}});
  EXPECT_HAS(error_of([&] { Dataset(file("x.tar").string()); }), "'a/0.jpg' and 'a/0.png' have the same key");
}

TEST_F(Tars, WithoutPictures) {
  write_tar(file("x.tar"), {{"0.cls", "0"}, {"1.txt", "b"}});
  EXPECT_HAS(error_of([&] { Dataset(file("x.tar").string()); }), "no picture");
  for (const std::string& bytes : {std::string(), kTarEnd}) {
    write_bytes(file("x.tar"), bytes);
    EXPECT_HAS(error_of([&] { Dataset(file("x.tar").string()); }), "no picture");
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
        ASSERT_EQ(samples[i].picture, all[i].picture);
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

TEST_F(Tars, CutWhileInUseTheyAreRefused) {
  write_tar(file("x.tar"), {{"0.jpg", std::string(600, 'a')}, {"0.cls", "0"}});
  const auto part = read_tar_shards({file("x.tar")}).at(0);
  fs::resize_file(file("x.tar"), 700);
  EXPECT_HAS(refusal_of([&] { part.read(0); }), "ends early");
  fs::remove(file("x.tar"));
  EXPECT_HAS(refusal_of([&] { part.read(0); }), "No such file");
}

TEST_F(Tars, AWrongBitInAHeaderIsNoticed) {
  write_tar(file("x.tar"), {{"0.jpg", "picture"}, {"0.cls", "0"}});
  const std::string whole = read_bytes(file("x.tar"));
  size_t refused = 0;
  for (size_t i = 0; i < kTarBlock; ++i) {
    std::string bytes = whole;
    bytes[i] = static_cast<char>(bytes[i] ^ 1);
    try {
      const auto samples = indexed(bytes);
      ASSERT_EQ(samples.size(), 1u) << i;
      EXPECT_EQ(samples[0].picture, "0.jpg") << i;
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
             "byte 0: the checksum of a file is no number");
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
  expect(tar_entry("a.jpg", '0', "x", "12x"), "the size of a file is no number");
  expect(tar_entry("a.jpg", '0', "x", std::string(12, ' ')), "the size of a file is no number");
  expect(tar_entry("a", 'L', std::string(70'000, 'n')) + kTarEnd, "a name of 70000 bytes");
  for (const char* record : {"x", "11 path=a\n", "10 pathab\n", "4 a\n", "99999999999999999999 ", "3 \n"}) {
    expect(tar_entry("a", 'x', record) + tar_entry("a.jpg", '0', "") + kTarEnd, "a pax record is malformed");
  }
  expect(tar_entry("a", 'x', "10 size=x\n") + tar_entry("a.jpg", '0', ""),
         "a pax record's size is no number");
  expect(tar_entry("a", 'x', "12 size=900\n") + tar_entry("a.jpg", '0', ""), "middle of a file of 900 bytes");
}

TEST(TarHeaders, PaxSizesAndGlobalRecords) {
  const std::string bytes =
      tar_entry("g", 'g', "17 comment=hello\n") + tar_entry("x", 'x', "10 size=3\n15 path=ab.jpg\n") +
      tar_entry("short.jpg", '0', "abc", "00000000000") + tar_entry("b.png", '\0', "de") + kTarEnd;
  const auto samples = indexed(bytes);
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[0].picture, "ab.jpg");
  EXPECT_EQ(bytes.substr(samples[0].offset, samples[0].size), "abc");
  EXPECT_EQ(samples[1].picture, "b.png");
}

TEST(TarHeaders, LargeLabelsAreRefused) {
  const std::string large(2 << 20, '1');
  EXPECT_HAS(
      refusal_of([&] { indexed(tar_entry("a.jpg", '0', "") + tar_entry("a.cls", '0', large) + kTarEnd); }),
      "'a.cls' has 2097152 bytes");
}

}  // namespace
}  // namespace tpgm
