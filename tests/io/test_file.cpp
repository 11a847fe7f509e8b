// Files that processes leave behind, and disks that are full.
#include "tpgm/io/file.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/support.h"
#include "tpgm/base/hash.h"

namespace tpgm::test_file {
namespace {

namespace fs = std::filesystem;

class Files : public test::Scratch {};

std::string temporary(pid_t process, int number = 0, const std::string& machine = "") {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  return fmt::format(".tpgm-{:08x}-{}-{}.tmp", static_cast<uint32_t>(fnv1a(machine.empty() ? host : machine)),
                     process, number);
}

TEST_F(Files, LeftByKilledProcessesAreRemoved) {
  const pid_t dead = ::fork();
  if (dead == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(dead, nullptr, 0), dead);
  const std::vector<std::string> gone = {temporary(dead), temporary(dead, 12)};
  const std::vector<std::string> kept = {temporary(::getpid()), temporary(dead, 0, "another machine"),
                                         ".tpgm-x-0.tmp",       temporary(dead) + "x",
                                         "x" + temporary(dead), ".tpgm-00000000--1-0.tmp",
                                         "weights.tmp"};
  for (const auto* names : {&gone, &kept}) {
    for (const auto& name : *names) write_file(folder_ / name, "text");
  }
  fs::create_directory(folder_ / temporary(dead, 1));
  fs::create_symlink(folder_ / "weights.tmp", folder_ / temporary(dead, 2));
  remove_leftovers(folder_);
  for (const auto& name : gone) EXPECT_FALSE(fs::exists(folder_ / name)) << name;
  for (const auto& name : kept) EXPECT_TRUE(fs::exists(folder_ / name)) << name;
  EXPECT_TRUE(fs::exists(folder_ / temporary(dead, 1)));
  EXPECT_TRUE(fs::exists(folder_ / temporary(dead, 2)));
  remove_leftovers(folder_ / "nowhere");
}

TEST_F(Files, ThatCannotBeWrittenLeaveTheOldOneIntact) {
  const fs::path path = folder_ / "x";
  write_file(path, "old");
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 1000;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string said;
  try {
    write_file(path, std::string(5000, 'x'));
  } catch (const WriteError& error) {
    said = error.msg();
  }
  EXPECT_THROW(write_file(folder_ / "new", std::string(5000, 'x')), WriteError);
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_NE(said.find("cannot write '" + path.string() + "': File too large"), std::string::npos) << said;
  EXPECT_NE(said.find("the file that was there is intact"), std::string::npos) << said;
  EXPECT_EQ(read_text(path), "old");
  EXPECT_FALSE(fs::exists(folder_ / "new"));
}

TEST_F(Files, OfTextAreRegularAndNotHuge) {
  EXPECT_EQ(read_text("/dev/zero"), std::nullopt);
  EXPECT_EQ(read_text(folder_), std::nullopt);
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(read_text(folder_ / "pipe"), std::nullopt);
  write_file(folder_ / "huge", "text");
  EXPECT_EQ(read_text(folder_ / "huge"), "text");
  fs::resize_file(folder_ / "huge", uintmax_t{1} << 33);  // takes no room on the disk
  EXPECT_EQ(read_text(folder_ / "huge"), std::nullopt);
  EXPECT_EQ(read_text(folder_ / "nothing"), std::nullopt);
}

TEST_F(Files, ThatCannotBeReadAreNotTakenForEmptyOnes) {
  EXPECT_NE(test::error_of([] {
              read_text("/proc/self/mem");
            }).find("cannot read '/proc/self/mem': Input/output error"),
            std::string::npos);
}

TEST_F(Files, AreWrittenAgainAfterAnInterruption) {
  int calls = 0;
  const auto call = [&] {
    errno = ++calls < 3 ? EINTR : EIO;
    return calls < 4 ? -1 : 0;
  };
  EXPECT_EQ(uninterrupted(call), -1);
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(uninterrupted(call), 0);
}

TEST_F(Files, SayHowMuchRoomTheyNeed) {
  EXPECT_EQ(room_text(EIO, folder_ / "x", 5), "");
  const auto full = room_text(ENOSPC, folder_ / "x", 5);
  EXPECT_TRUE(full.starts_with(" (the file takes 5 ") && full.ends_with(" free)")) << full;
  EXPECT_TRUE(
      room_text(ENOSPC, "x", 0).starts_with(" (there is no room for another file, and the disk has "));
  EXPECT_EQ(room_text(EDQUOT, folder_ / "x", 0), " (the quota is used up)");
}

}  // namespace
}  // namespace tpgm::test_file
