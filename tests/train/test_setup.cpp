// What a run is made of: how often files are opened for it, and which classes its head has.
#include "tpgm/train/setup.h"

#include <sys/inotify.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>

#include "tests/data/data_files.h"
#include "tests/support.h"
#include "tpgm/data/formats/format.h"
#include "tpgm/io/file.h"
#include "tpgm/io/state_dict.h"
#include "tpgm/models/named_models.h"
#include "tpgm/text/zero_shot.h"

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

TEST_F(DataSetup, RefusesClassesThatDifferInCase) {
  fs::rename(folder_ / "sketch" / "dog", folder_ / "sketch" / "Dog");
  EXPECT_HAS(error_of([&] { open(); }),
             "class 'Dog' of 'sketch' and 'dog' of 'photo' differ only in case, and would be two classes");
  write_file(folder_ / "list", "cat\ndog\nDog\n");
  EXPECT_TRUE(
      has_note(open({{"class-list", (folder_ / "list").string()}}), "'dog' and 'Dog' differ only in case"));
  add("photo/Dog", 5);  // a part with both means it
  EXPECT_TRUE(has_note(open(), "the classes 'Dog' and 'dog' differ only in case"));
}

TEST_F(DataSetup, SaysWhyASetIsEmpty) {
  const std::string few = error_of([&] { open({{"fraction", "0.01"}}); });
  EXPECT_HAS(
      few, "[open_data] the test set photo is empty: `fraction` 0.01 of classes of 30 images leaves too few");
  EXPECT_HAS(few, "to hold out 20 %; raise `fraction`, or give the data set a split 'test'");
  test::remove_folder(folder_ / "photo");
  add("photo/cat", 1);
  add("photo/dog", 1);
  EXPECT_HAS(error_of([&] { open(); }),
             "the test set photo is empty: 20 % of classes of 1 image is none; add");

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
