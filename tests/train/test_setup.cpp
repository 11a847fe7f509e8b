// What a run is made of: how often files are opened for it, and which classes its head has.
#include "tpgm/train/setup.h"

#include <sys/inotify.h>
#include <torch/torch.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <map>

#include "tests/data/data_files.h"
#include "tests/support.h"
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

}  // namespace
}  // namespace tpgm::test_setup
