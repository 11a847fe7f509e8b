// Folders that appear complete or not at all.
#include "tpgm/io/folder.h"

#include "tests/io/scratch.h"

namespace tpgm::test_folder {
namespace {

namespace fs = std::filesystem;

class Folder : public test::Scratch {};

TEST_F(Folder, AppearsWhenItIsCommitted) {
  for (const char* name : {"out", "out2/", "a/b/out"}) {
    AtomicFolder folder(file(name));
    test::write_bytes(folder.partial() / "x", "x");
    EXPECT_FALSE(fs::exists(file(name)));
    folder.commit();
    EXPECT_EQ(test::read_bytes(file(name) / "x"), "x");
    EXPECT_FALSE(fs::exists(folder.partial()));
  }
}

TEST_F(Folder, LeavesNothingBehindIfItIsNot) {
  {
    AtomicFolder folder(file("out"));
    fs::create_directories(folder.partial() / "deep" / "deeper");
    test::write_bytes(folder.partial() / "deep" / "x", "x");
  }
  EXPECT_EQ(files_in_folder(), 0u);
}

TEST_F(Folder, TakesThePlaceOfAnEmptyFolderAndOfNothingElse) {
  fs::create_directories(file("empty"));
  AtomicFolder(file("empty")).commit();
  fs::create_directories(file("full"));
  test::write_bytes(file("full/mine"), "mine");
  test::write_bytes(file("file"), "mine");
  fs::create_directories(file("other.partial"));
  for (const char* name : {"full", "file"}) {
    EXPECT_NE(test::error_of([&] { AtomicFolder(file(name)); }).find("not an empty folder"),
              std::string::npos);
  }
  EXPECT_NE(test::error_of([&] { AtomicFolder(file("other")); }).find("left behind"), std::string::npos);
  EXPECT_TRUE(fs::exists(file("other.partial")));
  EXPECT_EQ(test::read_bytes(file("full/mine")), "mine");
}

}  // namespace
}  // namespace tpgm::test_folder
