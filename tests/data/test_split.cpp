// Splits of data sets, and the random numbers that decide them.
#include "tpgm/data/split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "tests/data/data_files.h"

namespace tpgm {
namespace {

using test::error_of;
using test::put_file;

// As many images of each class, in turn as far as they go.
Dataset::Part images(const std::vector<int64_t>& counts) {
  auto samples = std::make_shared<Samples>();
  for (size_t label = 0; label < counts.size(); ++label)
    samples->classes.push_back(fmt::format("c{}", label));
  for (int64_t i = 0; i < *std::max_element(counts.begin(), counts.end()); ++i) {
    for (size_t label = 0; label < counts.size(); ++label) {
      if (i < counts[label]) samples->add(fmt::format("c{}/{}.png", label, i), static_cast<int64_t>(label));
    }
  }
  return samples;
}

std::vector<const SampleSubset*> all_parts(const Split& split) {
  return {&split.train, &split.radius, &split.selection, &split.test};
}

std::vector<int64_t> by_class(const SampleSubset& subset) {
  std::vector<int64_t> counts(subset.samples->classes.size());
  for (const int64_t i : subset.indices) ++counts[static_cast<size_t>(subset.samples->label(i))];
  return counts;
}

TEST(Split, IsDisjointCompleteAndInOrder) {
  const auto samples = images({10, 3, 57, 1, 20});
  const auto made = split(samples, SplitOptions().radius(0.2).selection(0.1).test(0.3));
  std::vector<int64_t> indices;
  for (const auto* part : all_parts(made)) {
    EXPECT_EQ(part->samples, samples);
    EXPECT_TRUE(std::is_sorted(part->indices.begin(), part->indices.end()));
    EXPECT_GT(part->size(), 0);
    indices.insert(indices.end(), part->indices.begin(), part->indices.end());
  }
  std::sort(indices.begin(), indices.end());
  EXPECT_EQ(indices, all_of(samples).indices);
}

TEST(Split, SharesAreThoseOfEachClassWithinOneImageAndInTotal) {
  for (const auto& counts : std::vector<std::vector<int64_t>>{
           std::vector<int64_t>(345, 17), {100, 101, 102, 103, 104, 105, 106}, {9, 30, 12, 77, 41, 8, 500}}) {
    const auto samples = images(counts);
    const SplitOptions options = SplitOptions().radius(0.1).selection(0.05).test(0.25);
    const auto made = split(samples, options);
    const std::vector<std::pair<const SampleSubset*, double>> shares = {
        {&made.radius, 0.1}, {&made.selection, 0.05}, {&made.test, 0.25}, {&made.train, 0.6}};
    for (const auto& [subset, share] : shares) {
      const auto got = by_class(*subset);
      for (size_t label = 0; label < counts.size(); ++label) {
        const double exact = share * static_cast<double>(counts[label]);
        EXPECT_LE(std::abs(static_cast<double>(got[label]) - exact), subset == &made.train ? 3 : 1)
            << "class " << label << " of " << counts[label];
      }
      const double exact = share * static_cast<double>(samples->size());
      EXPECT_LE(std::abs(static_cast<double>(subset->size()) - exact), subset == &made.train ? 3 : 1);
    }
  }
}

TEST(Split, AFractionOfEachClassIsUsed) {
  const std::vector<int64_t> counts = {100, 55, 20, 250, 31};
  const auto samples = images(counts);
  const auto made = split(samples, SplitOptions().fraction(0.1).radius(0.2).selection(0));
  EXPECT_EQ(made.selection.size(), 0);
  std::vector<int64_t> used(counts.size());
  for (const auto* part : all_parts(made)) {
    const auto got = by_class(*part);
    for (size_t label = 0; label < counts.size(); ++label) used[label] += got[label];
  }
  for (size_t label = 0; label < counts.size(); ++label) {
    EXPECT_NEAR(static_cast<double>(used[label]), 0.1 * static_cast<double>(counts[label]), 1);
  }
  EXPECT_EQ(std::accumulate(used.begin(), used.end(), int64_t{0}), 46);
  EXPECT_NEAR(static_cast<double>(made.radius.size()), 9, 1);
}

TEST(Thinned, AHeldOutPartAsEvenlyAsAWholeOne) {
  const auto samples = images({60, 60, 60, 60, 60, 60, 60});
  const auto held_out = split(samples, SplitOptions().test(0.2)).test;
  ASSERT_EQ(held_out.size(), 84);
  for (const auto& whole : {held_out, all_of(samples)}) {
    const auto counts = by_class(whole);
    for (const double fraction : {0.05, 0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.9}) {
      const auto kept = thinned(whole, fraction, 0);
      EXPECT_TRUE(std::includes(whole.indices.begin(), whole.indices.end(), kept.indices.begin(),
                                kept.indices.end()));
      const double expected = fraction * static_cast<double>(whole.size());
      EXPECT_NEAR(static_cast<double>(kept.size()), std::max(expected, 7.0), 1) << fraction;
      for (const int64_t count : by_class(kept)) {
        EXPECT_GE(count, 1) << fraction;
        EXPECT_NEAR(static_cast<double>(count), fraction * static_cast<double>(counts.front()), 1)
            << fraction;
      }
    }
  }
}

TEST(Thinned, IsChosenByTheSeedAndNotByTheSplit) {
  const auto samples = images({400, 400});
  const auto whole = all_of(samples);
  const auto kept = thinned(whole, 0.5, 0);
  EXPECT_EQ(kept.indices, thinned(whole, 0.5, 0).indices);
  EXPECT_NE(kept.indices, thinned(whole, 0.5, 1).indices);
  const auto train = split(samples, SplitOptions().fraction(0.5).radius(0).selection(0)).train;
  std::vector<int64_t> both;
  std::set_intersection(kept.indices.begin(), kept.indices.end(), train.indices.begin(), train.indices.end(),
                        std::back_inserter(both));
  EXPECT_NEAR(static_cast<double>(both.size()), 200, 40);  // independent: half of half, s = 7
  EXPECT_THROW(thinned(whole, 0, 0), c10::Error);
}

TEST(Split, IsAFunctionOfTheSeed) {
  const auto samples = images({40, 40, 40});
  const auto radius = [&](uint64_t seed) { return split(samples, SplitOptions().seed(seed)).radius.indices; };
  EXPECT_EQ(radius(0), radius(0));
  std::set<std::vector<int64_t>> different;
  for (uint64_t seed = 0; seed < 20; ++seed) different.insert(radius(seed));
  EXPECT_EQ(different.size(), 20u);
  // Not of names: the same labels are split the same way.
  auto renamed = std::make_shared<Samples>();
  renamed->classes = {"x", "y", "z"};
  for (int64_t i = 0; i < samples->size(); ++i) renamed->add("other", samples->label(i));
  EXPECT_EQ(split(Dataset::Part(renamed), SplitOptions()).radius.indices, radius(0));
}

TEST(Split, ClassesDoNotShareTheirShuffles) {
  const auto made = split(images({50, 50}), SplitOptions().radius(0.5).selection(0));
  std::vector<std::set<int64_t>> positions(2);
  for (const int64_t i : made.radius.indices) positions[static_cast<size_t>(i % 2)].insert(i / 2);
  EXPECT_NE(positions[0], positions[1]);
}

TEST(Split, TinyClassesKeepATrainingImage) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const auto samples = images({1, 2, 1, 3, 1, 2, 1, 1});
    const auto options = SplitOptions().radius(0.3).selection(0.3).test(0.3).seed(seed);
    for (const double fraction : {1.0, 0.01}) {
      const auto made = split(samples, SplitOptions(options).fraction(fraction));
      for (const int64_t count : by_class(made.train)) EXPECT_GE(count, 1);
    }
  }
}

TEST(Split, WhatTinyClassesAreGivenIsNotTakenFromLargeOnes) {
  std::vector<int64_t> counts(50, 1);
  counts.push_back(100);
  const auto tenth = split(images(counts), SplitOptions().fraction(0.1).radius(0).selection(0));
  EXPECT_NEAR(by_class(tenth.train).back(), 10, 1);
  const auto all = split(images(counts), SplitOptions());
  EXPECT_NEAR(by_class(all.radius).back(), 10, 1);
  EXPECT_NEAR(by_class(all.selection).back(), 10, 1);
}

TEST(Split, TheSeedChoosesWhichClassesGiveTheOddImage) {
  std::set<std::vector<int64_t>> radius;
  int64_t both = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto made = split(images(std::vector<int64_t>(10, 4)), SplitOptions().seed(seed));
    radius.insert(by_class(made.radius));
    const auto first = by_class(made.radius), second = by_class(made.selection);
    for (size_t i = 0; i < first.size(); ++i) both += first[i] > 0 && second[i] > 0 ? 1 : 0;
  }
  EXPECT_GE(radius.size(), 3u);
  EXPECT_LT(both,
            20 * 4);  // four classes of ten give one for the radii; not always the same four for selection
}

TEST(Split, ImagesWithoutLabelsAreSplitAsAClass) {
  auto samples = std::make_shared<Samples>();
  for (int i = 0; i < 50; ++i) samples->add(std::to_string(i), -1);
  const auto made = split(Dataset::Part(samples), SplitOptions());
  EXPECT_EQ(made.radius.size(), 5);
  EXPECT_EQ(made.train.size(), 40);
}

TEST(Split, OptionsThatMakeNoSenseAreRefused) {
  const auto samples = images({10});
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double fraction : {0.0, -1.0, 1.5, nan}) {
    EXPECT_HAS(error_of([&] { split(samples, SplitOptions().fraction(fraction)); }),
               "must be above 0 and at most 1");
  }
  for (const auto& options :
       {SplitOptions().radius(-0.1), SplitOptions().selection(1), SplitOptions().test(nan),
        SplitOptions().radius(0.5).selection(0.5), SplitOptions().radius(0.4).selection(0.4).test(0.2)}) {
    EXPECT_HAS(error_of([&] { split(samples, options); }),
               "must be shares from 0 to below 1, together below 1");
  }
}

TEST(Disjoint, AImageInTwoPlacesIsNamed) {
  const auto samples = images({4, 4});
  const SampleSubset one{samples, {0, 1, 2}}, two{samples, {3, 4}}, three{samples, {5, 2}},
      twice{samples, {6, 7, 6}};
  EXPECT_NO_THROW(check_disjoint({{"train", &one}, {"radius", &two}}));
  EXPECT_HAS(error_of([&] { check_disjoint({{"train", &one}, {"radius", &two}, {"test", &three}}); }),
             "/c0/1.png' is in train and in test");
  EXPECT_HAS(error_of([&] { check_disjoint({{"train", &twice}}); }), "/c0/3.png' is in train twice");
  const SampleSubset elsewhere{images({2, 2}), {0}};  // another part with a file of the same place
  EXPECT_HAS(error_of([&] { check_disjoint({{"train", &one}, {"test", &elsewhere}}); }), "/c0/0.png'");
}

class Task : public test::Scratch {
 protected:
  void make(const std::string& part, int64_t per_class, int64_t classes = 3) {
    for (int64_t label = 0; label < classes; ++label) {
      for (int64_t i = 0; i < per_class; ++i) {
        put_file(folder_ / part / fmt::format("c{}", label) / fmt::format("{}.png", i), "");
      }
    }
  }
  TaskData task(const std::vector<std::string>& train, const std::vector<std::string>& tests,
                const SplitOptions& options = {}) {
    return make_task(Dataset(folder_.string()), train, tests, options);
  }
  TaskData task(const char* train, const std::vector<std::string>& tests, const SplitOptions& options = {}) {
    return task(std::vector<std::string>{train}, tests, options);
  }
};

std::vector<std::string> places_of(const SampleSubset& subset) {
  std::vector<std::string> places;
  for (const int64_t i : subset.indices) places.push_back(subset.samples->place(i));
  return places;
}

TEST_F(Task, OfDomainsWithoutSplits) {
  make("photo", 20);
  make("sketch", 5);
  const auto made = task("photo", {"photo", "sketch"});
  EXPECT_EQ(made.radius.size(), 6);
  EXPECT_EQ(made.selection.size(), 6);
  EXPECT_EQ(made.train.size(), 36);
  ASSERT_EQ(made.tests.size(), 2u);
  EXPECT_EQ(made.tests[0].first, "photo");
  EXPECT_EQ(made.tests[0].second.size(), 12);  // a fifth
  EXPECT_EQ(made.tests[1].second.size(), 15);
  EXPECT_EQ(made.notes,
            (std::vector<std::string>{"train: photo, 36 images", "radius: 10 % held out of photo, 6 images",
                                      "selection: 10 % held out of photo, 6 images",
                                      "test: 20 % held out of photo, 12 images", "test: sketch, 15 images"}));
}

TEST_F(Task, ATrainingDomainThatIsNotTestedKeepsItsImages) {
  make("photo", 20);
  make("sketch", 5);
  const auto made = task("photo", {"sketch"}, SplitOptions().test(0.5));
  EXPECT_EQ(made.train.size() + made.radius.size() + made.selection.size(), 60);
  EXPECT_EQ(task("photo", {"photo"}, SplitOptions().test(0.5)).tests[0].second.size(), 30);
}

TEST_F(Task, OwnSplitsAreUsedWhole) {
  make("real/train", 10);
  make("real/test", 3);
  make("real/radius", 2);
  make("real/selection", 1);
  make("sketch/test", 4);
  const auto made = task("real", {"real", "sketch"});
  EXPECT_EQ(made.train.size(), 30);
  EXPECT_EQ(made.radius.samples->title(), "real/radius");
  EXPECT_EQ(made.radius.size(), 6);
  EXPECT_EQ(made.selection.size(), 3);
  EXPECT_EQ(made.tests[0].second.size(), 9);
  EXPECT_EQ(made.tests[1].second.samples->title(), "sketch/test");
}

TEST_F(Task, OfWhatIsMissingAShareIsHeldOut) {
  make("real/train", 10);
  make("real/test", 3);
  make("real/radius", 2);
  const auto made = task("real", {"real"});
  EXPECT_EQ(made.train.size(), 27);
  EXPECT_EQ(made.selection.size(), 3);
  EXPECT_EQ(made.selection.samples->title(), "real/train");
  EXPECT_EQ(made.radius.size(), 6);
}

TEST_F(Task, TrainAndValWithoutADomain) {
  make("train", 10);
  make("val", 2);
  const auto made = task("train", {"val"});
  EXPECT_EQ(made.train.size(), 24);
  EXPECT_EQ(made.tests[0].second.size(), 6);
}

TEST_F(Task, ClassFoldersAlone) {
  make("", 10);
  const std::string name = folder_.filename().string();
  const auto made = task(std::vector<std::string>{name}, {name});
  EXPECT_EQ(made.train.size(), 18);
  EXPECT_EQ(made.tests[0].second.size(), 6);
}

TEST_F(Task, AFractionIsTakenOfTheTrainingDomainAlone) {
  make("photo", 100);
  make("sketch", 5);
  const auto made = task("photo", {"sketch"}, SplitOptions().fraction(0.1));
  EXPECT_EQ(made.train.size() + made.radius.size() + made.selection.size(), 30);
  EXPECT_EQ(made.tests[0].second.size(), 15);
}

// Each is split as if it were alone, and the sets follow each other in the order of the domains.
TEST_F(Task, SeveralDomainsAreJoined) {
  make("art", 20);
  make("photo/train", 10);
  make("photo/test", 2);
  make("photo/radius", 4);
  make("sketch", 5);
  const auto both = task({"art", "photo"}, {"art", "photo", "sketch"});
  const auto art = task("art", {"art"}), photo = task("photo", {"photo"});
  for (const auto set : {&TaskData::train, &TaskData::radius, &TaskData::selection}) {
    auto expected = places_of(art.*set);
    const auto second = places_of(photo.*set);
    expected.insert(expected.end(), second.begin(), second.end());
    EXPECT_EQ(places_of(both.*set), expected);
  }
  EXPECT_EQ(both.train.size(), 36 + 27);
  EXPECT_EQ(both.radius.size(), 6 + 12);
  EXPECT_EQ(both.selection.size(), 6 + 3);
  ASSERT_EQ(both.tests.size(), 3u);
  EXPECT_EQ(places_of(both.tests[0].second), places_of(art.tests[0].second));
  EXPECT_EQ(places_of(both.tests[1].second), places_of(photo.tests[0].second));
  EXPECT_EQ(both.tests[2].second.size(), 15);
  EXPECT_EQ(both.train.samples, both.selection.samples);  // parts of the same domains are joined once
  EXPECT_NE(both.train.samples, both.radius.samples);
  EXPECT_EQ(
      both.notes,
      (std::vector<std::string>{
          "train: art, 36 images", "train: photo/train, 27 images", "train: 2 domains, 63 images",
          "radius: 10 % held out of art, 6 images", "radius: photo/radius, 12 images",
          "radius: 2 domains, 18 images", "selection: 10 % held out of art, 6 images",
          "selection: 10 % held out of photo/train, 3 images", "selection: 2 domains, 9 images",
          "test: 20 % held out of art, 12 images", "test: photo/test, 6 images", "test: sketch, 15 images"}));
}

TEST_F(Task, OneDomainIsNotJoined) {
  make("photo", 20);
  make("sketch", 5);
  const Dataset data(folder_.string());
  const auto made = make_task(data, {"photo"}, {"photo"}, SplitOptions());
  const auto source = data.part("photo", Role::kTrain);
  EXPECT_EQ(made.train.samples, source);
  const auto alone = split(source, SplitOptions().test(kTestShare));
  EXPECT_EQ(made.train.indices, alone.train.indices);
  EXPECT_EQ(made.radius.indices, alone.radius.indices);
  EXPECT_EQ(made.selection.indices, alone.selection.indices);
  EXPECT_EQ(made.tests[0].second.indices, alone.test.indices);
}

TEST_F(Task, DomainsToTrainOnThatCannotBe) {
  make("photo/train", 3);
  make("photo/val", 3);
  make("art", 3);
  EXPECT_HAS(error_of([&] { task({"art", "foto"}, {"art"}); }), "Did you mean 'photo'?");
  EXPECT_HAS(error_of([&] { task({"photo/train", "photo/val"}, {"art"}); }),
             "'photo/train' and 'photo/val' are of one domain; train on each domain once");
  EXPECT_HAS(error_of([&] { task({"art", "art"}, {"art"}); }), "are of one domain");
  EXPECT_HAS(error_of([&] { task(std::vector<std::string>{}, {"art"}); }), "there is no domain to train on");
}

class JoinedSamples : public test::Scratch {};

// Class folders and shards have different places, and are read in different ways.
TEST_F(JoinedSamples, AreThoseOfTheirParts) {
  for (int i = 0; i < 3; ++i) put_file(folder_ / fmt::format("art/c{}/x.png", i), fmt::format("a{}", i));
  for (int i = 0; i < 2; ++i) put_file(folder_ / fmt::format("photo/c{}/x.png", i), fmt::format("p{}", i));
  const Dataset data(folder_.string());
  const auto art = data.part("art", Role::kTrain), photo = data.part("photo", Role::kTrain);
  const auto joined = Samples::joined({art, photo, art});
  ASSERT_EQ(joined.size(), 8);
  EXPECT_EQ(joined.title(), "art, photo, art");
  EXPECT_EQ(joined.classes, data.classes());
  EXPECT_EQ(joined.labels(), (std::vector<int32_t>{0, 1, 2, 0, 1, 0, 1, 2}));
  EXPECT_EQ(joined.parts().size(), 3u);
  EXPECT_TRUE(art->parts().empty());
  EXPECT_TRUE(joined.in_files());
  std::string bytes;
  for (int64_t i = 0; i < joined.size(); ++i) bytes += joined.read(i);
  EXPECT_EQ(bytes, "a0a1a2p0p1a0a1a2");
  EXPECT_EQ(joined.name(4), photo->name(1));
  EXPECT_EQ(joined.place(4), photo->place(1));
  EXPECT_EQ(joined.place(5), art->place(0));

  test::write_tar(folder_ / "shards" / "real-000000.tar",
                  {{"0.png", "t0"}, {"0.cls", "c0"}, {"1.png", "t1"}, {"1.cls", "c2"}});
  const Dataset shards((folder_ / "shards").string(), DatasetOptions().classes(data.classes()));
  const auto mixed = Samples::joined({shards.parts()[0], photo});
  EXPECT_FALSE(mixed.in_files());
  EXPECT_EQ(mixed.read(1), "t1");
  EXPECT_EQ(mixed.place(1), shards.parts()[0]->place(1));
  EXPECT_EQ(mixed.read(2), "p0");
  EXPECT_EQ(mixed.label(1), 2);
  auto other = std::make_shared<Samples>();
  other->classes = {"c0"};
  EXPECT_HAS(error_of([&] { Samples::joined({photo, other}); }), "has other classes than 'photo'");
}

TEST_F(Task, AFileInTwoListsIsNamed) {
  put_file(file("c0/1.png"), "");
  put_file(file("c0/2.png"), "");
  put_file(file("real_train.txt"), "c0/1.png 0\nc1/1.png 1\nc2/1.png 2\n");
  put_file(file("real_test.txt"), "c0/2.png 0\nc1/1.png 1\n");
  EXPECT_HAS(error_of([&] { task("real", {"real"}); }), "c1/1.png' is in train and in test real");
}

TEST_F(Task, NamesThatAreNotThereAndLabelsThatAreMissing) {
  make("photo", 3);
  EXPECT_HAS(error_of([&] { task("foto", {"photo"}); }), "Did you mean 'photo'?");
  EXPECT_HAS(error_of([&] { task("photo", {"sketch"}); }), "has no 'sketch'; it has");
  test::remove_folder(file("photo"));
  put_file(file("1.png"), "");
  EXPECT_HAS(error_of([&] { task(folder_.filename().c_str(), {}); }), "has images without a label");
}

// ---------------------------------------------------------------------------------------------------------

struct Moments {
  double mean = 0, variance = 0;
};

template <typename Draw>
Moments moments(const Draw& draw) {
  constexpr int kCount = 200'000;
  Random random(7, 0, 0);
  double sum = 0, squares = 0;
  for (int i = 0; i < kCount; ++i) {
    const double value = draw(random);
    sum += value;
    squares += value * value;
  }
  return {sum / kCount, squares / kCount - sum / kCount * sum / kCount};
}

TEST(RandomNumbers, HaveTheMomentsOfTheirDistributions) {
  const auto uniform = moments([](Random& random) { return random.uniform(); });
  EXPECT_NEAR(uniform.mean, 0.5, 0.004);
  EXPECT_NEAR(uniform.variance, 1.0 / 12, 0.002);
  const auto range = moments([](Random& random) { return random.uniform(-3, 5); });
  EXPECT_NEAR(range.mean, 1, 0.03);
  const auto normal = moments([](Random& random) { return random.normal(); });
  EXPECT_NEAR(normal.mean, 0, 0.012);
  EXPECT_NEAR(normal.variance, 1, 0.02);
  const auto tails = moments([](Random& random) { return std::pow(random.normal(), 4); });
  EXPECT_NEAR(tails.mean, 3, 0.15);
  const std::vector<std::pair<double, double>> shapes = {{0.2, 0.2}, {1, 1}, {0.8, 3}, {5, 2}};
  for (const auto& [a, b] : shapes) {
    const auto beta = moments([a = a, b = b](Random& random) { return random.beta(a, b); });
    EXPECT_NEAR(beta.mean, a / (a + b), 0.006) << a << ", " << b;
    EXPECT_NEAR(beta.variance, a * b / ((a + b) * (a + b) * (a + b + 1)), 0.004) << a << ", " << b;
  }
}

TEST(RandomNumbers, StayInTheirRanges) {
  Random random(1, 2, 3);
  std::vector<int> counts(7);
  for (int i = 0; i < 70'000; ++i) {
    const double value = random.uniform();
    ASSERT_TRUE(value >= 0 && value < 1);
    ++counts.at(static_cast<size_t>(random.integer(7)));
    ASSERT_EQ(random.integer(1), 0);
  }
  for (const int count : counts) EXPECT_NEAR(count, 10'000, 500);
  for (int i = 0; i < 1000; ++i) {
    const double tiny = random.beta(1e-4, 1e-4);
    ASSERT_TRUE(tiny >= 0 && tiny <= 1);
  }
}

TEST(RandomNumbers, AreOfAStreamOfTheirOwn) {
  std::set<std::pair<uint32_t, uint32_t>> first;
  size_t streams = 0;
  for (const uint64_t seed : {0, 1, 2}) {
    for (const uint64_t epoch : {0, 1, 5}) {
      for (uint64_t index = 0; index < 50; ++index) {
        for (const uint64_t purpose : {0, 1, 0x5f}) {
          Random random(seed, epoch, index, purpose);
          const uint32_t a = random.bits(), b = random.bits();
          first.emplace(a, b);
          ++streams;
        }
      }
    }
  }
  EXPECT_EQ(first.size(), streams);
  Random one(3, 4, 5), same(3, 4, 5);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(one.bits(), same.bits());
}

TEST(RandomNumbers, ShufflesArePermutationsAllEquallyLikely) {
  std::map<std::vector<int>, int> seen;
  for (uint64_t i = 0; i < 24'000; ++i) {
    std::vector<int> values = {0, 1, 2, 3};
    Random(9, 0, i).shuffle(values);
    ++seen[values];
  }
  EXPECT_EQ(seen.size(), 24u);
  for (const auto& [order, count] : seen) EXPECT_NEAR(count, 1000, 160);
  std::vector<int> none, many(1000);
  Random(1, 1, 1).shuffle(none);
  std::iota(many.begin(), many.end(), 0);
  Random(1, 1, 1).shuffle(many);
  EXPECT_FALSE(std::is_sorted(many.begin(), many.end()));
  std::sort(many.begin(), many.end());
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(many[static_cast<size_t>(i)], i);
}

}  // namespace
}  // namespace tpgm
