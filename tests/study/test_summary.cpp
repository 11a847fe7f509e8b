// What the paragraph under a table says of numbers that are made up, whichever way they come out.
#include "tpgm/study/summary.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/data/data_files.h"

namespace tpgm::test_summary {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// One test at home and one away.
SummaryRow row(const std::string& name, RowKind kind, double id, double ood, double selection = kNone) {
  return {name, kind, {{"home", true, {id}}, {"away", false, {ood}}}, {10000, 10000}, selection};
}

SummaryRow seeds(const std::string& name, RowKind kind, const std::vector<double>& id,
                 const std::vector<double>& ood) {
  return {name, kind, {{"home", true, id}, {"away", false, ood}}, {100, 100}};
}

size_t words(const std::string& text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), ' ')) + 1;
}

TEST(Summary, TpgmIsBetter) {
  const auto text = summary(
      {row("Zero-shot", RowKind::kZeroShot, 60, 50), row("FT", RowKind::kFt, 80, 42),
       row("WISE 0.3", RowKind::kWise, 75, 53), row("WISE 0.5", RowKind::kWise, 78.5, 50),
       row("WISE 0.7", RowKind::kWise, 78.1, 48), row("TPGM", RowKind::kTpgm, 81.2, 52),
       row("TPGM-C μ=0.1", RowKind::kTpgmC, 78, 56, 70), row("TPGM-C μ=1", RowKind::kTpgmC, 70, 57, 60)});
  EXPECT_EQ(
      text,
      "Fine-tuning gained 20.0 points in distribution (60.0 → 80.0 %) and lost 8.0 out of it (50.0 → "
      "42.0 %). TPGM has 81.2 % and 52.0 %: level with FT within noise and 10.0 points above it. TPGM-C "
      "μ=0.1 "
      "has 78.0 % and 56.0 %: 2.0 points below and 14.0 above FT. The best of WISE that is no lower in "
      "distribution, WISE 0.5, has 78.5 % and 50.0 %: level with TPGM-C μ=0.1 within noise and 6.0 points "
      "below it. Best out of distribution is TPGM-C μ=1 with 57.0 % (70.0 % in it; 1 other within noise); "
      "best in it is TPGM with 81.2 % (1 other within noise). One seed: differences below about 1.4 points "
      "are noise.");
  EXPECT_LE(words(text), 120u);
}

TEST(Summary, TpgmIsWorse) {
  const auto text =
      summary({row("Pre-trained", RowKind::kPretrained, 90, 60), row("FT", RowKind::kFt, 95, 66),
               row("WISE 0.5", RowKind::kWise, 96, 70), row("TPGM", RowKind::kTpgm, 92, 61)});
  EXPECT_EQ(text,
            "Fine-tuning gained 5.0 points in distribution (90.0 → 95.0 %) and gained 6.0 out of it (60.0 → "
            "66.0 %). TPGM has 92.0 % and 61.0 %: 3.0 and 5.0 points below FT. WISE 0.5 has 96.0 % and 70.0 "
            "%: 4.0 and 9.0 points above TPGM. Best in both is WISE 0.5 with 96.0 % and 70.0 %. One seed: "
            "differences below about 0.8 points in and 1.4 out of distribution are noise.");
}

TEST(Summary, NothingIsComparedWithARandomHead) {
  const auto text = summary({row("Random head", RowKind::kRandomHead, 10, 11),
                             row("FT", RowKind::kFt, 95, 66), row("TPGM", RowKind::kTpgm, 92, 61)});
  EXPECT_HAS(text, "Random head is the pre-trained model under a head that was not trained");
  EXPECT_FALSE(test::contains(text, "gained"));
  EXPECT_HAS(text, "3.0 and 5.0 points below FT");
}

TEST(Summary, WiseIsJudgedByItsBestPoint) {
  const auto beside = [](double id) {
    return summary({row("WISE 0.2", RowKind::kWise, 80, 60), row("WISE 0.5", RowKind::kWise, 84, 56),
                    row("WISE 0.9", RowKind::kWise, 82, 40), row("TPGM", RowKind::kTpgm, id, 57)});
  };
  // The nearest is 0.9, but 0.5 is better in both.
  EXPECT_HAS(beside(82),
             "TPGM has 82.0 % in distribution and 57.0 % out of it. The best of WISE that is no lower in "
             "distribution, WISE 0.5, has");
  EXPECT_HAS(beside(79), "The best of WISE that is no lower in distribution, WISE 0.2, has");
  EXPECT_HAS(
      beside(86),
      "The nearest of WISE in distribution, WISE 0.5, has 84.0 % and 56.0 %: 2.0 points below TPGM and level "
      "with it within noise.");
}

TEST(Summary, WhatIsNoise) {
  // 2·√(2·0.6·0.4/10000) = 1.386 points.
  const auto apart = [](double home, double away) {
    return summary({row("FT", RowKind::kFt, 60, 60), row("TPGM", RowKind::kTpgm, 60 + home, 60 + away)});
  };
  EXPECT_HAS(apart(0, 1.3), ": level with FT within noise.");
  EXPECT_HAS(apart(0, -1.3), ": level with FT within noise.");
  EXPECT_HAS(apart(-3, 0), ": 3.0 points below FT and level with it.");
  EXPECT_HAS(apart(0, 1.5), ": level with FT and 1.5 points above it.");
  EXPECT_HAS(apart(0, 1.5), "One seed: differences below about 1.4 points are noise.");
  EXPECT_HAS(apart(0.01, -0.01), ": level with FT.");
  EXPECT_HAS(apart(0.3, 0.4), ": level with FT within noise.");
  EXPECT_HAS(apart(-0.3, 0.4), ": level with FT within noise.");
  EXPECT_HAS(apart(3, -0.4), ": 3.0 points above FT and level with it within noise.");
  const auto changed = [](double home, double away) {
    return summary(
        {row("Zero-shot", RowKind::kZeroShot, 60, 60), row("FT", RowKind::kFt, 60 + home, 60 + away)});
  };
  EXPECT_HAS(changed(1.3, -5),
             "changed nothing beyond noise in distribution (60.0 → 61.3 %) and lost 5.0 points out of it "
             "(60.0 → 55.0 %).");
  EXPECT_HAS(changed(0, -5), "changed nothing in distribution (60.0 → 60.0 %) and lost 5.0 points out of it");
}

TEST(Summary, SeedsSayWhatIsNoise) {
  // Deviation 1 over 4 seeds: an error of ½ each, and 2·√½ = 1.41 of a difference, whatever the images.
  const double d = std::sqrt(0.75);
  const std::vector<double> spread = {-d, -d, d, d};
  const auto around = [&](double mean) {
    auto values = spread;
    for (auto& value : values) value += mean;
    return values;
  };
  const auto text = [&](double points) {
    return summary({seeds("FT", RowKind::kFt, around(80), around(50)),
                    seeds("TPGM", RowKind::kTpgm, around(80), around(50 + points))});
  };
  EXPECT_HAS(text(1.3), "level with FT within noise");
  EXPECT_HAS(text(1.5), "level with FT and 1.5 points above it.");
  EXPECT_HAS(text(1.5),
             "Noise is below two standard errors, from the spread over 4 seeds; other test images would "
             "add to it.");
  const auto average = average_of(seeds("FT", RowKind::kFt, around(80), around(50)), false);
  EXPECT_NEAR(average.mean, 50, 1e-12);
  EXPECT_NEAR(average.error, 0.5, 1e-12);
}

TEST(Summary, AveragesOfSeveralTests) {
  const SummaryRow two{
      "FT", RowKind::kFt, {{"home", true, {90}}, {"a", false, {50}}, {"b", false, {80}}}, {100, 400, 100}};
  const auto average = average_of(two, false);
  EXPECT_DOUBLE_EQ(average.mean, 65);
  EXPECT_NEAR(average.error, 100 * std::sqrt(0.25 / 400 + 0.16 / 100) / 2, 1e-12);
  EXPECT_TRUE(std::isnan(average_of({"x", RowKind::kFt, {{"home", true, {90}}}, {10}}, false).mean));
}

TEST(Summary, SaysNothingOfWhatIsNotThere) {
  EXPECT_EQ(summary(std::vector<SummaryRow>{}), "");
  EXPECT_EQ(summary({row("FT", RowKind::kFt, 80, 42)}), "");
  EXPECT_EQ(summary({row("FT", RowKind::kFt, 80, 42), {"failed", RowKind::kTpgm, {}, {}}}), "");
  const auto baselines = summary({row("LP", RowKind::kOther, 80, 42), row("L2-SP", RowKind::kOther, 81, 50)});
  EXPECT_HAS(baselines, "Best in both is L2-SP with 81.0 % (1 other within noise) and 50.0 %.");
  EXPECT_EQ(baselines.find("Fine-tuning"), std::string::npos);
  EXPECT_EQ(baselines.find(" FT"), std::string::npos);
  // Without tests out of distribution, those in it decide.
  const auto home = summary({{"FT", RowKind::kFt, {{"home", true, {80}}}, {1000}},
                             {"TPGM", RowKind::kTpgm, {{"home", true, {90}}}, {1000}}});
  EXPECT_HAS(home,
             "TPGM has 90.0 % in distribution: 10.0 points above FT. Best is TPGM with 90.0 %. One seed: ");
  EXPECT_EQ(home.find("out of"), std::string::npos);
  EXPECT_EQ(home.find("nan"), std::string::npos);
}

TEST(Summary, OfSeveralTheOneThatSelectionChose) {
  const auto text =
      summary({row("Zero-shot", RowKind::kZeroShot, 60, 50), row("FT lr=1", RowKind::kFt, 99, 99, 70),
               row("FT lr=2", RowKind::kFt, 70, 40, 80)});
  EXPECT_HAS(text, "Fine-tuning (FT lr=2)");
  EXPECT_HAS(text, "lost 10.0 out of it");
}

}  // namespace
}  // namespace tpgm::test_summary
