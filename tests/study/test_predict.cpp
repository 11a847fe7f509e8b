// Logits and features against each other and against constants, scores by hand, and whose classes count.
#include "tpgm/study/predict.h"

#include <gtest/gtest.h>

#include "tests/study/tiny_classifier.h"

namespace tpgm::test_predict {
namespace {

using Names = std::vector<std::string>;
using test::error_of;

class Predict : public test::Scratch {
 protected:
  Predict() {
    at::set_num_threads(1);
    at::manual_seed(0);
    test::write_two_domains(data());
  }
  std::filesystem::path data() const { return folder_ / "data"; }
  Predictions predicted(Classifier& model, const std::string& domain, const PredictOptions& options = {},
                        int64_t batch_size = 4) const {
    const auto part = Dataset(data().string()).part(domain, Role::kTest);
    Loader loader(all_of(part), EvalViewOptions().image_size(8),
                  LoaderOptions().batch_size(batch_size).on_bad_image(OnBadImage::kSkip));
    return predict(model, part, loader, options);
  }
};

TEST_F(Predict, LogitsAreTheHeadOfTheFeatures) {
  const auto model = test::tiny_classifier(3);
  size_t told = 0;
  PredictOptions options;
  options.progress = [&](size_t images) { told += images; };
  const auto logits = predicted(*model, "home", options);
  EXPECT_EQ(told, 6U);
  options.features = true;
  const auto features = predicted(*model, "home", options);
  const at::NoGradGuard no_grad;
  const auto expected = at::linear(features.rows, model->head->weight, model->head->bias);
  EXPECT_TRUE(at::allclose(logits.rows, expected, 1e-4, 1e-5));
  EXPECT_TRUE(at::allclose(predicted(*model, "home", {}, /*batch_size=*/1).rows, logits.rows, 1e-4, 1e-5));
  EXPECT_EQ(logits.indices, (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_TRUE(at::equal(logits.labels, at::tensor({0, 0, 0, 1, 1, 2}, at::kLong)));

  int64_t correct = 0;
  for (int64_t i = 0; i < 6; ++i) {
    const auto best = expected[i].argmax().item<int64_t>();
    EXPECT_EQ(logits.predicted[static_cast<size_t>(i)], best);
    correct += best == logits.labels[i].item<int64_t>();
  }
  EXPECT_EQ(logits.labelled, 6);
  EXPECT_EQ(logits.correct, correct);
  EXPECT_EQ(logits.scored_classes(), 3);
  EXPECT_TRUE(features.predicted.empty());
}

TEST_F(Predict, ScoresOverTheClassesThatOccur) {
  std::filesystem::remove_all(data() / "away" / "b");
  const auto model = test::constant_classifier({0, 2, 1});
  const auto all = predicted(*model, "away");
  EXPECT_EQ(all.predicted, (std::vector<int64_t>{1, 1, 1}));
  EXPECT_DOUBLE_EQ(all.accuracy(), 0);
  PredictOptions options;
  options.subset = true;
  const auto of_two = predicted(*model, "away", options);  // a, c, c
  EXPECT_EQ(of_two.scored, (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(of_two.scored_classes(), 2);
  EXPECT_EQ(of_two.predicted, (std::vector<int64_t>{2, 2, 2}));
  EXPECT_DOUBLE_EQ(of_two.accuracy(), 200.0 / 3);
}

TEST_F(Predict, LeavesOutWhatCannotBeRead) {
  test::put_file(data() / "away" / "a" / "0.png", "");
  const auto model = test::constant_classifier({0, 0, 1});
  const auto result = predicted(*model, "away");
  EXPECT_EQ(result.indices, (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(result.rows.size(0), 3);
  EXPECT_EQ(result.correct, 2);
  for (const char* name : {"a/0.png", "b/0.png", "c/0.png", "c/1.png"})
    test::put_file(data() / "away" / name, "");
  EXPECT_FALSE(predicted(*model, "away").rows.defined());
}

TEST_F(Predict, WritesALineForEachImage) {
  const auto model = test::constant_classifier({0, 0, 1});
  const Names classes = {"a", "b", "c, or d"};
  EXPECT_EQ(to_csv({predicted(*model, "away")}, classes),
            "part,file,label,prediction\n"
            "away,away/a/0.png,a,\"c, or d\"\naway,away/b/0.png,b,\"c, or d\"\n"
            "away,away/c/0.png,\"c, or d\",\"c, or d\"\naway,away/c/1.png,\"c, or d\",\"c, or d\"\n");
  PredictOptions features;
  features.features = true;
  EXPECT_EQ(to_csv({predicted(*model, "away", features)}, {"a", "b", "c"}),
            "part,file,label\naway,away/a/0.png,a\naway,away/b/0.png,b\naway,away/c/0.png,c\naway,away/c/"
            "1.png,c\n");
}

TEST_F(Predict, TakesClassesFromTheListThenTheCheckpointThenTheData) {
  const auto classes = [&](const Names& of_checkpoint, const std::string& list, bool features = false) {
    const auto path = folder_ / "model.safetensors";
    test::save_classifier(*test::tiny_classifier(3), path, of_checkpoint);
    std::string file;
    if (!list.empty()) {
      file = (folder_ / "classes.txt").string();
      write_file(file, list);
    }
    const auto given =
        open_classifier("", path.string(), "", nullptr, features ? HeadUse::kNever : HeadUse::kAlways);
    return open_for(given, data().string(), file, features, nullptr).classes();
  };
  EXPECT_EQ(classes({}, ""), (Names{"a", "b", "c"}));
  EXPECT_EQ(classes({"b", "c", "a"}, ""), (Names{"b", "c", "a"}));
  EXPECT_EQ(classes({}, "c\nb\na\n"), (Names{"c", "b", "a"}));
  EXPECT_EQ(classes({"b", "c", "a"}, "c\nb\na\n"), (Names{"c", "b", "a"}));
  EXPECT_EQ(classes({"b", "c", "a"}, "c\nb\na\n", /*features=*/true), (Names{"c", "b", "a"}));
  EXPECT_HAS(error_of([&] { classes({"b", "c", "a"}, "c\na\n"); }), "the head has 3 classes, `class-list`");
}

}  // namespace
}  // namespace tpgm::test_predict
