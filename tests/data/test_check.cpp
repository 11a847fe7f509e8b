// What check_dataset() finds, and the lines about it.
#include <gtest/gtest.h>

#include "tests/data/data_files.h"
#include "tpgm/data/check.h"

namespace tpgm::test_check {
namespace {

using CheckDataset = test::Scratch;
using Lines = std::vector<std::string>;

TEST_F(CheckDataset, NamesTheClassesThatAPartLacks) {
  uint64_t seed = 0;
  const auto write = [&](const std::string& domain, const Lines& classes) {
    for (const auto& name : classes) test::write_image(file(domain) / "test" / name / "1.png", ++seed);
  };
  write("paint", {"dog"});
  write("photo", {"ant", "bee", "cat", "dog", "eel", "fox"});
  write("sketch", {"ant", "bee", "cat", "eel"});
  const Dataset data(folder_.string());
  auto lines = missing_classes(data, check_dataset(data, data.parts()));
  std::sort(lines.begin(), lines.end());
  EXPECT_EQ(lines, (Lines{"paint/test lacks 5 of 6 classes: ant, bee, cat, …",
                          "sketch/test lacks 2 of 6 classes: dog, fox"}));
}

}  // namespace
}  // namespace tpgm::test_check
