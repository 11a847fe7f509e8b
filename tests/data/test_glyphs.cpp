// The glyphs data set: its classes, splits and drawing, and that the committed part is what these fonts give.
#include "tpgm/data/glyphs/glyphs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "tests/io/scratch.h"
#include "tpgm/data/formats/encoded_image.h"
#include "tpgm/data/glyphs/alike.h"
#include "tpgm/data/glyphs/characters.h"
#include "tpgm/data/glyphs/font.h"
#include "tpgm/data/random.h"
#include "tpgm/data/sources/tar_reader.h"

namespace tpgm {
namespace {

namespace fs = std::filesystem;

const GlyphFonts& fonts() {
  static const GlyphFonts found = [] {
    try {
      return find_glyph_fonts();
    } catch (const c10::Error&) {
      return GlyphFonts();  // built without FreeType
    }
  }();
  return found;
}

class GlyphFontsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (fonts().faces.empty()) GTEST_SKIP() << "no FreeType, or none of the fonts";
  }
};

const GlyphFace* face_named(const std::string& name) {
  const auto& faces = fonts().faces;
  const auto face = std::find_if(faces.begin(), faces.end(), [&](const auto& f) { return f.name == name; });
  return face != faces.end() ? &*face : nullptr;
}

// By its file, as DejaVu itself may be left out for a font with the same outlines.
fs::path font_file(const std::string& name) { return fs::path("/usr/share/fonts/truetype") / name; }

class FontTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const fs::path file = font_file("dejavu/DejaVuSans.ttf");
    if (fonts().faces.empty() || !fs::exists(file)) GTEST_SKIP() << "no FreeType, or no DejaVu Sans";
    font_ = std::make_unique<Font>(file);
  }
  Image draw(char32_t character) { return font_->draw(character).value().image; }
  Box box(char32_t character) { return ink_box(draw(character)); }
  int64_t bottom(char32_t character) { return box(character).top + box(character).height; }

  std::unique_ptr<Font> font_;
};

// Unicode's names, put together by its own rules.
TEST(Glyphs, ClassesAreTheUnicodeNames) {
  const char* digits[] = {"zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"};
  const auto characters = glyph_task_characters();
  ASSERT_EQ(characters.size(), 62);
  for (size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(characters[i].code, U'0' + i);
    EXPECT_EQ(characters[i].name, std::string("digit_") + digits[i]);
  }
  for (size_t i = 0; i < 26; ++i) {
    const char letter = static_cast<char>('a' + i);
    EXPECT_EQ(characters[10 + i].code, U'A' + i);
    EXPECT_EQ(characters[10 + i].name, std::string("latin_capital_letter_") + letter);
    EXPECT_EQ(characters[36 + i].code, U'a' + i);
    EXPECT_EQ(characters[36 + i].name, std::string("latin_small_letter_") + letter);
  }
}

TEST(Glyphs, NoCharacterIsThereTwice) {
  std::set<char32_t> codes;
  std::set<std::string> names;
  for (const auto& character : glyph_characters()) {
    EXPECT_TRUE(codes.insert(character.code).second) << character.name;
    EXPECT_TRUE(names.insert(character.name).second) << character.name;
  }
}

// The numbers are a Python transcription's of FNV-1a, splitmix64's finish and the limits.
TEST(Glyphs, SplitsAreTheSameEverywhere) {
  EXPECT_EQ(stable_hash(""), 0xf52a15e9a9b5e89bULL);
  EXPECT_EQ(stable_hash("a"), 0x02c0bdbf481420f8ULL);
  EXPECT_EQ(stable_hash("dejavu"), 0x7e2c2e60f71d5386ULL);
  EXPECT_EQ(glyph_split("lato"), GlyphSplit::kPretrain);
  EXPECT_EQ(glyph_split("dejavu"), GlyphSplit::kTrain);
  EXPECT_EQ(glyph_split("manrope"), GlyphSplit::kRadius);
  EXPECT_EQ(glyph_split("liberation"), GlyphSplit::kSelection);
  EXPECT_EQ(glyph_split("inter"), GlyphSplit::kTest);
}

TEST(Glyphs, FamiliesAreWhatBelongsTogether) {
  EXPECT_EQ(glyph_family("Lato Light"), "lato");
  EXPECT_EQ(glyph_family("DejaVu Sans Mono"), "dejavu");
  EXPECT_EQ(glyph_family("Abecedario_punt-guiada"), "abecedario");
  EXPECT_EQ(glyph_family("OCRABold"), glyph_family("OCRA"));
  EXPECT_EQ(glyph_family("FreeMono"), glyph_family("Sans Uralic"));
  EXPECT_EQ(glyph_family("Arimo"), glyph_family("Liberation Sans Narrow"));
  EXPECT_NE(glyph_family("Open Sans"), glyph_family("OpenDyslexic"));
}

TEST(Glyphs, DomainsAreOursThenTheFacesThenThePackages) {
  const FontPackage sans{"fonts-x", GlyphDomain::kSans}, deco{"fonts-y", GlyphDomain::kDeco};
  EXPECT_EQ(glyph_domain("Some Font", false, {}, sans), GlyphDomain::kSans);
  EXPECT_EQ(glyph_domain("Some Font", true, {}, sans), GlyphDomain::kMono);
  EXPECT_EQ(glyph_domain("Some Font", false, {2, 2, 6, 3}, sans), GlyphDomain::kSerif);
  EXPECT_EQ(glyph_domain("Some Font", false, {2, 11, 6, 3}, {"fonts-z", GlyphDomain::kHand}),
            GlyphDomain::kSans);
  EXPECT_EQ(glyph_domain("Some Font", false, {2, 11, 6, 9}, sans), GlyphDomain::kMono);
  EXPECT_EQ(glyph_domain("Some Font", false, {3, 2, 6, 3}, sans), GlyphDomain::kHand);
  EXPECT_EQ(glyph_domain("Some Font", false, {4, 2, 6, 3}, sans), GlyphDomain::kDeco);
  EXPECT_EQ(glyph_domain("Some Font", true, {2, 11, 6, 3}, deco), GlyphDomain::kDeco);
  EXPECT_EQ(glyph_domain("Palladio Uralic Bold", false, {2, 0, 8, 3}, sans), GlyphDomain::kSerif);
}

// A letter of a random alphabet, in squares of `size` pixels.
Image letter(uint64_t which, int64_t size) {
  Random random(which, 0, 0);
  Image image(32, 32, 1);
  for (int64_t cell = 0; cell < 36; ++cell) {
    const uint8_t grey = random.uniform() < 0.5 ? 0 : 255;
    for (int64_t i = 0; i < size * size; ++i) {
      image.row(4 + cell / 6 * size + i / size)[4 + cell % 6 * size + i % size] = grey;
    }
  }
  return image;
}

TEST(Glyphs, FacesWithoutSmallLettersAreSeen) {
  std::vector<Image> letters, capitals, small_capitals;
  for (size_t i = 0; i < kGlyphClasses; ++i) {
    const bool small = i >= 36;
    letters.push_back(letter(i, 4));
    capitals.push_back(letter(small ? i - 26 : i, 4));
    small_capitals.push_back(letter(small ? i - 26 : i, small ? 2 : 4));
  }
  EXPECT_FALSE(draws_capitals_only(letters));
  EXPECT_TRUE(draws_capitals_only(capitals));
  EXPECT_TRUE(draws_capitals_only(small_capitals));
  EXPECT_TRUE(draws_capitals_only(std::vector<Image>(kGlyphClasses, letter(1, 4))));  // boxes
}

TEST_F(FontTest, DrawsWhiteOnBlackInTheEmBox) {
  const Image image = draw('H');
  EXPECT_EQ(image.width, 32);
  EXPECT_EQ(image.height, 32);
  EXPECT_EQ(image.channels, 1);
  EXPECT_EQ(image.pixels.front(), 0);
  EXPECT_EQ(*std::max_element(image.pixels.begin(), image.pixels.end()), 255);
  // 0.729 em of 26 pixels, 7 above the edge.
  EXPECT_NEAR(box('H').height, 19, 1);
  EXPECT_NEAR(bottom('H'), 25, 1);
}

TEST_F(FontTest, KeepsBaselineAndRelativeSize) {
  EXPECT_LT(box('c').height, box('C').height - 3);
  for (const char32_t character : {U'x', U'z', U'E', U'r', U'k', U'T', U'1'}) {
    EXPECT_EQ(bottom(character), bottom('H')) << static_cast<int>(character);
  }
  EXPECT_GT(bottom('p'), bottom('H') + 3);
  EXPECT_LT(box('i').width, box('m').width / 3);
  for (const char32_t character : {U'H', U'o', U'I'}) {
    EXPECT_NEAR(box(character).left, 32 - box(character).left - box(character).width, 1);
  }
}

TEST_F(FontTest, DrawsNothingForWhatTheFontLacks) {
  EXPECT_FALSE(font_->draw(0xe000).has_value());
  EXPECT_FALSE(font_->draw(' ').has_value());
  EXPECT_TRUE(font_->draw(0x416).has_value());
}

TEST_F(FontTest, RefusesWhatIsNoFont) {
  const auto message = test::error_of([] { Font font(std::string(TPGM_TEST_DATA) + "/CMakeLists.txt"); });
  EXPECT_NE(message.find("cannot read"), std::string::npos) << message;
}

TEST_F(GlyphFontsTest, NoFamilyIsInTwoSplits) {
  std::map<std::string, GlyphSplit> splits;
  std::set<std::string> names;
  for (const auto& face : fonts().faces) {
    const auto [entry, isnew] = splits.emplace(face.family, face.split);
    EXPECT_EQ(entry->second, face.split) << face.name;
    EXPECT_TRUE(names.insert(face.name).second) << face.name;
  }
}

std::vector<Image> sample_of(const fs::path& file) {
  const Font font(file);
  std::vector<Image> images;
  for (const char32_t character : {U'g', U'Q', U'2', U'a', U'R', U'5', U'y', U'M'}) {
    images.push_back(font.draw(character).value().image);
  }
  return images;
}

double alike(const std::vector<Image>& a, const std::vector<Image>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    sum += likeness(a[i], b[i]);
    if (sum < 0.8 * static_cast<double>(i)) return 0;  // saves time
  }
  return sum / static_cast<double>(a.size());
}

// Families are told by name; this is told by eye, and would find a font that goes by two.
TEST_F(GlyphFontsTest, NoFaceOfTheTestIsTrainedOnUnderAnotherName) {
  std::vector<std::pair<std::string, std::vector<Image>>> trained, tested;
  for (const auto& face : glyph_pretrain_faces(fonts()))
    trained.emplace_back(face.name, sample_of(face.file));
  for (const auto& face : glyph_task_faces(fonts())) {
    (face.split == GlyphSplit::kTest ? tested : trained).emplace_back(face.name, sample_of(face.file));
  }
  for (const auto& [name, glyphs] : tested) {
    for (const auto& [other, others] : trained)
      EXPECT_LT(alike(glyphs, others), 0.95) << name << ", " << other;
  }
}

// One is a retouch of the other, so the eye that the test above relies on must see it.
TEST_F(GlyphFontsTest, FontsThatGoByTwoNamesAreSeen) {
  const auto one = font_file("dejavu/DejaVuSansMono-Bold.ttf"), other = font_file("hack/Hack-Bold.ttf");
  if (!fs::exists(one) || !fs::exists(other)) GTEST_SKIP() << "not all fonts are installed";
  EXPECT_GT(alike(sample_of(one), sample_of(other)), 0.95);
}

TEST_F(GlyphFontsTest, DropsFacesThatDrawSomethingElse) {
  if (!fonts().missing.empty()) GTEST_SKIP() << "not all fonts are installed";
  for (const char* name : {"bebas-neue-regular", "go-smallcaps-regular", "ellhnikh-regular",
                           "eb-garamond-initials-regular", "karla-tamil-upright-regular"}) {
    EXPECT_EQ(face_named(name), nullptr) << name;
  }
  EXPECT_NE(face_named("go-regular"), nullptr);
}

TEST_F(GlyphFontsTest, TaskFacesAreOfTheirSplitAndDomain) {
  for (const auto& face : glyph_task_faces(fonts())) {
    EXPECT_NE(face.split, GlyphSplit::kPretrain);
    EXPECT_TRUE(face.split == GlyphSplit::kTest || face.domain == GlyphDomain::kSans) << face.name;
  }
}

// Other versions of the fonts and of FreeType draw a little differently, so a few may differ.
TEST_F(GlyphFontsTest, TheCommittedTaskIsWhatTheFontsGive) {
  if (!fonts().missing.empty()) GTEST_SKIP() << "not all fonts are installed";
  const std::string tar = test::read_bytes(fs::path(TPGM_TEST_DATA).parent_path() / "assets" / "glyphs.tar");
  ASSERT_FALSE(tar.empty());
  TarReader reader(tar.size(), [&](uint64_t at, char* to, size_t size) { tar.copy(to, size, at); });
  std::map<std::string, std::string> committed;
  while (const auto entry = reader.next()) committed[entry->name] = reader.bytes(*entry);
  const auto drawn = draw_glyphs(glyph_task_faces(fonts()));
  EXPECT_EQ(committed.size(), drawn.size());
  size_t same = 0;
  for (const auto& encoded : drawn) {
    const auto other = committed.find(encoded.name);
    if (other == committed.end()) continue;
    const Image a = EncodedImage(encoded.png).decode(), b = EncodedImage(other->second).decode();
    int worst = 0;
    for (size_t i = 0; i < a.pixels.size(); ++i) worst = std::max(worst, std::abs(a.pixels[i] - b.pixels[i]));
    same += worst <= 8;
  }
  EXPECT_GT(static_cast<double>(same), 0.95 * static_cast<double>(drawn.size()));
}

class GlyphFiles : public test::Scratch {
 protected:
  const std::vector<GlyphImage> pretrain_{{"sans/digit_one/x.png", "one"}, {"deco/digit_two/x.png", "two"}},
      task_{{"test/hand/digit_one/y.png", "three"}};
};

TEST_F(GlyphFiles, AreFolders) {
  write_glyphs(pretrain_, task_, file("out"), GlyphFormat::kFolders);
  EXPECT_EQ(test::read_bytes(file("out/pretrain/sans/digit_one/x.png")), "one");
  EXPECT_EQ(test::read_bytes(file("out/pretrain/deco/digit_two/x.png")), "two");
  EXPECT_EQ(test::read_bytes(file("out/task/test/hand/digit_one/y.png")), "three");
  EXPECT_EQ(files_in_folder(), 1);
}

TEST_F(GlyphFiles, AreShards) {
  fs::create_directory(file("out"));
  write_glyphs(pretrain_, task_, file("out"), GlyphFormat::kShards);
  const std::string tar = test::read_bytes(file("out/task/glyphs-000000.tar"));
  TarReader reader(tar.size(), [&](uint64_t at, char* to, size_t size) { tar.copy(to, size, at); });
  const auto entry = reader.next();
  ASSERT_TRUE(entry.has_value());
  EXPECT_EQ(entry->name, "test/hand/digit_one/y.png");
  EXPECT_EQ(reader.bytes(*entry), "three");
  EXPECT_TRUE(fs::exists(file("out/pretrain/glyphs-000000.tar")));
  EXPECT_EQ(files_in_folder(), 1);
}

}  // namespace
}  // namespace tpgm
