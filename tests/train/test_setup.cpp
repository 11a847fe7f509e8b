// What a run is made of: how often files are opened for it, and which classes its head has.
#include "tpgm/train/setup.h"

#include <sys/inotify.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <set>
#include <tuple>

#include "tests/data/data_files.h"
#include "tests/support.h"
#include "tpgm/data/formats/format.h"
#include "tpgm/io/file.h"
#include "tpgm/io/state_dict.h"
#include "tpgm/models/clip.h"
#include "tpgm/models/families.h"
#include "tpgm/models/named_models.h"
#include "tpgm/text/zero_shot.h"
#include "tpgm/train/test_paths.h"

namespace tpgm::test_setup {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using RunSetup = Setup;  // tests have a Setup() of their own
using Names = std::vector<std::string>;

constexpr const char* kVit = "vit:image_size=8,patch=4,width=8,depth=1,heads=1,mlp=8";

// How often files and folders are opened, as the kernel sees it.
class Opens {
 public:
  Opens() : descriptor_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {}
  ~Opens() { ::close(descriptor_); }
  void watch(const fs::path& path) { paths_[::inotify_add_watch(descriptor_, path.c_str(), IN_OPEN)] = path; }

  // For each path that was watched; opening what is in a folder does not count.
  std::map<fs::path, int> counts() {
    std::map<fs::path, int> counts;
    for (const auto& [watch, path] : paths_) counts[path] = 0;
    std::array<char, 1 << 16> buffer{};
    for (ssize_t size = 0; (size = ::read(descriptor_, buffer.data(), buffer.size())) > 0;) {
      for (ssize_t at = 0; at < size;) {
        inotify_event event{};
        std::memcpy(&event, buffer.data() + at, sizeof event);
        if (event.len == 0) ++counts[paths_.at(event.wd)];
        at += static_cast<ssize_t>(sizeof event + event.len);
      }
    }
    return counts;
  }

 private:
  int descriptor_;
  std::map<int, fs::path> paths_;
};

class SetupTest : public test::Scratch {
 protected:
  SetupTest() {
    at::set_num_threads(1);
    uint64_t number = 0;
    for (const char* name : {"cat", "dog", "big_fish"}) {
      for (int i = 0; i < 8; ++i)
        test::write_image(data() / name / (std::to_string(i) + ".png"), number++, 8, 8);
    }
  }
  fs::path data() const { return folder_ / "data"; }
  fs::path checkpoint() const { return folder_ / "anchor.safetensors"; }
  std::string head() const { return (folder_ / "head.safetensors").string(); }

  // A classifier of ours that knows these classes, and a head from text for the same.
  void save_checkpoint(const Names& classes) const {
    ModelConfig config = parse_model(kVit);
    set_defaults(config);
    auto backbone = make_backbone(config);
    backbone->reset_parameters();
    const auto count = static_cast<int64_t>(classes.size());
    const Classifier model(backbone, ClassifierOptions().num_classes(count));
    std::string json;
    ZeroShotHead head;
    head.weight = torch::randn({count, 8});
    for (auto name : classes) {
      json += (json.empty() ? "\"" : ", \"") + name + "\"";
      std::replace(name.begin(), name.end(), '_', ' ');
      head.class_names.push_back(name);
    }
    save_weights(model, checkpoint(), {{"tpgm.model", to_text(config)}, {"tpgm.classes", "[" + json + "]"}});
    save_zero_shot(head, this->head());
  }
  RunSetup prepare(const Settings& more) const {
    Settings settings = {{"data-dir", data().string()},
                         {"checkpoint", checkpoint().string()},
                         {"head", "checkpoint"},
                         {"batch-size", "4"},
                         {"device", "cpu"}};
    for (const auto& [key, value] : more) settings[key] = value;
    return prepare_run(make_options(settings));
  }
};

TEST_F(SetupTest, OpensDataAndCheckpointOnce) {
  save_checkpoint({"dog", "big_fish", "bird", "cat"});
  write_file(folder_ / "classes.txt", "dog\ncat\nbig_fish\n");
  const std::vector<Settings> all = {{{"head", "fresh"}},
                                     {{"head", "checkpoint"}},
                                     {{"head", "checkpoint"}, {"method", "tpgm"}},
                                     {{"head", "fresh"}, {"class-list", (folder_ / "classes.txt").string()}},
                                     {{"head", "auto"}, {"image-size", "16"}},
                                     {{"head", head()}}};
  for (const auto& more : all) {
    SCOPED_TRACE(more.at("head"));
    Opens opens;
    for (const char* name : {"cat", "dog", "big_fish"}) opens.watch(data() / name);
    opens.watch(checkpoint());
    const RunSetup setup = prepare(more);
    for (const auto& [path, count] : opens.counts()) EXPECT_EQ(count, 1) << path;
    EXPECT_GT(setup.data.train.size(), 0);
  }
}

TEST_F(SetupTest, GivesTheHeadTheClassesOfTheData) {
  save_checkpoint({"dog", "big_fish", "bird", "cat"});
  const RunSetup own = prepare({});
  EXPECT_EQ(own.data.classes, (Names{"big_fish", "cat", "dog"}));
  const auto saved = load_state_dict(checkpoint());
  EXPECT_TRUE(
      torch::equal(own.model->head->weight, saved["head.weight"].index_select(0, torch::tensor({1, 3, 0}))));

  // The classes of a file's head come in its order, and the data's labels follow.
  const RunSetup file = prepare({{"head", head()}});
  EXPECT_EQ(file.data.classes, (Names{"dog", "big_fish", "bird", "cat"}));
  for (const auto* subset : {&file.data.train, &file.data.radius, &file.data.selection}) {
    for (const int64_t i : subset->indices) {
      const auto& name = file.data.classes.at(static_cast<size_t>(subset->samples->label(i)));
      EXPECT_EQ(std::string(subset->samples->name(i)).substr(0, name.size()), name);
    }
  }
}

// A whole CLIP that reads bytes, saved under our names.
class ClipSetup : public SetupTest {
 protected:
  ClipSetup() { save(514); }
  void save(int64_t vocab) const {
    ModelConfig config = parse_model(fmt::format(
        "clip-vit:image_size=8,patch=4,width=8,depth=1,heads=1,mlp=8,embedding=8,text_width=8,text_depth=1,"
        "text_heads=1,text_mlp=8,vocab={},context=77",
        vocab));
    set_defaults(config);
    const auto clip = make_clip(config);
    clip->reset_parameters();
    save_weights(*clip, checkpoint(), {{"tpgm.model", to_text(config)}});
  }
  // The head and its learning rate that a run gets, and what is noted about the head.
  std::string decided(Settings more, const std::string& lr) const {
    more.insert({{"head", "auto"}, {"method", "lp-ft"}});
    const RunSetup setup = prepare(more);
    EXPECT_EQ(to_text(setup.options.head_lr), lr);
    EXPECT_EQ(setup.options.lp_lr, setup.options.head_lr.value(setup.options.lr));
    const auto found = std::find_if(setup.notes.begin(), setup.notes.end(),
                                    [](const auto& note) { return note.find("the head is") == 0; });
    return to_text(setup.options.head) + (found == setup.notes.end() ? "" : ": " + *found);
  }
};

TEST_F(ClipSetup, BeginsWithClassNamesWhereTheyAreWords) {
  EXPECT_HAS(decided({}, "lr"), "zeroshot: the head is made from the class names");
  EXPECT_TRUE(torch::equal(prepare({{"head", "auto"}}).model->head->weight,
                           prepare({{"head", "zeroshot"}}).model->head->weight));
  EXPECT_EQ(decided({{"head", "fresh"}}, "0.001"), "fresh");
  for (const char* code : {"n01440764", "7"}) {
    fs::rename(data() / "dog", data() / code);
    const auto fresh = decided({}, "0.001");
    EXPECT_HAS(fresh, "fresh: the head is fresh, not from the class names: '" + std::string(code));
    EXPECT_HAS(fresh, "`classnames` names the classes");
    write_file(folder_ / "names.txt", "big fish\ncat\ndog\n");
    EXPECT_HAS(decided({{"classnames", (folder_ / "names.txt").string()}}, "lr"), "zeroshot");
    fs::rename(data() / code, data() / "dog");
  }
  save(600);  // it takes a vocabulary that is not there
  EXPECT_HAS(decided({}, "0.001"), "there is no vocabulary beside the checkpoint; `vocab` names one");
}

TEST_F(ClipSetup, AFreshHeadLearnsFaster) {
  const auto rate = [&](Settings more) {
    more.insert({{"head", "fresh"}});
    return to_text(prepare(more).options.head_lr);
  };
  EXPECT_EQ(rate({}), "0.001");
  EXPECT_EQ(rate({{"lr", "0.01"}}), "lr");    // it is fast already
  EXPECT_EQ(rate({{"method", "lp"}}), "lr");  // nothing else trains
  EXPECT_EQ(rate({{"lr", "0"}}), "lr");
  EXPECT_EQ(rate({{"head-lr", "lr"}}), "lr");
  EXPECT_EQ(rate({{"head-lr", "0.5"}}), "0.5");
  EXPECT_EQ(rate({{"checkpoint", ""}, {"model", kVit}}), "lr");  // all weights are fresh
  EXPECT_EQ(rate({{"head", "auto"}, {"checkpoint", ""}, {"model", kVit}}), "lr");
}

TEST_F(SetupTest, TakesAnImageSize) {
  save_checkpoint({"cat", "dog", "big_fish"});
  const RunSetup setup = prepare({{"image-size", "16"}});
  EXPECT_TRUE(setup.options.model.starts_with("vit:image_size=16,channels=3,patch=4,width=8"))
      << setup.options.model;
  EXPECT_EQ(setup.options.image_size, std::nullopt);
  EXPECT_EQ(setup.images.eval.image_size(), 16);
  EXPECT_EQ(prepare({{"image-size", "16"}, {"model", kVit}}).options.model, setup.options.model);
  EXPECT_EQ(prepare({{"image-size", "16"}, {"checkpoint", ""}, {"model", kVit}, {"head", "fresh"}})
                .model->backbone->image_size(),
            16);
  EXPECT_HAS(error_of([&] { prepare({{"image-size", "15"}}); }), "image_size=15 is not a multiple of 4");
}

TEST_F(SetupTest, DecidesWhatIsLeftOpen) {
  save_checkpoint({"cat", "dog", "big_fish"});
  const RunSetup setup = prepare({{"batch-size", "1000"}, {"method", "lp-ft"}});
  const auto& decided = setup.options;
  EXPECT_EQ(decided.batch_size, setup.data.train.size());
  EXPECT_EQ(decided.validation_batch_size, decided.batch_size);
  EXPECT_EQ(decided.radius_batch_size, std::min(decided.batch_size / 4, setup.data.radius.size()));
  EXPECT_EQ(decided.lp_epochs, 5);
  EXPECT_EQ(decided.lp_lr, decided.lr);
  EXPECT_EQ(decided.device, c10::Device("cpu"));
  EXPECT_EQ(decided.channels_last, false);
  EXPECT_EQ(decided.crop_pct, 0.875);
  EXPECT_EQ(decided.interpolation, Interpolation::kBicubic);
  EXPECT_EQ(decided.mean.size(), 3U);
  EXPECT_TRUE(decided.train.empty());
  fs::create_directories(folder_ / "far");
  fs::rename(data() / "dog", folder_ / "far" / "dog");
  fs::copy(folder_ / "far" / "dog", data() / "dog");
  const RunSetup with_test = prepare({{"test", "far=../far"}});
  EXPECT_EQ(with_test.options.test, Names{"far=" + (folder_ / "far").string()});
  EXPECT_TRUE(decided.method_options.empty());  // `head` and `lp_steps` are the loop's
  const RunSetup tpgm = prepare({{"method", "tpgm"}, {"mu", "0.5"}});
  EXPECT_EQ(tpgm.options.method_options.at("mu"), "0.5");
  EXPECT_EQ(tpgm.options.method_options.at("radius_lr"), "0.01");
  EXPECT_HAS(error_of([&] { prepare({{"lp-lr", "1"}}); }), "[prepare_run] `lp-epochs` and `lp-lr`");
  EXPECT_HAS(error_of([&] { prepare({{"lp-lr", "1"}}); }), "options of lp-ft, not of ft");
  EXPECT_HAS(error_of([&] { prepare({{"method", "lp-ft"}, {"lp-steps", "3"}}); }),
             "`lp-steps` of lp-ft is set by the training loop");
  EXPECT_HAS(error_of([&] { prepare({{"data-dir", "/nowhere"}}); }), "there is no '/nowhere'");
}

// When radii are learned follows from the network and its head, and their loss from when.
TEST_F(ClipSetup, DecidesWhenAndFromWhichLossRadiiAreLearned) {
  const auto decided = [&](Settings more) {
    more.insert({{"method", "tpgm"}, {"smoothing", "0.1"}, {"head", "fresh"}});
    const RunSetup setup = prepare(more);
    const auto& options = setup.options;
    const auto why = std::find_if(setup.notes.begin(), setup.notes.end(),
                                  [](const auto& note) { return note.starts_with("radii are learned"); });
    return fmt::format("{} {} {} | {}", options.method_options.at("every"), to_text(options.radius_smoothing),
                       to_text(options.radius_mix), why == setup.notes.end() ? "" : *why);
  };
  const Settings resnet = {
      {"checkpoint", ""},
      {"model", "resnet:layers=1-1,width=8,block=basic,stem=small,image_size=8,channels=3"}};
  const auto with = [](Settings settings, const Settings& more) {
    settings.insert(more.begin(), more.end());
    return settings;
  };
  EXPECT_EQ(decided({}),
            "end 0 false | radii are learned once, after training (`every` end), because the "
            "network has no BatchNorm");
  EXPECT_EQ(decided(resnet),
            "1 0.1 false | radii are learned in every step (`every` 1), because the network "
            "has BatchNorm");
  EXPECT_EQ(decided(with(resnet, {{"mixup", "0.8"}})).substr(0, 10), "1 0.1 true");
  EXPECT_EQ(decided(with(resnet, {{"cutmix", "1"}, {"smoothing", "0"}})).substr(0, 8), "1 0 true");
  EXPECT_HAS(decided({{"head", "zeroshot"}}), "end 0 false | ");
  EXPECT_HAS(decided(with(resnet, {{"epochs", "0"}})), "because `epochs` is 0");
  // What is given stays, and nothing is said of it.
  EXPECT_EQ(decided(with(resnet, {{"every", "end"}, {"mixup", "1"}})), "end 0 false | ");
  EXPECT_EQ(decided({{"every", "5"}, {"mixup", "1"}}), "5 0.1 true | ");
  EXPECT_EQ(decided({{"every", "5"}, {"radius-smoothing", "0.2"}, {"mixup", "1"}, {"radius-mix", "false"}}),
            "5 0.2 false | ");
  // Methods without radii that are learned on held-out data have neither.
  const RunSetup ftp = prepare({{"method", "ftp"}, {"smoothing", "0.1"}, {"head", "fresh"}});
  EXPECT_EQ(ftp.options.radius_smoothing, std::nullopt);
  EXPECT_FALSE(ftp.options.method_options.contains("every"));
}

TEST_F(ClipSetup, NotesARadiusLossThatIsNotTheTrainingLoss) {
  const auto noted = [&](Settings more) {
    more.insert({{"method", "tpgm"}, {"every", "1"}, {"head", "fresh"}});
    for (const auto& note : prepare(more).notes) {
      if (note.starts_with("the training loss has")) return note;
    }
    return std::string();
  };
  EXPECT_EQ(noted({{"smoothing", "0.1"}, {"mixup", "0.8"}}), "");
  EXPECT_HAS(noted({{"smoothing", "0.1"}, {"radius-smoothing", "0"}}),
             "the training loss has smoothing 0.1, the radius loss no smoothing or mixing");
  EXPECT_HAS(noted({{"mixup", "0.8"}, {"cutmix", "1"}, {"radius-mix", "false"}}),
             "the training loss has mixup 0.8 and CutMix 1, the radius loss no smoothing");
}

// --- what its data are ------------------------------------------------------------------------------------
// Two domains without splits, of 30 and of 8 images in each class.
class DataSetup : public test::Scratch {
 protected:
  void add(const std::string& folder, int count) const {
    for (int i = 0; i < count; ++i)
      test::write_image(folder_ / folder / (std::to_string(i) + ".png"), static_cast<uint64_t>(i), 8, 8);
  }
  DataSetup() {
    for (const char* name : {"cat", "dog"}) {
      add(std::string("photo/") + name, 30);
      add(std::string("sketch/") + name, 8);
    }
  }
  TrainOptions options(Settings more) const {
    more.insert({{"data-dir", folder_.string()}, {"train", "photo"}, {"test", "sketch"}});
    return make_options(more);
  }
  RunData open(const Settings& more = {}) const {
    const auto o = options(more);
    return open_data(o, open_dataset(o));
  }
  static bool has_note(const RunData& data, const std::string& part) {
    return std::any_of(data.notes.begin(), data.notes.end(),
                       [&](const auto& note) { return note.find(part) != std::string::npos; });
  }
};

TEST_F(DataSetup, NamesClassesThatAreNotTrained) {
  EXPECT_FALSE(has_note(open(), "has no image of"));
  for (const char* name : {"ant", "bee", "cow", "eel"}) add(std::string("sketch/") + name, 1);
  EXPECT_TRUE(has_note(open(),
                       "train: photo has no image of 4 of 6 classes, which other parts have: ant, bee, "
                       "cow, …"));
  // Classes of a list that no part has are of no interest.
  for (const char* name : {"bee", "cow", "eel"}) test::remove_folder(folder_ / "sketch" / name);
  write_file(folder_ / "list", "cat\ndog\nant\nbee\n");
  EXPECT_TRUE(has_note(open({{"class-list", (folder_ / "list").string()}}),
                       "train: photo has no image of 1 of 4 classes, which other parts have: ant"));
}

TEST_F(DataSetup, SelectsByATestOfAnotherDomain) {
  fs::create_directories(folder_ / "paint");
  for (const char* name : {"cat", "dog"}) add(std::string("paint/") + name, 5);
  const auto usual = open({{"test", "sketch,paint"}});
  const auto names = [](const RunData& data) {
    Names all;
    for (const auto& test : data.tests) all.push_back(test.name);
    return all;
  };
  EXPECT_EQ(names(usual), (Names{"photo", "sketch", "paint"}));
  const auto data = open({{"test", "sketch,paint"}, {"selection-part", "sketch"}});
  EXPECT_EQ(names(data), (Names{"photo", "paint"}));
  EXPECT_TRUE(data.tests[0].id && !data.tests[1].id);
  EXPECT_EQ(data.selection.samples->title(), "sketch");
  EXPECT_EQ(data.selection.size(), 16);
  EXPECT_EQ(data.train.size(), usual.train.size() + usual.selection.size()) << "nothing else is held out";
  EXPECT_TRUE(has_note(data, "selection: sketch, 16 images, which is no test then (`selection-part`)"));
  EXPECT_FALSE(has_note(data, "held out of photo, 0 images"));
  // One in a data set of its own.
  const auto other = "s=" + (folder_ / "sketch").string();
  EXPECT_EQ(open({{"test", other}, {"selection-part", "s"}}).selection.size(), 16);
  EXPECT_HAS(error_of([&] { open({{"selection-part", "sketsh"}}); }),
             "`selection-part` sketsh is not a test of another domain in `test`; did you mean 'sketch'?");
  EXPECT_HAS(error_of([&] { open({{"selection-part", "photo"}}); }), "is not a test of another domain");
  EXPECT_HAS(error_of([&] { open({{"selection-part", "sketch"}, {"share-validation", "true"}}); }),
             "`selection-part` takes other images");
}

TEST_F(DataSetup, RefusesClassesThatDifferInCase) {
  fs::rename(folder_ / "sketch" / "dog", folder_ / "sketch" / "Dog");
  EXPECT_HAS(error_of([&] { open(); }),
             "class 'Dog' of 'sketch' and 'dog' of 'photo' differ only in case, and would be two classes");
  write_file(folder_ / "list", "cat\ndog\nDog\n");
  EXPECT_TRUE(
      has_note(open({{"class-list", (folder_ / "list").string()}}), "'dog' and 'Dog' differ only in case"));
  // An older run has a note.
  const auto o = options({});
  const auto older = open_data(o, open_dataset(o, DataUse::kOlderRun), DataUse::kOlderRun);
  const std::string note = "'" + folder_.string() +
                           "': class 'Dog' of 'sketch' and 'dog' of 'photo' differ only in case, and are two "
                           "classes";
  EXPECT_EQ(older.warnings, Names{note});
  EXPECT_TRUE(has_note(older, note));
  add("photo/Dog", 5);  // a part with both means it
  EXPECT_TRUE(has_note(open(), "the classes 'Dog' and 'dog' differ only in case"));
  EXPECT_TRUE(open().warnings.empty());
}

TEST_F(DataSetup, SaysWhyASetIsEmpty) {
  const std::string few = error_of([&] { open({{"fraction", "0.01"}, {"test", ""}}); });
  EXPECT_HAS(
      few, "[open_data] the test set photo is empty: `fraction` 0.01 of classes of 30 images leaves too few");
  EXPECT_HAS(few, "to hold out 20 %; raise `fraction`, or give the data set a split 'test'");
  test::remove_folder(folder_ / "photo");
  add("photo/cat", 1);
  add("photo/dog", 1);
  EXPECT_HAS(error_of([&] { open({{"test", ""}}); }),
             "the test set photo is empty: 20 % of classes of 1 image is none; add");
  // With another test, and in older runs, it is left out.
  const std::string note =
      "the test set photo is empty: 20 % of classes of 1 image is none; add images, or give the data set a "
      "split 'test'; it is left out";
  const auto left_out = open({{"id", "photo"}});
  ASSERT_EQ(left_out.tests.size(), 1U);
  EXPECT_EQ(left_out.tests[0].name, "sketch");
  EXPECT_FALSE(left_out.tests[0].id);
  EXPECT_EQ(left_out.warnings, Names{note});
  EXPECT_TRUE(has_note(left_out, note));
  const auto older = open_data(options({{"test", ""}}), Names{}, DataUse::kOlderRun);
  EXPECT_TRUE(older.tests.empty());
  EXPECT_EQ(older.warnings, Names{note});
  EXPECT_EQ(older.train.size(), 2);

  // With a test of its own, radius data are the first that are missing.
  add("photo/train/cat", 30);
  add("photo/train/dog", 30);
  add("photo/test/cat", 2);
  test::remove_folder(folder_ / "photo" / "cat");
  test::remove_folder(folder_ / "photo" / "dog");
  const auto reason = [&](const Settings& more) { return no_radius_data(options(more), open(more)); };
  EXPECT_EQ(reason({{"radius-fraction", "0"}}), "`radius-fraction` 0.1 holds some out");
  EXPECT_HAS(
      reason({{"fraction", "0.01"}}),
      "`fraction` 0.01 of classes of 30 images leaves too few to hold out `radius-fraction` 0.1; raise "
      "`fraction`, or give the data set a split 'radius'");
  EXPECT_HAS(reason({{"radius-fraction", "0.001"}}),
             "`radius-fraction` 0.001 of classes of 30 images is none; raise `radius-fraction`");
}

TEST_F(DataSetup, ReportsImagesThatAreNotRead) {
  test::put_file(folder_ / "photo/cat/x.gif", "GIF8");
  test::put_file(folder_ / "photo/cat/y.bmp", "BM");
  const std::string note =
      "2 files of '" + folder_.string() + "' are not read: 1 .gif, 1 .bmp (" + format_names() + " are)";
  const auto data = open();
  EXPECT_EQ(std::count(data.notes.begin(), data.notes.end(), note), 1);
  for (const auto& test : data.tests) EXPECT_EQ(test.unread, note);
  for (const auto& test : open_tests(options({{"train", ""}}), {"cat", "dog"})) EXPECT_EQ(test.unread, note);

  test::write_image(folder_ / "other/cat/1.png", 1, 8, 8);
  test::put_file(folder_ / "other/cat/2.bmp", "BM");
  fs::rename(folder_ / "other", folder_.string() + "-other");
  EXPECT_TRUE(has_note(open({{"test", "far=" + folder_.string() + "-other"}}), "is not read: 1 .bmp"));
  test::remove_folder(folder_.string() + "-other");
}

TEST_F(DataSetup, TrainsOnSeveralDomains) {
  for (const char* name : {"cat", "dog"}) add(std::string("art/") + name, 20);
  const auto data = open({{"train", "photo,art"}, {"test", "art,sketch"}});
  ASSERT_EQ(data.tests.size(), 3U);
  for (const auto& [i, name, id, size] :
       {std::tuple{0U, "photo", true, 12}, {1U, "art", true, 8}, {2U, "sketch", false, 16}}) {
    EXPECT_EQ(data.tests[i].name, name);
    EXPECT_EQ(data.tests[i].id, id) << name;
    EXPECT_EQ(data.tests[i].subset.size(), size) << name;
  }
  EXPECT_EQ(data.train.size(), 36 + 24);  // less 12, 6 and 6 of 60, and 8, 4 and 4 of 40
  for (const char* note : {"train: photo, ", "train: art, ", "train: 2 domains, ",
                           "radius: 10 % held out of art, 4 images", "test photo (ID): photo, 12 images",
                           "test art (ID): art, 8 images", "test sketch (OOD): sketch, 16 images"})
    EXPECT_TRUE(has_note(data, note)) << note;
  // The images of each domain are those of a run on it alone.
  const auto places = [](const SampleSubset& subset) {
    Names result;
    for (const int64_t i : subset.indices) result.push_back(subset.samples->place(i));
    return result;
  };
  const auto photo = open({{"train", "photo"}}), art = open({{"train", "art"}});
  auto expected = places(photo.train), second = places(art.train);
  expected.insert(expected.end(), second.begin(), second.end());
  EXPECT_EQ(places(data.train), expected);
  EXPECT_EQ(places(data.tests[1].subset), places(art.tests[0].subset));

  // One set for radii and selection is of the images of both.
  const auto shared = open({{"train", "photo,art"}, {"share-validation", "true"}});
  EXPECT_EQ(shared.radius.size(), data.radius.size() + data.selection.size());
  EXPECT_EQ(shared.selection.indices, shared.radius.indices);

  EXPECT_EQ(open({{"train", "photo,art"}, {"id", "sketch"}}).tests[2].id, true);
  EXPECT_HAS(error_of([&] { open({{"train", "photo,arts"}}); }), "has no 'arts'; it has");
  EXPECT_HAS(error_of([&] { open({{"train", "photo,arts"}}); }), "Did you mean 'art'?");
  EXPECT_HAS(error_of([&] { open({{"train", "photo,photo"}}); }), "are of one domain");
}

TEST_F(DataSetup, FingerprintsTellRunsApart) {
  for (const char* name : {"cat", "dog"}) add(std::string("art/") + name, 30);  // with the names of photo
  const auto of = [&](const std::string& train) { return fingerprint_of(open({{"train", train}})); };
  const std::set<std::string> different = {of("photo,art"), of("art,photo"), of("photo"), of("photo,sketch")};
  EXPECT_EQ(different.size(), 4U);
  // What version 0.1.0 wrote for a run on one domain: sizes, names and labels.
  const auto data = open();
  std::string text;
  for (const auto* subset : {&data.train, &data.radius, &data.selection}) {
    text += std::to_string(subset->size()) + ";";
    for (const int64_t i : subset->indices) {
      text += subset->samples->name(i);
      text += ":" + std::to_string(subset->samples->label(i)) + ";";
    }
  }
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  EXPECT_EQ(fingerprint_of(data), fmt::format("{:016x}", hash));
}

TEST_F(DataSetup, FindsTestsFromTheWorkingFolderOrTheData) {
  const fs::path outside = folder_.string() + "-outside", before = fs::current_path();
  for (const char* place : {"work/near", "deep/target", "deep/beside"})
    test::write_image(outside / place / "cat/1.png", 1, 8, 8);
  test::write_image(folder_.string() + "-far/cat/1.png", 1, 8, 8);
  fs::create_directory_symlink(outside / "deep/target", outside / "work/link");
  fs::current_path(outside / "work");
  const std::string far = "../" + folder_.filename().string() + "-far";
  const auto where = [&](const std::string& test) {
    return open({{"test", test}}).tests[1].subset.samples->place(0);
  };
  EXPECT_EQ(where("x=near"), (outside / "work/near/cat/1.png").string());
  EXPECT_EQ(where("x=" + far), folder_.string() + "-far/cat/1.png");  // from `data-dir`
  // Behind a link `..` is the parent of its target.
  EXPECT_TRUE(fs::equivalent(where("x=link/../beside"), outside / "deep/beside/cat/1.png"));
  EXPECT_EQ(absolute_tests({"photo", "x=near", "y=link/../beside", "z=nowhere", "w=near/../near"},
                           test_folders(folder_.string())),
            (Names{"photo", "x=" + (outside / "work/near").string(),
                   "y=" + (outside / "work/link/../beside").string(), "z=nowhere",
                   "w=" + (outside / "work/near").string()}));
  const std::string error = error_of([&] { open({{"test", "x=nowhere"}}); });
  EXPECT_HAS(error, "`test` x: there is neither '" + (outside / "work/nowhere").string() + "' nor '" +
                        (folder_ / "nowhere").string() +
                        "'; paths are relative to the working folder, or else");
  EXPECT_HAS(error_of([&] { open({{"test", "x=/nowhere"}}); }), "`test` x: there is no '/nowhere'");
  EXPECT_HAS(error_of([&] { open({{"test", "x="}}); }), "`test` x=: a path is missing");
  EXPECT_HAS(error_of([&] { open({{"test", "near"}}); }), "another data set is NAME=PATH: `test` near=near");

  // With both, the working folder has precedence, which a note says.
  test::write_image(outside / "work/sketch/cat/1.png", 1, 8, 8);
  const auto both = open({{"test", "x=sketch"}});
  EXPECT_EQ(both.tests[1].subset.size(), 1);
  EXPECT_TRUE(has_note(both, "test x: '" + (outside / "work/sketch").string() + "' is used, and not '" +
                                 (folder_ / "sketch").string() + "' below `data-dir`"));
  // Entries are separated by commas, so a path with one stays relative.
  fs::rename(outside / "work/near", outside / "work/a,b");
  fs::create_directory_symlink("a,b", outside / "work/near");
  fs::create_directories(outside / "c,d");
  EXPECT_EQ(absolute_tests({"x=near"}, {outside / "c,d" / "../work"}),
            Names{"x=" + (outside / "work/near").string()});
  fs::rename(outside / "work", outside / "w,k");
  EXPECT_EQ(absolute_tests({"x=near"}, {outside / "w,k"}), Names{"x=near"});
  fs::current_path(before);
  test::remove_folder(outside);
  test::remove_folder(folder_.string() + "-far");
}

TEST_F(DataSetup, NotesTestsThatAreTooSmallOnce) {
  const auto data = open();  // tests of 12 and of 16 images
  EXPECT_TRUE(
      has_note(data,
               "test sets: photo has only 12 images (8.33 points each), sketch has only 16 images (6.25 "
               "points each): too few to compare models"));
  EXPECT_EQ(few_images_note({data.tests[1]}),
            "test set sketch has only 16 images (6.25 points each): too few to compare models");
  EXPECT_EQ(few_images_note({}), "");
}

TEST_F(DataSetup, NotesWhatWholeBatchesLeaveOut) {
  const auto data = open({{"radius-fraction", "0"}, {"selection-fraction", "0"}});
  ASSERT_EQ(data.train.size(), 48);  // 60 without a fifth
  const auto note = [&](const Settings& more) { return left_out_note(options(more), data); };
  EXPECT_EQ(note({{"batch-size", "30"}}),
            "18 of 48 images are left out of each epoch, which has whole batches only");
  EXPECT_EQ(note({{"batch-size", "16"}}), "");
  EXPECT_EQ(note({{"batch-size", "22"}}), "");  // 4 of 48: less than a tenth
  EXPECT_EQ(note({{"batch-size", "16"}, {"grad-accum-steps", "2"}}),
            "16 of 48 images are left out of each epoch, which has whole steps only");
}

}  // namespace
}  // namespace tpgm::test_setup
