// Suggestions for misspelled names.
#include "tpgm/base/names.h"

#include <gtest/gtest.h>

#include "tests/support.h"
#include "tpgm/base/text.h"

namespace tpgm {
namespace {

using testing::error_of;
using Names = std::vector<std::string>;

TEST(Lower, ChangesASCIILettersAlone) {
  EXPECT_EQ(lower("Ab-Z9_@[`{"), "ab-z9_@[`{");
  EXPECT_EQ(lower("\xc3\x84rger É"), "\xc3\x84rger É");
  EXPECT_EQ(lower(""), "");
}

TEST(Nearest, IsAMisspelledName) {
  EXPECT_EQ(nearest("foto", {"sketch", "photo"}), "photo");
  EXPECT_EQ(nearest("TPGM", {"ft", "tpgm"}), "tpgm");
  EXPECT_EQ(nearest("vti", {"resnet", "vit"}), "vit");  // a swap is one letter
  EXPECT_EQ(nearest("epoch", {"batch-size", "epochs"}), "epochs");
  EXPECT_EQ(nearest("cf.*", {"conv1.weight", "fc.weight"}), "fc.weight");
  EXPECT_EQ(nearest("ab", {"AB", "ab"}), "ab");
}

TEST(Nearest, IsNothingIfAllAreFar) {
  EXPECT_EQ(nearest("version", {"train", "eval", "wise", "inspect"}), "");
  EXPECT_EQ(nearest("convnext_atto", {"resnet50", "clip-rn50", "vit_b_16"}), "");
  EXPECT_EQ(nearest("bs", {"id", "lr", "tv"}), "");
  EXPECT_EQ(nearest("x", {"k"}), "");
  EXPECT_EQ(nearest("xyz.*", {"conv1.weight", "fc.weight"}), "");
  EXPECT_EQ(nearest("", {"k"}), "");
  EXPECT_EQ(nearest("lr", {}), "");
  const std::string a(1 << 20, 'a');
  EXPECT_EQ(nearest(a, {a + "b"}), "");  // at once
}

TEST(Nearest, IsTheEndOfAMessage) {
  EXPECT_EQ(did_you_mean("tpmg", {"ft", "tpgm"}), "; did you mean 'tpgm'?");
  EXPECT_EQ(did_you_mean("lrr", {"lr"}, "--"), "; did you mean '--lr'?");
  EXPECT_EQ(did_you_mean("sam", {"ft", "tpgm"}), "");
  EXPECT_EQ(the_nearest("barz", {"bars"}), "; the nearest is 'bars'");
  EXPECT_EQ(the_nearest("cat", {"dog"}), "");
}

TEST(Nearest, PointsOutCharactersThatAreNotAscii) {
  EXPECT_EQ(did_you_mean("\xd0\xb5pochs", {"epochs"}),
            "; it has a character that is not ASCII; did you mean 'epochs'?");
  EXPECT_EQ(the_nearest("Z\xc3\xbcrich", {"Zurich"}), "; the nearest is 'Zurich'");
}

TEST(Globs, ThatMatchNothingAreErrors) {
  const auto error = [](const std::string& glob, const Names& names) {
    return error_of([&] { check_globs("`only`", {glob}, names); });
  };
  EXPECT_EQ(error("haed.*", {"head.weight"}),
            "`only` 'haed.*' matches no parameter; the nearest is 'head.weight'");
  EXPECT_EQ(error("classifier.*", {"conv1.weight", "fc.weight"}),
            "`only` 'classifier.*' matches no parameter; their names are like 'conv1.weight'");
  EXPECT_EQ(error("a", {}), "`only` 'a' matches no parameter; the model has none");
}

TEST(Lists, AreReadAsSentences) {
  EXPECT_EQ(listed({}), "");
  EXPECT_EQ(listed({"ft"}), "ft");
  EXPECT_EQ(listed({"ft", "lp"}), "ft and lp");
  EXPECT_EQ(listed({"ft", "lp", "pf"}, "or"), "ft, lp or pf");
}

}  // namespace
}  // namespace tpgm
