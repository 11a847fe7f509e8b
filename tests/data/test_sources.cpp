// The sources of images: folders, lists and tars laid out as the known data sets are, and wrongly.
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
#include "tpgm/data/formats/encoded_image.h"
#include "tpgm/data/formats/format.h"
#include "tpgm/data/sources/list.h"
#include "tpgm/io/file.h"

namespace tpgm {
namespace {

namespace fs = std::filesystem;
using namespace test;
using Names = std::vector<std::string>;

// The number of images of each class, by its name.
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
        ASSERT_GT(EncodedImage(part->read(i)).decode().pixels.size(), 0u) << part->place(i);
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
  EXPECT_EQ(open("imagenet-r").notes(), (Names{"left out, as no images: 1, such as '" +
                                               (root_ / "imagenet-r/README.txt").string() + "'"}));
  Names without = kImageNet;
  without[1] = "n01443538";
  EXPECT_HAS(error_of([&] { open("imagenet-r", without); }),
             "class 'n01443537' of 'imagenet-r' is not one of the 12 classes; the nearest is 'n01443538'");
}

TEST_F(KnownLayouts, ClassesCanBeTakenFromAnotherDataSet) {
  EXPECT_EQ(load_class_list(root_ / "imagenet" / "val"), kImageNet);
  EXPECT_HAS(error_of([] { load_class_list(root_ / "imagenet"); }), "is not a folder of class folders");
}

TEST_F(KnownLayouts, ListsOfClassesHaveALimit) {
  std::string text;
  for (int64_t i = 0; i <= kMostClasses; ++i) text += "class " + std::to_string(i) + "\n";
  const auto file = std::filesystem::path(::testing::TempDir()) / "tpgm-too-many-classes.txt";
  write_file(file, text);
  EXPECT_HAS(error_of([&] { load_class_list(file); }),
             "it has more than 100000 lines; expected a class a line");
  std::filesystem::remove(file);
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
  EXPECT_HAS(error, "has no 'skecth'; it has");
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
  write_image(file("real/train/cat/1.png"), 1);
  write_image(file("real/test/cat/1.png"), 2);
  write_image(file("sketch/dog/1.png"), 3);
  write_image(file("train/bird/deep/below/1.png"), 4);  // no image before it: 'below' is the class
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

TEST_F(ImageFolder, TheInnermostFoldersAreClasses) {
  write_image(file("montage.png"), 1);
  write_image(file("train/cat/1.jpg"), 2);
  write_image(file("train/dog/2.PNG"), 3);
  write_image(file("train/overview.JPEG"), 4);
  std::vector<std::string> notes;
  const auto parts = read_image_folder(folder_, &notes);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].title(), "train");
  EXPECT_EQ(names_of(parts[0]), (Names{"train/cat/1.jpg", "train/dog/2.PNG"}));
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_HAS(notes[0], "left out, as they lie beside folders of images: 2, such as '");
}

TEST_F(ImageFolder, AClassWithoutImagesIsAnError) {
  write_image(file("train/cat/1.jpg"), 1);
  put_file(file("train/dog/notes.txt"), "none yet");
  EXPECT_HAS(error_of([&] { read(); }), "train/dog' is among class folders and holds no image");
  test::remove_folder(file("train/dog"));
  fs::create_directories(file("nothing/here"));  // among parts it is not a class
  EXPECT_EQ(read().size(), 1u);
}

TEST_F(ImageFolder, NumbersBesideNamesArePositions) {
  for (const char* name : {"n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9", "nA", "nB"}) {
    write_image(file("val") / name / "1.jpg", 1);
  }
  write_image(file("v2/10/1.jpg"), 2);
  write_image(file("v2/2/1.jpg"), 2);
  for (const auto& options :
       {DatasetOptions(), DatasetOptions().classes(Dataset(folder_.string()).classes())}) {
    const Dataset data(folder_.string(), options);
    EXPECT_EQ(data.classes().size(), 12u);
    EXPECT_EQ(labels_of(*data.find("v2", "")), (std::vector<int64_t>{2, 10}));
  }
}

TEST_F(ImageFolder, NumbersAreSortedByValueUnlessThereAreNames) {
  for (const char* name : {"10", "2", "1"}) write_image(file(std::string("all/") + name + "/x.png"), 1);
  for (const char* name : {"10", "2", "a"}) write_image(file(std::string("some/") + name + "/x.png"), 1);
  const auto parts = read();
  EXPECT_EQ(parts.at(0).classes, (Names{"1", "2", "10"}));
  EXPECT_EQ(parts.at(1).classes, (Names{"10", "2", "a"}));
}

TEST_F(ImageFolder, HiddenFilesAndLeftoversAreLeftOut) {
  write_image(file("cat/1.png"), 1);
  put_file(file("cat/._1.png"), "a Mac was here");
  put_file(file("cat/.DS_Store"), "");
  write_image(file(".thumbnails/x/1.png"), 1);
  write_image(file("__MACOSX/cat/1.png"), 1);
  put_file(file("cat/Thumbs.db"), "");
  put_file(file("cat/2.gif"), "");
  put_file(file("cat/3.gif"), "");
  put_file(file("readme.md"), "");
  std::vector<std::string> notes;
  UnreadFiles unread;
  const auto parts = read_image_folder(folder_, &notes, &unread);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(names_of(parts[0]), (Names{"cat/1.png"}));
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_HAS(notes[0], "left out, as no images: 2, such as '");
  EXPECT_EQ(Dataset(folder_.string()).notes(), notes);
  EXPECT_EQ(unread, (UnreadFiles{{".gif", 2}}));
}

TEST_F(ImageFolder, ImagesOfOtherFormatsAreCounted) {
  write_image(file("cat/1.png"), 1);
  EXPECT_EQ(Dataset(folder_.string()).unread_note(), "");
  put_file(file("cat/2.Gif"), "");
  fs::create_directories(file("cat/3.gif"));
  const std::string where = folder_.string(), are = " (" + format_names() + " are)";
  EXPECT_EQ(Dataset(where).unread_note(), "1 file of '" + where + "' is not read: 1 .gif" + are);
  put_file(file("cat/4.bmp"), "");
  const Dataset data(where);
  EXPECT_EQ(data.unread(), (UnreadFiles{{".bmp", 1}, {".gif", 1}}));
  const std::string text = "2 files of '" + where + "' are not read: 1 .gif, 1 .bmp" + are;
  EXPECT_EQ(data.unread_note(), text);
  EXPECT_EQ(data.with_classes({"dog", "cat"}).unread_note(), text);
  fs::remove(file("cat/1.png"));
  const std::string error = error_of([&] { Dataset{where}; });
  EXPECT_HAS(error, "no image (" + format_suffixes() + ") is below '" + where + "'");
  EXPECT_HAS(error, "1 .gif, 1 .bmp");
}

TEST_F(ImageFolder, ImagesAloneHaveNoLabels) {
  write_image(file("b.png"), 1);
  write_image(file("a.jpg"), 2);
  const Dataset data(folder_.string());
  const auto part = data.part(folder_.filename().string(), Role::kTest);
  EXPECT_EQ(names_of(*part), (Names{"a.jpg", "b.png"}));
  EXPECT_EQ(labels_of(*part), (std::vector<int64_t>{-1, -1}));
  EXPECT_TRUE(data.classes().empty());
  EXPECT_EQ(Dataset(folder_.string(), DatasetOptions().classes({"x"})).classes(), (Names{"x"}));
}

TEST_F(ImageFolder, LinksAreFollowed) {
  write_image(file("elsewhere/images/1.png"), 1);
  fs::create_directories(file("data/dog"));
  fs::create_directory_symlink(file("elsewhere/images"), file("data/cat"));
  fs::create_symlink(file("elsewhere/images/1.png"), file("data/dog/linked.png"));
  const Dataset data(file("data").string());
  EXPECT_EQ(data.classes(), (Names{"cat", "dog"}));
  EXPECT_EQ(data.parts()[0]->read(0), data.parts()[0]->read(1));
}

TEST_F(ImageFolder, LinksInACircleAreNamed) {
  write_image(file("cat/1.png"), 1);
  fs::create_directory_symlink(file("cat"), file("cat/again"));
  EXPECT_HAS(error_of([&] { read(); }), "does a link lead in a circle?");
  fs::remove(file("cat/again"));
  fs::create_directories(file("dog"));
  fs::create_directory_symlink(folder_, file("dog/up"));
  EXPECT_HAS(error_of([&] { read(); }), "does a link lead in a circle?");
}

TEST_F(ImageFolder, ABrokenLinkIsABadImageAndNoMore) {
  write_image(file("cat/1.png"), 1);
  fs::create_symlink(file("nowhere"), file("cat/2.png"));
  fs::create_directory_symlink(file("nowhere"), file("dog"));
  const auto parts = read();
  ASSERT_EQ(parts.at(0).size(), 2);
  EXPECT_HAS(refusal_of([&] { parts[0].read(1); }), "No such file");
}

TEST_F(ImageFolder, WhatCannotBeListedIsAnError) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  write_image(file("cat/1.png"), 1);
  fs::create_directories(file("dog"));
  fs::permissions(file("dog"), fs::perms::none);
  EXPECT_HAS(error_of([&] { read(); }), "cannot read the folder");
  fs::permissions(file("dog"), fs::perms::owner_all);
}

TEST_F(ImageFolder, AFileThatVanishesIsRefusedWhenItIsRead) {
  write_image(file("cat/1.png"), 1);
  fs::create_directories(file("cat/2.png"));
  const auto part = read().at(0);
  EXPECT_EQ(part.read(0), read_bytes(file("cat/1.png")));
  EXPECT_EQ(part.place(0), file("cat/1.png").string());
  fs::remove(file("cat/1.png"));
  EXPECT_HAS(refusal_of([&] { part.read(0); }), "No such file");
  EXPECT_HAS(refusal_of([&] { part.read(1); }), "not a regular file");
}

TEST_F(ImageFolder, AnArchiveThatWasLeftThereIsNotRead) {
  write_image(file("val/cat/1.jpg"), 1);
  test::write_tar(file("ILSVRC2012_img_val.tar"), {{"ILSVRC2012_val_00000001.JPEG", "x"}});
  const Dataset data(folder_.string());
  EXPECT_EQ(data.titles(), Names{"val"});
  EXPECT_HAS(data.notes().at(0), "not read, as they have no labels: 1 tar, such as 'ILSVRC2012_img_val.tar'");
  test::write_tar(file("train.tar"), {{"cat/2.jpg", "x"}});
  EXPECT_HAS(Dataset(folder_.string()).notes().at(0), "beside them: 0 lists, 1 folder");
}

TEST_F(ImageFolder, AImageByItself) {
  write_image(file("cat/1.jpg"), 1);
  const Dataset data(file("cat/1.jpg").string());
  EXPECT_EQ(names_of(*data.parts()[0]), Names{"1.jpg"});
  EXPECT_NO_THROW(data.parts()[0]->read(0));
}

TEST_F(ImageFolder, APipeIsNotWaitedFor) {
  fs::create_directories(file("cat"));
  ASSERT_EQ(::mkfifo(file("cat/1.jpg").c_str(), 0600), 0);
  const Dataset data(folder_.string());
  EXPECT_HAS(refusal_of([&] { data.parts()[0]->read(0); }), "not a regular file");
}

TEST_F(ImageFolder, AFileLargerThanAnyImageIsRefused) {
  put_file(file("cat/1.jpg"), "x");
  fs::resize_file(file("cat/1.jpg"), int64_t{1} << 40);  // sparse
  const Dataset data(folder_.string());
  EXPECT_HAS(refusal_of([&] { data.parts()[0]->read(0); }), "1099511627776 bytes");
}

TEST_F(ImageFolder, ALinkToItselfIsLeftOut) {
  write_image(file("cat/1.jpg"), 1);
  fs::create_symlink(file("loop"), file("loop"));
  EXPECT_EQ(Dataset(folder_.string()).parts()[0]->size(), 1);
}

TEST_F(ImageFolder, TwoPartsOfOneNameAreAnError) {
  write_image(file("real/train/cat/1.jpg"), 1);
  write_image(file("train/real/cat/1.jpg"), 2);
  EXPECT_HAS(error_of([&] { Dataset(folder_.string()); }), "two parts that are both 'real/train'");
}

TEST_F(ImageFolder, ADomainsOnlyPartIsMeantWhateverItsSplit) {
  write_image(file("real/train/cat/1.jpg"), 1);
  write_image(file("sketch/cat/1.jpg"), 2);
  const Dataset data(folder_.string());
  EXPECT_EQ(data.part("real", Role::kTest), data.part("real", Role::kTrain));
}

TEST_F(ImageFolder, NamesNeedNotBeUtf8) {
  const std::string odd = "caf\xe9", name = "\xff\xfe \n.png";
  write_image(folder_ / odd / name, 1);
  const auto part = read().at(0);
  EXPECT_EQ(part.classes, (Names{odd}));
  EXPECT_EQ(part.read(0), read_bytes(folder_ / odd / name));
  const auto error = error_of([&] { Dataset(folder_.string(), DatasetOptions().classes({"cafe"})); });
  EXPECT_HAS(error, "such as 'caf?'");
}

TEST_F(ImageFolder, NothingToReadIsAnErrorThatSaysWhatWasThere) {
  EXPECT_HAS(error_of([&] { Dataset(folder_.string()); }), "no image (" + format_suffixes() + ") is below");
  put_file(file("cat/1.gif"), "");
  EXPECT_HAS(error_of([&] { Dataset(folder_.string()); }),
             "is not read: 1 .gif (" + format_names() + " are)");
  EXPECT_HAS(error_of([&] { Dataset(file("nowhere").string()); }), "there is no '");
}

TEST_F(ImageFolder, PartsHaveTheClassesOfAllParts) {
  write_image(file("a/cat/1.png"), 1);
  write_image(file("b/dog/1.png"), 2);
  write_image(file("b/ant/1.png"), 2);
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

TEST(Parts, EndingsOfImages) {
  for (const char* name : {"a.jpg", "a.JPG", "a.JPEG", "b.c.Png", "0.1_x _ y.jpg"})
    EXPECT_TRUE(is_image_name(name));
  for (const char* name : {"a.jpg.txt", "jpg", "a.gif", "", ".", "a."}) EXPECT_FALSE(is_image_name(name));
}

// ---------------------------------------------------------------------------------------------------------
// Lists.

Samples parsed(const std::string& text) { return parse_image_list(text, "/images"); }

TEST(ImageListLines, AreAPathAndALabel) {
  const auto list = parsed("a/1.jpg 0\nb/2 3.jpg 1\r\n\n  c/4.jpg\t \t2  \r\n \t\r\n/abs/d/5.jpg 3");
  EXPECT_EQ(names_of(list), (Names{"a/1.jpg", "b/2 3.jpg", "c/4.jpg", "/abs/d/5.jpg"}));
  EXPECT_EQ(labels_of(list), (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(list.classes, (Names{"a", "b", "c", "d"}));
  EXPECT_EQ(list.place(0), "/images/a/1.jpg");
  EXPECT_EQ(list.place(3), "/abs/d/5.jpg");
}

TEST(ImageListLines, WrongOnesAreNamedByNumber) {
  for (const char* line : {"a.jpg", "a.jpg -1", "a.jpg x", "a.jpg 1x", "a.jpg 1.0", "a.jpg 100000",
                           "a.jpg 99999999999999999999", "7", " 5", "a.jpg +1", "a\x01.jpg 0x1"}) {
    const auto reason = refusal_of([&] { parsed("x.jpg 0\n\r\n" + std::string(line) + "\ny.jpg 1\n"); });
    EXPECT_HAS(reason, "line 3: expected a path, a space and a label from 0 to 99999, got '") << line;
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
  EXPECT_EQ(parsed("2/a.jpg 0\n1/b.jpg 1\n5/c.jpg 3\n").classes, (Names{"0", "1", "2", "3"}));  // "2" twice
}

class ImageList : public test::Scratch {};

TEST_F(ImageList, PathsAreRelativeToItsFolderOrTheOneAbove) {
  write_image(file("real/cat/1.png"), 1);
  put_file(file("real_train.txt"), "real/cat/1.png 0\n");
  put_file(file("lists/real_test.txt"), "real/cat/1.png 0\n");
  for (const char* name : {"real_train.txt", "lists/real_test.txt"}) {
    EXPECT_EQ(read_image_list(file(name)).read(0), read_bytes(file("real/cat/1.png")));
  }
  EXPECT_EQ(Dataset(file("lists").string()).titles(), (Names{"real/test"}));
  put_file(file("far/away/x.txt"), "real/cat/1.png 0\n");
  EXPECT_HAS(error_of([&] { read_image_list(file("far/away/x.txt")); }),
             "its images, such as 'real/cat/1.png', are neither in its folder nor in the one above");
  put_file(file("far/away/y.txt"), file("real/cat/1.png").string() + " 0\n");
  EXPECT_EQ(read_image_list(file("far/away/y.txt")).read(0), read_bytes(file("real/cat/1.png")));
}

// By their names, and without being opened, which would wait for a pipe. They stay in the list.
TEST_F(ImageList, ImagesOfOtherFormatsAreCounted) {
  write_image(file("cat/1.png"), 1);
  put_file(file("cat/2.webp"), "RIFF");
  put_file(file("cat/3.BMP"), "BM");
  ASSERT_EQ(::mkfifo(file("cat/5.webp").c_str(), 0600), 0);
  put_file(file("photos.txt"), "cat/2.webp 0\ncat/1.png 0\ncat/3.BMP 0\ncat/4.gif 0\ncat/5.webp 0\n");
  const Dataset data(folder_.string());  // whose first line is no image that can be read
  EXPECT_EQ(data.titles(), Names{"photos"});
  EXPECT_EQ(data.unread(), (UnreadFiles{{".webp", 1}, {".bmp", 1}}));  // neither the pipe nor what is missing
  EXPECT_EQ(data.parts()[0]->size(), 5);
}

TEST_F(ImageList, ErrorsNameTheList) {
  put_file(file("x.txt"), "a.png 0\nb.png\n");
  const auto error = error_of([&] { read_image_list(file("x.txt")); });
  EXPECT_HAS(error, file("x.txt").string());
  EXPECT_HAS(error, "line 2");
  EXPECT_HAS(error_of([&] { Dataset(file("none.txt").string()); }), "none.txt");
}

TEST_F(ImageList, RelativePathsOfTheListItself) {
  write_image(file("cat/1.png"), 1);
  put_file(file("lists/x.txt"), "cat/1.png 0\n");
  put_file(file("y.txt"), "cat/1.png 0\n");
  const auto before = fs::current_path();
  fs::current_path(folder_);
  EXPECT_EQ(read_image_list("lists/x.txt").read(0), read_bytes("cat/1.png"));
  EXPECT_EQ(read_image_list("y.txt").read(0), read_bytes("cat/1.png"));
  EXPECT_EQ(Dataset("y.txt").titles(), (Names{"y"}));
  fs::current_path(before);
}

TEST_F(ImageList, ListsOfOneDataSetMustAgree) {
  write_image(file("cat/1.png"), 1);
  put_file(file("a_train.txt"), "cat/1.png 0\ndog/1.png 1\n");
  put_file(file("a_test.txt"), "cat/1.png 0\nant/1.png 2\n");
  EXPECT_EQ(Dataset(folder_.string()).classes(), (Names{"cat", "dog", "ant"}));
  put_file(file("b_test.txt"), "cat/1.png 1\n");
  EXPECT_HAS(error_of([&] { Dataset(folder_.string()); }), "lists of one data set must agree");
  EXPECT_HAS(error_of([&] { Dataset(folder_.string()); }),
             "class 1 is 'dog' in one list and 'cat' in 'b/test'");
}

TEST_F(ImageList, NamesBeatNumbersOfAnotherList) {
  write_image(file("cat/1.png"), 1);
  write_image(file("1.png"), 1);
  put_file(file("a.txt"), "1.png 0\n1.png 3\n");
  put_file(file("b.txt"), "cat/1.png 0\ndog/1.png 1\n");
  EXPECT_EQ(Dataset(folder_.string()).classes(), (Names{"cat", "dog", "2", "3"}));
}

TEST_F(ImageList, AClassListBesideNamesTheNumbers) {
  write_image(file("1.png"), 1);
  put_file(file("a.txt"), "1.png 0\n1.png 2\n");
  put_file(file("classes.txt"), "tench\r\ngreat white shark\n\ngoldfish\nextra 1\n");
  const Dataset data(folder_.string());
  EXPECT_EQ(data.titles(), (Names{"a"}));
  EXPECT_EQ(data.classes(), (Names{"tench", "great white shark", "goldfish", "extra 1"}));
  EXPECT_EQ(labels_of(*data.parts()[0]), (std::vector<int64_t>{0, 2}));
  put_file(file("classes.txt"), "tench\n");
  EXPECT_HAS(error_of([&] { Dataset(folder_.string()); }), "'a' has 3 classes, more than the 1");
  put_file(file("classes.txt"), "tench\nshark\ntench\n");
  EXPECT_HAS(error_of([&] { Dataset(folder_.string()); }), "has the class 'tench' twice");
  put_file(file("classes.txt"), "\n");
  EXPECT_HAS(error_of([&] { Dataset(folder_.string()); }), "is empty; expected a class a line");
}

TEST_F(ImageList, GivenClassesAreMatchedByNameOrElseByPosition) {
  write_image(file("cat/1.png"), 1);
  put_file(file("a.txt"), "cat/1.png 0\ndog/1.png 1\n");
  const auto labels = [&](const Names& classes) {
    return labels_of(*Dataset(folder_.string(), DatasetOptions().classes(classes)).parts()[0]);
  };
  EXPECT_EQ(labels({"dog", "ant", "cat"}), (std::vector<int64_t>{2, 0}));
  EXPECT_EQ(labels({"Katze", "Hund", "Ameise"}), (std::vector<int64_t>{0, 1}));
  EXPECT_HAS(error_of([&] { labels({"Katze"}); }), "more than the 1 of the list it is matched with");
}

TEST_F(ImageList, IsWrittenWithAbsolutePaths) {
  write_image(file("data/cat one/1.png"), 1);
  write_image(file("data/dog/2.png"), 2);
  const auto part = read_image_folder(file("data")).at(0);
  fs::create_directories(file("lists"));
  write_image_list(part, {1, 0, 1}, file("lists/some.txt"));
  const auto list = read_image_list(file("lists/some.txt"));
  EXPECT_EQ(labels_of(list), (std::vector<int64_t>{1, 0, 1}));
  EXPECT_EQ(list.place(1), file("data/cat one/1.png").string());
  EXPECT_EQ(list.read(0), part.read(1));
  EXPECT_EQ(list.classes, (Names{"cat one", "dog"}));
}

TEST_F(ImageList, WhatIsCalledOneMustBeOne) {
  write_image(file("cat/1.png"), 1);
  put_file(file("real_test.txt"), "cat/1.png 0\n");
  for (const char* text : {"", "path label\ncat/1.png 0\n", "cat/1.png\n"}) {
    put_file(file("real_train.txt"), text);
    EXPECT_HAS(error_of([&] { Dataset(folder_.string()); }), "real_train.txt'");
  }
}

TEST_F(ImageList, MustAgreeWithTheListOfClasses) {
  write_image(file("cat/1.png"), 1);
  put_file(file("train.txt"), "cat/1.png 0\ndog/1.png 1\n");
  put_file(file("classes.txt"), "dog\ncat\n");
  EXPECT_HAS(error_of([&] { Dataset(folder_.string()); }),
             "label 0 of 'train' is 'cat' by its folder and 'dog'");
}

TEST_F(ImageList, SomeImagesMayBeMissing) {
  write_image(file("cat/2.png"), 1);
  put_file(file("train.txt"), "cat/1.png 0\ncat/2.png 0\n");
  EXPECT_EQ(Dataset(folder_.string()).parts()[0]->size(), 2);
}

TEST_F(ImageList, MayBeginWithAByteOrderMark) {
  write_image(file("cat/1.png"), 1);
  put_file(file("train.txt"),
           "\xef\xbb\xbf"
           "cat/1.png 0\n");
  put_file(file("README.txt"), "Version 2\n");
  EXPECT_EQ(names_of(*Dataset(folder_.string()).parts()[0]), Names{"cat/1.png"});
}

TEST_F(ImageList, OfWhichOnlySomeClassesAreKnownIsAnError) {
  write_image(file("cat/1.png"), 1);
  put_file(file("train.txt"), "cat/1.png 0\ndog/1.png 1\n");
  EXPECT_HAS(error_of([&] { Dataset(folder_.string(), DatasetOptions().classes({"ant", "cat", "dogs"})); }),
             "the nearest is 'dogs'");
  EXPECT_HAS(error_of([&] { Dataset(folder_.string(), DatasetOptions().classes({"ant", "cat", "cat"})); }),
             "twice");
}

TEST_F(ImageList, IsToldFromOtherText) {
  put_file(file("list.txt"), "a b/1.png 4\r\n");
  EXPECT_TRUE(is_image_list(file("list.txt")));
  for (const char* text : {"", "\n", "some words\n", "n01440764 tench, Tinca tinca\n", "a.png\n", "3\n"}) {
    put_file(file("other.txt"), text);
    EXPECT_FALSE(is_image_list(file("other.txt"))) << text;
  }
  EXPECT_FALSE(is_image_list(file("none.txt")));
  EXPECT_FALSE(is_image_list(folder_));
}

TEST_F(ImageList, AMillionLinesTakeLittleMemory) {
  write_image(file("real/class_000/real_001_000000.jpg"), 1);
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

}  // namespace
}  // namespace tpgm
