// `tpgm eval` without the command: accuracies against closed forms of a classifier with constant logits, and
// whose classes count.
#include "tpgm/study/evaluate_runs.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/study/study_files.h"
#include "tests/study/tiny_classifier.h"

namespace tpgm::test_evaluate_runs {
namespace {

using Names = std::vector<std::string>;
using test::error_of;

class EvaluateRuns : public test::Scratch {
 protected:
  EvaluateRuns() {
    at::set_num_threads(1);
    test::write_two_domains(data());
  }
  std::filesystem::path data() const { return folder_ / "data"; }
  std::string checkpoint(const Names& classes, const std::string& name = "model") const {
    const auto path = folder_ / (name + ".safetensors");
    test::save_classifier(*test::constant_classifier(kLogits), path, classes);
    return path.string();
  }
  std::string list(const std::string& lines) const {
    write_file(folder_ / "classes.txt", lines);
    return (folder_ / "classes.txt").string();
  }
  std::vector<EvaluatedRow> evaluated(const std::vector<std::string>& checkpoints,
                                      const Settings& more = {}) const {
    Settings settings = {
        {"data-dir", data().string()}, {"test", "home,away"}, {"id", "home"}, {"workers", "1"}};
    for (const auto& [key, value] : more) settings[key] = value;
    auto rows = rows_to_evaluate(checkpoints, settings, nullptr);
    open_tests(rows, "", nullptr);
    evaluate(rows, "", c10::kCPU, nullptr, nullptr);
    return rows;
  }
  // Top-1 at home and away.
  std::pair<double, double> top1(const std::string& checkpoint, const Settings& more = {}) const {
    const auto rows = evaluated({checkpoint}, more);
    return {rows[0].results[0].top1(), rows[0].results[1].top1()};
  }

  // The first class always wins.
  inline static const std::vector<float> kLogits = {1.5F, 0.5F, -1};
};

TEST_F(EvaluateRuns, ScoresEveryTest) {
  int64_t told = 0;
  auto rows =
      rows_to_evaluate({"mine=" + checkpoint({})},
                       {{"data-dir", data().string()}, {"test", "away,home"}, {"id", "home"}}, nullptr);
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].name, "mine");
  open_tests(rows, "", nullptr);
  evaluate(rows, "", c10::kCPU, [&](size_t images) { told += static_cast<int64_t>(images); }, nullptr);
  EXPECT_EQ(told, 10);
  const auto losses = -at::log_softmax(at::tensor(kLogits), 0);
  const auto loss = [&](const std::vector<int64_t>& labels) {
    return losses.index_select(0, at::tensor(labels)).mean().item<double>();
  };
  const auto& results = rows[0].results;  // in-distribution tests first
  ASSERT_EQ(results.size(), 2U);
  EXPECT_EQ(results[0].images, 6);
  EXPECT_DOUBLE_EQ(results[0].top1(), 50);
  EXPECT_DOUBLE_EQ(results[0].top5(), 100);
  EXPECT_NEAR(results[0].loss, loss({0, 0, 0, 1, 1, 2}), 1e-5);
  EXPECT_DOUBLE_EQ(results[1].top1(), 25);
  EXPECT_NEAR(results[1].loss, loss({0, 1, 2, 2}), 1e-5);

  const auto json = to_json(rows)["checkpoints"][0];
  EXPECT_EQ(json["name"], "mine");
  EXPECT_EQ(json["classes"], 3);
  EXPECT_EQ(json["id_average"], 50);
  EXPECT_EQ(json["ood_average"], 25);
  EXPECT_EQ(scored_text(rows), "Scored over all 3 classes.\n");
  EXPECT_EQ(skipped_of(rows), 0);
  EXPECT_EQ(per_class_csv(rows),
            "checkpoint,test,class,pictures,right,accuracy\n"
            "mine,home,a,3,3,100\nmine,home,b,2,0,0\nmine,home,c,1,0,0\n"
            "mine,away,a,1,1,100\nmine,away,b,1,0,0\nmine,away,c,2,0,0\n");
  EXPECT_TRUE(
      to_csv(rows).starts_with("checkpoint,test,id,pictures,skipped,classes_scored,classes,top1,top5,loss\n"
                               "mine,home,1,6,0,3,3,50,100,"));
}

TEST_F(EvaluateRuns, TakesClassesFromTheListThenTheCheckpointThenTheData) {
  const double sixth = 100.0 / 6;
  EXPECT_EQ(top1(checkpoint({})), std::pair(50.0, 25.0));
  EXPECT_EQ(top1(checkpoint({"c", "b", "a"})), std::pair(sixth, 50.0));
  EXPECT_EQ(top1(checkpoint({}), {{"class-list", list("c\nb\na\n")}}), std::pair(sixth, 50.0));
  EXPECT_EQ(top1(checkpoint({"c", "b", "a"}), {{"class-list", list("a\nb\nc\n")}}), std::pair(50.0, 25.0));
  EXPECT_HAS(error_of([&] { top1(checkpoint({"c", "b", "a"}), {{"class-list", list("a\nb\n")}}); }),
             "the head has 3 classes, `class-list`");
}

TEST_F(EvaluateRuns, TakesTheClassesOfARunFromItsCheckpoint) {
  const auto images = folder_ / "run-data", run = folder_ / "run";
  test::write_data(images);
  test::write_run(run, {{"data-dir", images.string()},
                        {"model", test::kTinyVit},
                        {"train", "home"},
                        {"test", "away"},
                        {"class-list", (folder_ / "gone.txt").string()}});
  test::save_classifier(*test::constant_classifier({0, 1}), run / "best.safetensors", {"dots", "bars"});
  auto rows = rows_to_evaluate({run.string()}, {}, nullptr);
  EXPECT_EQ(missing_option(rows[0]), "");
  open_tests(rows, "", nullptr);
  EXPECT_EQ(rows[0].classes, (Names{"dots", "bars"}));
  ASSERT_EQ(rows[0].tests->size(), 2U);
  EXPECT_EQ(rows[0].tests->front().name, "home");
  EXPECT_EQ(rows[0].tests->front().subset.size(), 12);
}

// An older run is evaluated on the data that it has: what a new run may not have is a note.
TEST_F(EvaluateRuns, NotesWhatOlderVersionsLetPass) {
  const auto images = folder_ / "run-data", run = folder_ / "run";
  for (const char* file : {"home/bars/1.png", "home/dots/1.png", "away/bars/1.png", "away/Dots/1.png"})
    test::put_file(images / file, "");
  test::write_run(
      run, {{"data-dir", images.string()}, {"model", test::kTinyVit}, {"train", "home"}, {"test", "away"}});
  test::save_classifier(*test::constant_classifier({0, 1, 2}), run / "best.safetensors",
                        {"Dots", "bars", "dots"});
  const auto opened = [&](const Settings& given, std::string& said) {
    auto rows = rows_to_evaluate({run.string()}, given, nullptr);
    open_tests(rows, "", [&](const std::string& text) { said += text + "\n"; });
    return *rows[0].tests;
  };
  std::string said;
  const auto tests = opened({}, said);
  ASSERT_EQ(tests.size(), 1U);
  EXPECT_EQ(tests[0].name, "away");
  EXPECT_HAS(said, "the test set home is empty: 20 % of classes of 1 image is none");
  EXPECT_HAS(said, "class 'Dots' of 'away' and 'dots' of 'home' differ only in case, and are two classes\n");
  // The same without a run, if the training domain is given.
  said.clear();
  auto rows = rows_to_evaluate({(run / "best.safetensors").string()},
                               {{"data-dir", images.string()}, {"train", "home"}, {"test", "away"}}, nullptr);
  open_tests(rows, "", [&](const std::string& text) { said += text + "\n"; });
  EXPECT_EQ(rows[0].tests->size(), 1U);
  EXPECT_HAS(said, "the test set home is empty");
  EXPECT_HAS(error_of([&] { opened({{"test", ""}}, said); }),
             "[open_tests] there are no images to test on: ");
}

TEST_F(EvaluateRuns, ScoresOverTheClassesThatOccur) {
  std::filesystem::remove_all(data() / "away" / "a");
  const auto rows = evaluated({checkpoint({"a", "b", "c"})}, {{"classes", "subset"}});
  EXPECT_EQ(rows[0].results[1].scored_classes, 2);
  EXPECT_DOUBLE_EQ(rows[0].results[1].top1(), 100.0 / 3);  // b has the larger logit of b, c, c
  EXPECT_EQ(scored_text(rows), "Scored over the classes that occur, of 3: home 3, away 2.\n");
}

TEST_F(EvaluateRuns, SaysWhichOptionIsMissing) {
  const auto path = checkpoint({});
  const auto missing = [&](const Settings& given) {
    return missing_option(rows_to_evaluate({path}, given, nullptr)[0]);
  };
  EXPECT_EQ(missing({}), "test");
  EXPECT_EQ(missing({{"test", "home"}}), "data-dir");
  EXPECT_EQ(missing({{"test", "few=" + (data() / "home").string()}}), "");
  EXPECT_EQ(missing({{"test", "home"}, {"data-dir", data().string()}}), "");
  EXPECT_HAS(error_of([&] { rows_to_evaluate({"nowhere.pt"}, {}, nullptr); }), "there is no 'nowhere.pt'");
}

}  // namespace
}  // namespace tpgm::test_evaluate_runs
