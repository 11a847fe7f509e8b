// `tpgm project` without the command: the files hold the projections that ratios and radii say, by plain
// torch calls.
#include "tpgm/study/project.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/study/tiny_classifier.h"
#include "tpgm/io/checkpoint.h"

namespace tpgm::test_project {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;
using test::error_of;

class Project : public test::Scratch {
 protected:
  Project() {
    at::set_num_threads(1);
    at::manual_seed(0);
    test::write_two_domains(folder_ / "data");
  }
  // A pre-trained and a fine-tuned model; the head of the former has that many classes.
  ProjectOptions make_models(int64_t anchor_classes) const {
    const Names names = {"a", "b", "c"};
    const auto pre = test::tiny_classifier(anchor_classes), ft = test::tiny_classifier(3);
    test::save_classifier(*pre, folder_ / "pre.safetensors", {names.begin(), names.begin() + anchor_classes});
    test::save_classifier(*ft, folder_ / "ft.safetensors", names);
    ProjectOptions options;
    options.anchor = (folder_ / "pre.safetensors").string();
    options.checkpoint = (folder_ / "ft.safetensors").string();
    options.radius_data = (folder_ / "data").string();
    options.part = "home";
    options.tpgm.radius_steps(5).radius_lr(0.05);
    options.mu = {0};
    options.radius_batch_size = 4;
    options.options.workers = 1;
    return options;
  }
};

TEST_F(Project, MovesEveryTensorTowardsItsAnchor) {
  auto options = make_models(3);
  options.mu = {0, 0.5};
  const std::vector<fs::path> files = {folder_ / "0.safetensors", folder_ / "1.safetensors"};
  Projector projector(options, c10::kCPU, nullptr);
  EXPECT_EQ(projector.part()->title(), "home");
  std::vector<double> told;
  const auto all = projector.run(files, {"zero", "half"}, [&](const ProjectProgress& at) {
    EXPECT_EQ(at.steps, 10);
    EXPECT_EQ(at.step, static_cast<int64_t>(told.size()) + 1);
    told.push_back(at.mu);
  });
  EXPECT_EQ(told, (std::vector<double>{0, 0, 0, 0, 0, 0.5, 0.5, 0.5, 0.5, 0.5}));
  ASSERT_EQ(all.size(), 2U);
  EXPECT_TRUE(projector.skipped().empty());
  const auto pre = load_state_dict(options.anchor), ft = load_state_dict(options.checkpoint);
  for (size_t k = 0; k < all.size(); ++k) {
    SCOPED_TRACE(files[k]);
    const Projected& result = all[k];
    const auto projected = load_state_dict(files[k]);
    ASSERT_EQ(projected.size(), ft.size());
    EXPECT_EQ(result.ratios.size(), ft.size());
    double before = 0, after = 0, ratios = 0;
    for (const auto& ratio : result.ratios) {
      SCOPED_TRACE(ratio.key());
      const auto moved = ft[ratio.key()] - pre[ratio.key()];
      const auto expected = pre[ratio.key()] + ratio.value() * moved;
      EXPECT_TRUE(at::allclose(projected[ratio.key()], expected, 1e-4, 1e-5));
      const auto distance = (projected[ratio.key()] - pre[ratio.key()]).norm().item<double>();
      EXPECT_LE(distance, result.radii[ratio.key()] * 1.0001 + 1e-6);
      before += std::pow(moved.norm().item<double>(), 2);
      after += std::pow(distance, 2);
      ratios += ratio.value();
    }
    const auto count = static_cast<int64_t>(result.ratios.size());
    EXPECT_EQ(result.all.tensors, count);
    EXPECT_NEAR(result.all.before, std::sqrt(before), 1e-4 * result.all.before);
    EXPECT_NEAR(result.all.after, std::sqrt(after), 1e-3 * result.all.after);
    EXPECT_NEAR(result.all.ratio, ratios / static_cast<double>(count), 1e-6);
    EXPECT_LT(result.all.after, 0.9 * result.all.before);
    EXPECT_TRUE(std::isfinite(result.first_loss) && std::isfinite(result.last_loss));
    const auto metadata = Checkpoint(files[k]).metadata();
    EXPECT_EQ(keys::kCommand.of(metadata), k == 0 ? "zero" : "half");
    EXPECT_EQ(keys::kClasses.of(metadata), (Names{"a", "b", "c"}));
  }
}

TEST_F(Project, LeavesAHeadOfOtherClasses) {
  const auto options = make_models(2);
  std::string notes;
  Projector projector(options, c10::kCPU, [&](const std::string& text) { notes += text + "\n"; });
  EXPECT_HAS(notes, "has a head of 2 classes, not 3, so the fine-tuned one stays as it is");
  const auto result = projector.run({folder_ / "out.safetensors"}, {"command"}, nullptr).front();
  const auto ft = load_state_dict(options.checkpoint),
             projected = load_state_dict(folder_ / "out.safetensors");
  for (const char* name : {"head.weight", "head.bias"}) {
    EXPECT_FALSE(result.ratios.contains(name));
    EXPECT_TRUE(at::equal(projected[name], ft[name]));
  }
}

TEST_F(Project, NeedsLabeledRadiusDataOfOnePart) {
  auto options = make_models(3);
  options.part = "";
  EXPECT_HAS(error_of([&] { Projector(options, c10::kCPU, nullptr); }),
             "say which has radius data with `part`");
  options.part = "home";
  options.options.class_list = (folder_ / "classes.txt").string();
  write_file(options.options.class_list, "a\nb\n");
  EXPECT_HAS(error_of([&] { Projector(options, c10::kCPU, nullptr); }),
             "the head has 3 classes, `class-list`");
}

TEST_F(Project, NamesAFileForEachMu) {
  using Files = std::vector<fs::path>;
  EXPECT_EQ(projected_files("out.safetensors", {0.5}), Files{"out.safetensors"});
  EXPECT_EQ(projected_files("out.safetensors", {0, 0.001}),
            (Files{"out-mu=0.safetensors", "out-mu=0.001.safetensors"}));
  EXPECT_EQ(projected_files("m{mu}.st", {0, 0.5}), (Files{"m0.st", "m0.5.st"}));
  EXPECT_EQ(projected_files("out/", {0.5}), Files{"out/model.safetensors"});
  EXPECT_EQ(projected_files(folder_.string(), {0, 1}),
            (Files{folder_ / "mu=0.safetensors", folder_ / "mu=1.safetensors"}));
}

TEST_F(Project, SumsUpBlocks) {
  Projected result;
  result.mu = 0.5;
  result.blocks = {ProjectedBlock{"stem"}, ProjectedBlock{"head"}};
  for (ProjectedBlock* block : {result.blocks.data(), &result.all}) {
    block->add(0.5, 3, 1.5);
    block->add(1, 4, 2);
  }
  result.blocks[1].add(0.25, 12, 3);
  result.all.add(0.25, 12, 3);
  EXPECT_EQ(result.blocks[0].tensors, 2);
  EXPECT_DOUBLE_EQ(result.blocks[0].ratio, 0.75);
  EXPECT_DOUBLE_EQ(result.blocks[0].before, 5);
  EXPECT_DOUBLE_EQ(result.blocks[0].after, 2.5);
  EXPECT_DOUBLE_EQ(result.all.before, 13);
  result.blocks.push_back({"still"});
  result.blocks[2].add(1, 0, 0);
  // The ratio is that of the distances beside it, and not the mean over tensors of different sizes.
  const Table table = to_table({result});
  EXPECT_EQ(table.columns, (Names{"block", "tensors", "before", "after", "ratio"}));
  EXPECT_EQ(table.rows, (std::vector<Names>{{"stem", "2", "5", "2.5", "0.500"},
                                            {"head", "1", "12", "3", "0.250"},
                                            {"still", "1", "0", "0", "–"},
                                            {"all", "3", "13", "3.905", "0.300"}}));
  const auto json = to_json(result, "out.safetensors");
  EXPECT_EQ(json["mu"], 0.5);
  EXPECT_EQ(json["distance_before"], 13);
  EXPECT_EQ(json["blocks"][1]["tensors"], 1);
  EXPECT_DOUBLE_EQ(json["distance_ratio"], std::hypot(2.5, 3) / 13);
  EXPECT_DOUBLE_EQ(json["blocks"][0]["ratio"], 0.75);
  EXPECT_DOUBLE_EQ(json["blocks"][0]["distance_ratio"], 0.5);
  EXPECT_TRUE(nlohmann::json::parse(json.dump())["blocks"][2]["distance_ratio"].is_null());
}

}  // namespace
}  // namespace tpgm::test_project
