// Accuracy against a plain loop over the same logits, over all classes and over those that occur.
#include "tests/torch_nn.h"
#include "tpgm/train/evaluate.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <numeric>

#include "tests/data/data_files.h"
#include "tests/support.h"
#include "tpgm/models/named_models.h"
#include "tpgm/nn/precision.h"

namespace tpgm::test_evaluate {
namespace {

constexpr int64_t kSize = 16;

class Evaluate : public testing::OnDevice {
 protected:
  Evaluate() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    std::string name = "tpgm-evaluate-" + std::string(info->name()) + "-" + std::to_string(::getpid());
    std::replace(name.begin(), name.end(), '/', '-');
    folder_ = std::filesystem::temp_directory_path() / name;
    std::filesystem::create_directories(folder_);
  }
  ~Evaluate() override { test::remove_folder(folder_); }

  // An image for each label; -1: without.
  SampleSubset images(const std::vector<int64_t>& labels, int64_t classes) const {
    auto samples = std::make_shared<Samples>();
    samples->set_root(folder_);
    for (int64_t k = 0; k < classes; ++k) samples->classes.push_back("c" + std::to_string(k));
    for (size_t i = 0; i < labels.size(); ++i) {
      const std::string name = std::to_string(i) + ".png";
      test::write_image(folder_ / name, i, 20, 18);
      samples->add(name, labels[i]);
    }
    return all_of(samples);
  }

  LoaderOptions options() const { return LoaderOptions().batch_size(4).device(device()); }
  static EvalViewOptions view() { return EvalViewOptions().image_size(kSize); }

  std::shared_ptr<Classifier> model(int64_t classes) const {
    auto backbone =
        make_backbone(parse_model("resnet:layers=1-1,width=8,block=basic,stem=small,image_size=16"));
    backbone->reset_parameters();
    auto model = std::make_shared<Classifier>(backbone, ClassifierOptions().num_classes(classes));
    const at::NoGradGuard no_grad;
    model->head->weight.normal_(0, 1);  // so that not all images are the same to it
    model->to(device());
    return model;
  }

  struct Plain {
    int64_t images = 0, correct = 0, top5_correct = 0;
    double loss = 0;
    std::vector<int64_t> class_images, class_correct;
  };
  // What evaluate() should count, one image after another, over the classes in `scored`.
  Plain plain(Classifier& model, const SampleSubset& subset, const std::vector<int64_t>& scored,
              bool amp = false) const {
    const at::NoGradGuard no_grad;
    Plain result;
    result.class_images.resize(static_cast<size_t>(model.num_classes()));
    result.class_correct = result.class_images;
    Loader loader(subset, view(), options());
    model.eval();
    loader.start(0);
    while (const auto batch = loader.next()) {
      std::optional<Autocast> autocast;
      if (amp) autocast.emplace(device().type());
      const at::Tensor logits = model.forward(batch->images).to(at::kCPU, at::kDouble);
      const at::Tensor labels = batch->labels.cpu();
      for (int64_t i = 0; i < logits.size(0); ++i) {
        const int64_t label = labels[i].item<int64_t>();
        if (label < 0) continue;
        const double own = logits[i][label].item<double>();
        int64_t better = 0;
        double sum = 0;
        for (const int64_t k : scored) {
          const double other = logits[i][k].item<double>();
          if (other > own) ++better;
          sum += std::exp(other - own);
        }
        ++result.images;
        ++result.class_images[static_cast<size_t>(label)];
        if (better == 0) ++result.class_correct[static_cast<size_t>(label)];
        if (better == 0) ++result.correct;
        if (better < 5) ++result.top5_correct;
        result.loss += std::log(sum);
      }
    }
    result.loss /= static_cast<double>(result.images);
    return result;
  }

  static void expect_equal(const Accuracy& ours, const Plain& theirs) {
    EXPECT_EQ(ours.images, theirs.images);
    EXPECT_EQ(ours.correct, theirs.correct);
    EXPECT_EQ(ours.top5_correct, theirs.top5_correct);
    EXPECT_EQ(ours.class_images, theirs.class_images);
    EXPECT_EQ(ours.class_correct, theirs.class_correct);
    EXPECT_NEAR(ours.loss, theirs.loss, 1e-4 * theirs.loss);
    const auto count = static_cast<double>(theirs.images);
    EXPECT_DOUBLE_EQ(ours.top1(), 100 * static_cast<double>(theirs.correct) / count);
    EXPECT_DOUBLE_EQ(ours.top5(), 100 * static_cast<double>(theirs.top5_correct) / count);
  }

  std::filesystem::path folder_;
};

std::vector<int64_t> all(int64_t classes) {
  std::vector<int64_t> result(static_cast<size_t>(classes));
  std::iota(result.begin(), result.end(), 0);
  return result;
}

std::vector<int64_t> some_labels(int64_t count, int64_t classes) {
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < count; ++i) labels.push_back((i * i + 3 * i) % classes);
  return labels;
}

TEST_P(Evaluate, EqualsAPlainLoop) {
  const auto net = model(9);
  const auto subset = images(some_labels(42, 9), 9);
  Loader loader(subset, view(), options());
  const auto accuracy = evaluate(*net, loader);
  const auto expected = plain(*net, subset, all(9));
  expect_equal(accuracy, expected);
  EXPECT_EQ(accuracy.scored_classes, 9);
  EXPECT_EQ(accuracy.skipped, 0);
  EXPECT_GT(expected.top5_correct, expected.correct);  // else the test shows little
  EXPECT_LT(expected.top5_correct, expected.images);
  expect_equal(evaluate(*net, loader), expected);  // and again
}

TEST_P(Evaluate, OverTheClassesThatOccur) {
  const auto net = model(12);
  auto labels = some_labels(30, 12);
  for (auto& label : labels) label = label % 2 == 0 ? 11 - label / 2 : 2;
  const auto subset = images(labels, 12);
  auto occurring = labels;
  std::sort(occurring.begin(), occurring.end());
  occurring.erase(std::unique(occurring.begin(), occurring.end()), occurring.end());
  Loader loader(subset, view(), options());
  EvaluateOptions over_some;
  over_some.subset = true;
  const auto accuracy = evaluate(*net, loader, over_some);
  expect_equal(accuracy, plain(*net, subset, occurring));
  EXPECT_EQ(accuracy.scored_classes, static_cast<int64_t>(occurring.size()));
  EXPECT_GT(accuracy.correct, evaluate(*net, loader).correct);
}

TEST_P(Evaluate, FewerThanFiveClassesAreAllAmongTheFirstFive) {
  const auto net = model(3);
  const auto subset = images(some_labels(10, 3), 3);
  Loader loader(subset, view(), options());
  const auto accuracy = evaluate(*net, loader);
  expect_equal(accuracy, plain(*net, subset, all(3)));
  EXPECT_EQ(accuracy.top5(), 100);
}

TEST_P(Evaluate, EqualLogitsAreRightOnceAndAmongTheFirstFive) {
  const auto net = model(20);
  {
    const at::NoGradGuard no_grad;
    net->head->weight.zero_();
  }
  Loader loader(images(all(20), 20), view(), options());
  const auto accuracy = evaluate(*net, loader);
  EXPECT_EQ(accuracy.correct, 1);
  EXPECT_GE(accuracy.top5_correct, 5);
  EXPECT_LE(accuracy.top5_correct, 6);
  EXPECT_NEAR(accuracy.loss, std::log(20.0), 1e-5);
}

TEST_P(Evaluate, ImagesWithoutLabelsDoNotCount) {
  const auto net = model(6);
  auto labels = some_labels(21, 6);
  for (size_t i = 0; i < labels.size(); i += 3) labels[i] = -1;
  const auto subset = images(labels, 6);
  Loader loader(subset, view(), options());
  expect_equal(evaluate(*net, loader), plain(*net, subset, all(6)));
  EvaluateOptions over_some;
  over_some.subset = true;
  auto occurring = labels;
  std::sort(occurring.begin(), occurring.end());
  occurring.erase(std::unique(occurring.begin(), occurring.end()), occurring.end());
  occurring.erase(occurring.begin());  // -1
  expect_equal(evaluate(*net, loader, over_some), plain(*net, subset, occurring));

  Loader without(images({-1, -1}, 6), view(), options());
  EXPECT_HAS(testing::error_of([&] { evaluate(*net, without); }), "no image with a label");
}

TEST_P(Evaluate, ImagesThatCannotBeReadAreCounted) {
  const auto net = model(6);
  const auto subset = images(some_labels(9, 6), 6);
  test::write_bytes(folder_ / "5.png", "no image");
  auto without = subset;
  without.indices.erase(without.indices.begin() + 5);
  Loader loader(subset, view(), options().on_bad_image(OnBadImage::kSkip));
  size_t told = 0;
  EvaluateOptions with_progress;
  with_progress.progress = [&](size_t count) { told += count; };
  const auto accuracy = evaluate(*net, loader, with_progress);
  expect_equal(accuracy, plain(*net, without, all(6)));
  EXPECT_EQ(accuracy.skipped, 1);
  EXPECT_EQ(told, 8);

  test::write_bytes(folder_ / "7.png", "");
  auto bad = subset;
  bad.indices = {5, 7};
  Loader none(bad, view(), options().on_bad_image(OnBadImage::kSkip));
  const auto nothing = evaluate(*net, none);
  EXPECT_EQ(nothing.images, 0);
  EXPECT_EQ(nothing.skipped, 2);
  EXPECT_TRUE(std::isnan(nothing.top1()) && std::isnan(nothing.top5()) && std::isnan(nothing.loss));
}

TEST_P(Evaluate, SaysWhatItTakesEachImageFor) {
  const auto net = model(12);
  auto labels = some_labels(30, 12);
  for (auto& label : labels) label = label % 2 == 0 ? 11 - label / 2 : 2;
  labels[4] = -1;
  auto subset = images(labels, 12);
  test::write_bytes(folder_ / "5.png", "no image");
  std::reverse(subset.indices.begin(), subset.indices.end());  // the order is the subset's
  Loader loader(subset, view(), options().on_bad_image(OnBadImage::kSkip));
  auto occurring = labels;
  std::sort(occurring.begin(), occurring.end());
  occurring.erase(std::unique(occurring.begin(), occurring.end()), occurring.end());
  occurring.erase(occurring.begin());  // -1
  for (const bool over_some : {false, true}) {
    at::Tensor predictions;
    EvaluateOptions with;
    with.subset = over_some;
    with.predictions = &predictions;
    const auto accuracy = evaluate(*net, loader, with);
    ASSERT_EQ(predictions.scalar_type(), at::kInt);
    ASSERT_TRUE(predictions.device().is_cpu());
    ASSERT_EQ(predictions.sizes(), at::IntArrayRef({30}));
    int64_t correct = 0;
    for (int64_t i = 0; i < 30; ++i) {
      const int64_t index = subset.indices[static_cast<size_t>(i)], says = predictions[i].item<int>();
      if (index == 5) {
        EXPECT_EQ(says, -1);
        continue;
      }
      const at::NoGradGuard no_grad;
      Loader one({subset.samples, {index}}, view(), options());
      one.start(0);
      net->eval();
      const at::Tensor logits = net->forward(one.next()->images).cpu()[0];
      const at::Tensor scored = at::tensor(over_some ? occurring : all(12));
      EXPECT_EQ(says, scored[logits.index_select(0, scored).argmax()].item<int64_t>()) << index;
      correct += says == labels[static_cast<size_t>(index)] ? 1 : 0;
    }
    EXPECT_EQ(correct, accuracy.correct);
  }
}

TEST_P(Evaluate, TheModelIsAsBefore) {
  const auto net = model(5);
  net->train();
  net->backbone->children().front()->eval();  // a frozen block
  std::vector<bool> before;
  for (const auto& each : net->modules()) before.push_back(each->is_training());
  std::vector<at::Tensor> buffers;
  for (const auto& buffer : net->buffers()) buffers.push_back(buffer.clone());
  Loader loader(images(some_labels(8, 5), 5), view(), options());
  const auto expect_as_before = [&] {
    std::vector<bool> after;
    for (const auto& each : net->modules()) after.push_back(each->is_training());
    EXPECT_EQ(before, after);
    for (size_t i = 0; i < buffers.size(); ++i) EXPECT_TRUE(test::same(buffers[i], net->buffers()[i]));
  };
  evaluate(*net, loader);
  expect_as_before();
  EXPECT_FALSE(net->head->weight.grad().defined());
  EvaluateOptions stops;
  stops.progress = [](size_t) { throw std::runtime_error("enough"); };
  EXPECT_THROW(evaluate(*net, loader, stops), std::runtime_error);
  expect_as_before();
  // What was computed in between can still be trained on.
  loader.start(0);
  net->forward(loader.next()->images).sum().backward();
  EXPECT_TRUE(net->head->weight.grad().defined());
}

TEST_P(Evaluate, InMixedPrecision) {
  const auto net = model(9);
  const auto subset = images(some_labels(24, 9), 9);
  Loader loader(subset, view(), options());
  EvaluateOptions amp;
  amp.amp = true;
  const auto expected = plain(*net, subset, all(9), /*amp=*/true);
  EXPECT_NEAR(evaluate(*net, loader, amp).loss, expected.loss, 1e-4 * expected.loss);
  EXPECT_NE(expected.loss, plain(*net, subset, all(9)).loss);
}

TEST_P(Evaluate, LabelsThatTheHeadDoesNotHave) {
  const auto net = model(4);
  Loader loader(images({0, 1, 5}, 6), view(), options());
  EXPECT_HAS(testing::error_of([&] { evaluate(*net, loader); }),
             "2.png' has label 5, and the head 4 classes");
}

TPGM_ON_EVERY_DEVICE(Evaluate);

}  // namespace
}  // namespace tpgm::test_evaluate
