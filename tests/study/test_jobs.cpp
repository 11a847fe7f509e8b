// Jobs as processes: locks between sweeps, runs that fail, and runs that are stopped.
#include "tpgm/study/jobs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "tests/study/study_files.h"
#include "tests/support.h"
#include "tpgm/io/file.h"

namespace tpgm::test_jobs {
namespace {

namespace fs = std::filesystem;

class Jobs : public test::Scratch {
 protected:
  Job job(const std::string& name) const {
    Job result;
    result.name = name;
    result.settings = {{"output", (folder_ / name).string()}, {"method", "ft"}};
    return result;
  }
  std::vector<std::string> said_;
  JobOptions options(const std::string& script) {
    JobOptions result = test::by_script(script);
    result.callbacks.say = [this](const std::string& text) { said_.push_back(text); };
    return result;
  }
  bool said(const std::string& part) const {
    return std::any_of(said_.begin(), said_.end(),
                       [&](const auto& text) { return text.find(part) != std::string::npos; });
  }
};

TEST_F(Jobs, OneProcessMakesARunThatSeveralWant) {
  // The log of a run is locked while a process writes to it.
  const fs::path log = folder_ / "a.log";
  const int held = ::open(log.c_str(), O_WRONLY | O_CREAT, 0666);
  ASSERT_EQ(::flock(held, LOCK_EX), 0);
  std::atomic<bool> waits = false;
  JobOptions waiting = options("touch \"$1.begun\"; exit 1");
  waiting.callbacks.say = [&](const std::string& text) {
    waits = waits || text == "a is being made by another process";
  };
  std::thread other([&] {
    // The other process finishes the run while this one waits for it.
    while (!waits) std::this_thread::yield();
    test::put_file(folder_ / "a" / "recipe.toml", "method = \"ft\"\n");
    test::put_file(folder_ / "a" / "result.json", test::result_json({}));
    ::close(held);
  });
  const auto results = run_jobs({job("a")}, waiting);
  other.join();
  ASSERT_EQ(results.size(), 1U);
  EXPECT_TRUE(results[0].result);
  EXPECT_FALSE(fs::exists(folder_ / "a.begun"));
}

TEST_F(Jobs, AFailedRunDoesNotEndTheOthers) {
  const auto results = run_jobs(
      {job("bad"), job("dead"), job("good")},
      options("case $1 in *bad) echo 'first'; echo 'no images' >&2; exit 1;; *dead) kill -9 $$;; esac\n" +
              test::finishing_script()));
  ASSERT_EQ(results.size(), 3U);
  EXPECT_FALSE(results[0].result);
  EXPECT_EQ(results[0].error, "no images");
  EXPECT_FALSE(results[1].result);
  EXPECT_NE(results[1].error.find("ended by signal 9"), std::string::npos) << results[1].error;
  EXPECT_TRUE(results[2].result);
  EXPECT_TRUE(said("bad failed: no images")) << said_.size();
  // Again: what is finished is not repeated, what failed is tried again.
  const auto again =
      run_jobs({job("bad"), job("good")}, options("touch \"$1.again\"\n" + test::finishing_script()));
  EXPECT_TRUE(again[0].result && again[1].result);
  EXPECT_TRUE(fs::exists(folder_ / "bad.again"));
  EXPECT_FALSE(fs::exists(folder_ / "good.again"));
}

TEST_F(Jobs, StoppedRunsSaveTheirStatesAndAreResumed) {
  JobOptions stopped = options(
      "mkdir -p \"$1\"; echo 'method = \"ft\"' > \"$1/recipe.toml\"\n"
      "trap 'echo saved > \"$1/state\"; exit 1' TERM\n"
      "while :; do sleep 0.05; done");
  stopped.callbacks.stop = [&] { return fs::exists(folder_ / "a" / "recipe.toml"); };
  EXPECT_THROW(run_jobs({job("a"), job("b")}, stopped), std::exception);
  EXPECT_TRUE(fs::exists(folder_ / "a" / "state"));
  EXPECT_FALSE(fs::exists(folder_ / "b"));
  // The process that resumes is told so.
  const auto results = run_jobs({job("a")}, options("echo \"$2\" > \"$1.how\"\n" + test::finishing_script()));
  EXPECT_TRUE(results[0].result);
  EXPECT_EQ(read_text(folder_ / "a.how"), "resume\n");
}

}  // namespace
}  // namespace tpgm::test_jobs
