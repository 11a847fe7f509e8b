// Differences on the same images, against the formula for paired shares, numbers by hand and resampling.
#include "tpgm/study/paired.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tpgm/study/results.h"

namespace tpgm::test_paired {
namespace {

using Images = Hits::Images;

Hits row(const std::vector<Images>& seeds, const std::string& test = "t") {
  Hits hits;
  for (size_t i = 0; i < seeds.size(); ++i) hits.add(std::to_string(i), {{test, seeds[i]}});
  return hits;
}

// Images that are right before and after, before only, after only, and never.
std::pair<Images, Images> images(int both, int before, int after, int none) {
  Images one, other;
  const auto add = [&](int count, int8_t a, int8_t b) {
    one.insert(one.end(), static_cast<size_t>(count), a);
    other.insert(other.end(), static_cast<size_t>(count), b);
  };
  add(both, 1, 1), add(before, 1, 0), add(after, 0, 1), add(none, 0, 0);
  return {one, other};
}

TEST(Paired, OneSeedIsThatOfPairedShares) {
  const auto [before, after] = images(50, 10, 20, 20);
  const auto difference = paired_difference(row({before}), row({after}), {"t"}).value();
  EXPECT_NEAR(difference.points, 10, 1e-9);
  // Var = (n (b + c) − (c − b)²) / (n² (n − 1)), n = 100.
  EXPECT_NEAR(difference.error, 100 * std::sqrt((100.0 * 30 - 100) / (100.0 * 100 * 99)), 1e-9);
  EXPECT_NEAR(difference.freedom, 99, 1e-6);
  EXPECT_FALSE(difference.significant());
  const auto [b, a] = images(50, 5, 25, 20);
  EXPECT_TRUE(paired_difference(row({b}), row({a}), {"t"})->significant());
  // The other direction.
  EXPECT_NEAR(paired_difference(row({after}), row({before}), {"t"})->points, -10, 1e-9);
}

TEST(Paired, AccuracyOfOneSeedIsBinomial) {
  const auto accuracy = accuracy_of(row({images(80, 0, 0, 20).first}), {"t"}).value();
  EXPECT_NEAR(accuracy.points, 80, 1e-9);
  EXPECT_NEAR(accuracy.error, 100 * std::sqrt(0.8 * 0.2 / 99), 1e-9);
}

TEST(Paired, SeedsAddTheirSpread) {
  // All images change alike, so that only the seeds differ: by 0, 100 and 50 points on average over two tests.
  Hits before, after;
  const Images right = {1, 1}, wrong = {0, 0};
  for (const auto& [seed, a, b] : {std::tuple{"0", wrong, wrong}, {"1", right, right}, {"2", right, wrong}}) {
    before.add(seed, {{"a", wrong}, {"b", wrong}});
    after.add(seed, {{"a", a}, {"b", b}});
  }
  const auto difference = paired_difference(before, after, {"a", "b"}).value();
  EXPECT_NEAR(difference.points, 50, 1e-9);
  EXPECT_NEAR(difference.error, 50 / std::sqrt(3.0), 1e-9);
  EXPECT_NEAR(difference.freedom, 2, 1e-9);
  EXPECT_NEAR(difference.interval(), 4.3027 * 50 / std::sqrt(3.0), 1e-3);
}

TEST(Paired, OneRunStandsBesideAllSeeds) {
  const auto [before, after] = images(50, 10, 20, 20);
  const auto alone = paired_difference(row({before}), row({after, after, after}), {"t"}).value();
  EXPECT_NEAR(alone.points, 10, 1e-9);
  EXPECT_NEAR(alone.error, paired_difference(row({before}), row({after}), {"t"})->error, 1e-9);
}

TEST(Paired, OtherSeedsAreNotCompared) {
  const Images right = {1, 1, 0}, wrong = {0, 0, 1};
  EXPECT_FALSE(paired_difference(row({right, right, wrong}), row({right, right}), {"t"}));
  EXPECT_TRUE(paired_difference(row({right, right, wrong}), row({right, right, right}), {"t"}));
}

// The degrees of freedom of an average are those of the test that dominates its variance.
TEST(Paired, SmallTestsHaveFewDegreesOfFreedom) {
  Hits hits;
  Images many(1000, 1);
  many[0] = 0;
  hits.add("0", {{"small", {1, 0, 1, 0}}, {"large", many}});
  EXPECT_NEAR(accuracy_of(hits, {"small", "large"})->freedom, 3, 0.01);
}

// The standard error is that of resampling images and seeds, for models whose images and seeds both differ.
TEST(Paired, AgreesWithTheBootstrap) {
  std::mt19937 random(0);
  const auto chance = [&](double p) { return static_cast<int8_t>(std::bernoulli_distribution(p)(random)); };
  constexpr size_t kSeeds = 8, kImages = 400;
  std::vector<Images> before(kSeeds, Images(kImages)), after = before;
  for (size_t i = 0; i < kImages; ++i) {
    const bool hard = i % 3 == 0;
    for (size_t s = 0; s < kSeeds; ++s) {
      before[s][i] = chance(hard ? 0.2 : 0.9);
      after[s][i] = chance(hard ? 0.3 + 0.04 * static_cast<double>(s) : 0.9);
    }
  }
  const auto difference = paired_difference(row(before), row(after), {"t"}).value();
  std::vector<double> resampled;
  for (int round = 0; round < 4000; ++round) {
    std::vector<size_t> seeds(kSeeds);
    for (auto& seed : seeds) seed = random() % kSeeds;
    double sum = 0;
    for (size_t k = 0; k < kImages; ++k) {
      const size_t i = random() % kImages;
      for (const size_t s : seeds) sum += after[s][i] - before[s][i];
    }
    resampled.push_back(100 * sum / (kSeeds * kImages));
  }
  double mean = 0, variance = 0;
  for (const double each : resampled) mean += each / static_cast<double>(resampled.size());
  for (const double each : resampled)
    variance += (each - mean) * (each - mean) / static_cast<double>(resampled.size());
  EXPECT_NEAR(difference.points, mean, 0.2);
  EXPECT_NEAR(difference.error, std::sqrt(variance), 0.2 * difference.error);
}

TEST(Paired, IsUnknownForOtherImages) {
  const Images three = {1, 0, 1};
  EXPECT_TRUE(paired_difference(row({three}), row({three}), {"t"}));
  EXPECT_FALSE(paired_difference(row({three}), row({{1, 0}}), {"t"}));
  EXPECT_FALSE(paired_difference(row({three}), row({three}, "other"), {"t"}));
  EXPECT_FALSE(paired_difference(row({three}), Hits(), {"t"}));
  EXPECT_FALSE(paired_difference(row({three}), row({three}), {}));
  // An image that could not be read must be unreadable for both.
  EXPECT_FALSE(paired_difference(row({three}), row({{1, -1, 1}}), {"t"}));
  EXPECT_NEAR(paired_difference(row({{1, -1, 0}}), row({{1, -1, 1}}), {"t"})->points, 50, 1e-9);
  EXPECT_FALSE(accuracy_of(row({{-1, -1}}), {"t"}));
}

TEST(Paired, QuantilesAreThoseOfTables) {
  for (const auto& [freedom, quantile] : {std::pair{1.0, 12.7062},
                                          {2.0, 4.3027},
                                          {3.0, 3.1824},
                                          {5.0, 2.5706},
                                          {6.0, 2.4469},
                                          {10.0, 2.2281},
                                          {30.0, 2.0423},
                                          {1000.0, 1.9623}})
    EXPECT_NEAR(student_quantile(freedom), quantile, 2e-3 * quantile) << freedom;
  EXPECT_TRUE(student_quantile(2.5) < 4.3027 && student_quantile(2.5) > 3.1824);
}

TEST(Paired, TablesMarkWhatDiffers) {
  const auto [before, after] = images(50, 5, 25, 20);
  const auto scored = [](const std::string& name, double value, const Images& hits) {
    return ResultRow{name, {{"t", true, {value}}}, row({hits})};
  };
  const auto table =
      results_table({scored("A", 75, after), scored("FT", 55, before), scored("B", 55, before)}, "", {}, 1);
  ASSERT_EQ(table.arrows.size(), 1U);
  EXPECT_TRUE(table.arrows[0].row == 0 && table.arrows[0].column == 1 && table.arrows[0].up);
  EXPECT_EQ(table.note, "↑ ↓: differs from FT by more than the 95 % interval, on the same images; one seed");
}

}  // namespace
}  // namespace tpgm::test_paired
