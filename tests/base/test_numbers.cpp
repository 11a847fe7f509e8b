// Numbers as people write them.
#include "tpgm/base/numbers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tpgm {
namespace {

TEST(Numbers, AreAllOfTheirText) {
  EXPECT_EQ(parse_number<int64_t>("-12"), -12);
  EXPECT_EQ(parse_number<double>("1e-3"), 1e-3);
  for (const char* text : {"", " 1", "1 ", "+1", "1x", "x", "0x10", "1,5"}) {
    EXPECT_FALSE(parse_number<int64_t>(text)) << text;
    EXPECT_FALSE(parse_number<double>(text)) << text;
  }
  EXPECT_FALSE(parse_number<int64_t>("1.5"));
  EXPECT_FALSE(parse_number<int64_t>("9223372036854775808"));
  EXPECT_FALSE(parse_number<double>("1e999"));
}

TEST(Numbers, AreGrouped) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(-123), "-123");
  EXPECT_EQ(grouped(-1234567), "-1,234,567");
}

TEST(Numbers, CountThings) {
  EXPECT_EQ(counted(1, "image"), "1 image");
  EXPECT_EQ(counted(0, "image"), "0 images");
  EXPECT_EQ(counted(1, "class"), "1 class");
  EXPECT_EQ(counted(1234, "class"), "1,234 classes");
}

TEST(Numbers, HaveUnits) {
  EXPECT_EQ(bytes_text(999), "999 B");
  EXPECT_EQ(bytes_text(1000), "1 kB");
  EXPECT_EQ(bytes_text(2013265920), "2.01 GB");
  EXPECT_EQ(bytes_text(999'600), "1 MB");
  EXPECT_EQ(duration_text(0.2), "1 s");
  EXPECT_EQ(duration_text(65), "1 min 5 s");
  EXPECT_EQ(duration_text(3725), "1 h 3 min");
  EXPECT_EQ(duration_text(3600), "1 h 0 min");
  EXPECT_EQ(duration_text(-1), "0 s");
  EXPECT_EQ(duration_text(NAN), "0 s");
  EXPECT_EQ(duration_text(std::numeric_limits<double>::infinity()), "0 s");
}

}  // namespace
}  // namespace tpgm
