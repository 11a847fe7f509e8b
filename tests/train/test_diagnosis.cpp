// When a run is told that its method holds it, or changes nothing.
#include "tpgm/train/diagnosis.h"

#include <gtest/gtest.h>

namespace tpgm::test_diagnosis {
namespace {

using Finding = HasDiagnosis::Finding;

struct Told : Method, HasDiagnosis {
  explicit Told(Finding finding) : found(finding) {}
  std::optional<Diagnosis> diagnosis() override { return Diagnosis{found, "NUMBERS", "REMEDY"}; }
  Finding found;
};

std::string text(Finding finding, int64_t step, double loss, bool last, double first_loss = 2) {
  Told method(finding);
  RunState state;
  state.step = step;
  state.first_loss = first_loss;
  return diagnosis_text(method, state, loss, /*steps=*/90, last);
}

TEST(Diagnosis, OfAHeldModelTakesALossThatIsNotFalling) {
  EXPECT_EQ(
      text(Finding::kHeld, 30, 1.9, false),
      "the radii hold the model at the pre-trained weights: NUMBERS, and the training loss is still 1.9, "
      "after 2 in the first steps. Where fine-tuning does better, REMEDY");
  EXPECT_EQ(text(Finding::kHeld, 29, 1.9, false), "") << "too early";
  EXPECT_EQ(text(Finding::kHeld, 90, 1.7, true), "") << "it trains";
  EXPECT_EQ(text(Finding::kHeld, 90, 1.9, true, -1), "") << "no first loss is known";
}

TEST(Diagnosis, OfAMethodWithoutEffectComesAtTheEnd) {
  EXPECT_EQ(text(Finding::kNoEffect, 60, 1.9, false), "");
  EXPECT_EQ(text(Finding::kNoEffect, 90, 0.1, true),
            "the method has next to no effect, this is close to plain fine-tuning: NUMBERS. Try REMEDY");
}

}  // namespace
}  // namespace tpgm::test_diagnosis
