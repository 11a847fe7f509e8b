// Programs that are run without a shell.
#include "tpgm/base/child_process.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

namespace tpgm {
namespace {

TEST(ChildProcesses, GetTheirArgumentsAsTheyAre) {
  const std::vector<std::string> odd = {"it's", "$(touch /tmp/x)", "a b", "", "\"`;|&", "new\nline", "-n"};
  std::vector<std::string> arguments = {"python3", "-c", "import sys; print(sys.argv[1:], end='')"};
  arguments.insert(arguments.end(), odd.begin(), odd.end());
  ChildProcess process(arguments);
  EXPECT_EQ(process.read_all(), R"(["it's", '$(touch /tmp/x)', 'a b', '', '"`;|&', 'new\nline', '-n'])");
  EXPECT_EQ(process.wait(), 0);
  EXPECT_EQ(process.wait(), 0);
}

TEST(ChildProcesses, SayHowTheyEnded) {
  EXPECT_EQ(WEXITSTATUS(ChildProcess({"sh", "-c", "exit 3"}).wait()), 3);
  const int killed = ChildProcess({"sh", "-c", "kill -9 $$"}).wait();
  EXPECT_TRUE(WIFSIGNALED(killed) && WTERMSIG(killed) == 9);
  ChildProcess none({"/nowhere/program"});
  EXPECT_EQ(none.read_all(), "");
  EXPECT_EQ(WEXITSTATUS(none.wait()), 127);
  // One whose output nobody reads ends, too.
  EXPECT_NE(ChildProcess({"yes"}).wait(), 0);
}

TEST(ChildProcesses, MayHideTheirErrors) {
  ::testing::internal::CaptureStderr();
  ChildProcess({"sh", "-c", "echo shown >&2"}).wait();
  ChildProcess({"sh", "-c", "echo hidden >&2"}, ChildProcess::Errors::kHidden).wait();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "shown\n");
}

}  // namespace
}  // namespace tpgm
