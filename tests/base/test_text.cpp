// Values and their spellings, quotes for a shell, amounts of memory, the hash of files.
#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>

#include "tpgm/base/byte_count.h"
#include "tpgm/base/error_text.h"
#include "tpgm/base/hash.h"
#include "tpgm/base/shell.h"
#include "tpgm/base/text.h"

namespace tpgm {

namespace {
enum class Color { kRed, kGreen };
}  // namespace

template <>
struct Keywords<Color> {
  static constexpr std::pair<Color, const char*> all[] = {{Color::kGreen, "green"}, {Color::kRed, "red"}};
};

namespace {

template <class T>
std::string refusal(const std::string& text) {
  T value{};
  try {
    from_text("`it`", text, value);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

TEST(Text, OfEveryTypeIsReadAsItIsWritten) {
  EXPECT_EQ(to_text(0.1), "0.1");
  EXPECT_EQ(parsed<double>("1e-3"), 1e-3);
  for (const double value : {1.0 / 3, 1e-300, std::numeric_limits<double>::max()})
    EXPECT_EQ(parsed<double>(to_text(value)), value);
  EXPECT_EQ(parsed<int64_t>("-9223372036854775808"), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(to_text(true), "true");
  EXPECT_FALSE(parsed<bool>("false"));
  EXPECT_EQ(to_text(Color::kRed), "red");
  EXPECT_EQ(parsed<Color>("green"), Color::kGreen);
  EXPECT_EQ(to_text(std::optional<double>()), "auto");
  EXPECT_EQ(parsed<std::optional<double>>("auto"), std::nullopt);
  EXPECT_EQ(parsed<std::optional<double>>("2"), 2.0);
  EXPECT_EQ(to_text(std::vector<double>{0.5, 2}), "0.5,2");
  EXPECT_EQ(parsed<std::vector<double>>("0.5,2"), (std::vector<double>{0.5, 2}));
  EXPECT_EQ(parsed<std::vector<std::string>>("a.*,b"), (std::vector<std::string>{"a.*", "b"}));
  EXPECT_TRUE(parsed<std::vector<std::string>>("").empty());
}

TEST(Text, ThatIsNoValueIsRefused) {
  EXPECT_EQ(refusal<Color>("blue"), "`it` must be green|red, not 'blue'");
  EXPECT_EQ(refusal<std::optional<Color>>("Red"), "`it` must be green|red, not 'Red'");
  EXPECT_EQ(refusal<int64_t>("1.5"), "`it` must be an integer, not '1.5'");
  EXPECT_EQ(refusal<int64_t>("9223372036854775808"), "`it` must be an integer, not '9223372036854775808'");
  EXPECT_EQ(refusal<double>("1 "), "`it` must be a number, not '1 '");
  EXPECT_EQ(refusal<double>(""), "`it` must be a number, not ''");
  EXPECT_EQ(refusal<bool>("1"), "`it` must be true or false, not '1'");
  EXPECT_EQ(refusal<std::vector<double>>("1,x"), "`it` must be a number, not 'x'");
  EXPECT_EQ(refusal<bool>("a\nb"), "`it` must be true or false, not 'a?b'");
}

TEST(Text, OfSizesKeepsItsSpelling) {
  const auto size = parsed<ByteCount>("1.5GiB");
  EXPECT_EQ(size.bytes, 1610612736);
  EXPECT_EQ(to_text(size), "1.5GiB");
  EXPECT_EQ(parsed<ByteCount>("0").bytes, 0);
  EXPECT_EQ(to_text(ByteCount()), "0");
  for (const char* wrong : {"", "-1", "much", "4XB", "1e30GB", "0GB"})
    EXPECT_EQ(refusal<ByteCount>(wrong),
              std::string("`it` must be a size like 4GB or 500MiB, or 0, not '") + wrong + "'");
}

// The reference values of Fowler, Noll and Vo's own tables.
TEST(ErrorText, OfJsonIsWithoutTheNameOfAnException) {
  EXPECT_EQ(
      json_reason(std::runtime_error("[json.exception.parse_error.101] parse error at line 1, column 3: x")),
      "parse error at line 1, column 3: x");
  EXPECT_EQ(json_reason(std::runtime_error("[x] y\x1b[31m")), "[x] y?[31m");
  EXPECT_EQ(json_reason(std::runtime_error(std::string(1000, 'x'))), std::string(200, 'x') + "…");
}

TEST(Hash, IsFnv1a) {
  EXPECT_EQ(fnv1a(""), 0xcbf29ce484222325ULL);
  EXPECT_EQ(fnv1a("a"), 0xaf63dc4c8601ec8cULL);
  EXPECT_EQ(fnv1a("foobar"), 0x85944171f73967e8ULL);
  EXPECT_EQ(fnv1a("bar", fnv1a("", fnv1a("foo"))), 0x85944171f73967e8ULL);
}

TEST(Shell, QuotesWhatAShellWouldChange) {
  EXPECT_EQ(shell_word("mu=0,seed=0"), "mu=0,seed=0");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("a b"), "'a b'");
  EXPECT_EQ(shell_word("it's"), R"('it'\''s')");
  EXPECT_EQ(shell_quoted("head.*"), "'head.*'");
}

}  // namespace
}  // namespace tpgm
