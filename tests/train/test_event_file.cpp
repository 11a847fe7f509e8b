// Event files: the bytes of TensorBoard's own writer, continuing a file at a size, and disks that are full.
#include "tpgm/train/event_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <limits>
#include <string>

#include "tests/io/scratch.h"

namespace tpgm::test_event_file {
namespace {

using tpgm::crc32c;
using tpgm::EventFile;
using tpgm::test::error_of;
using tpgm::test::read_bytes;
using tpgm::test::write_bytes;

constexpr double kTime = 1700000000.25;

struct EventFiles : tpgm::test::Scratch {
  std::filesystem::path path() const { return file("events.out.tfevents.1"); }
};

// What goldens_events/make_event_goldens.py writes.
std::string golden() { return read_bytes(TPGM_TEST_DATA "/train/goldens_events/golden.tfevents"); }

void write_scalars(EventFile& events) {
  events.scalar("loss/train", 0.1, 0, kTime);
  events.scalar("loss/train", 0.0, 300, kTime + 1);
  events.scalar("größe", -1e-3, int64_t{1} << 40, kTime + 2);
}

void write_histograms(EventFile& events) {
  events.histogram("radii", {0.125, 0.25, 0.25, 0.75, 0.375, 0.5}, 0, 1, 8, 300, kTime + 3);
  events.histogram("ratios", {0.0, 0.25, 0.375, 0.75}, 0, 0.75, 10, 1, kTime + 4);
  events.histogram("outside", {-3.0, 0.5, 0.5, 7.0}, 0, 1, 4, 2, kTime + 5);
  events.histogram("equal", {2, 2, 2}, 2, 2, 4, 3, kTime + 6);
}

TEST(Crc32c, PublishedValues) {
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43u);
  std::string ascending;
  for (char c = 0; c < 32; ++c) ascending += c;
  EXPECT_EQ(crc32c(ascending), 0x46DD794Eu);
  EXPECT_EQ(crc32c(std::string(ascending.rbegin(), ascending.rend())), 0x113FDB5Cu);
}

TEST_F(EventFiles, BytesOfTensorBoardsWriter) {
  write_bytes(path(), std::string(5000, 'x'));  // which goes
  EventFile events(path(), 0, kTime);
  write_scalars(events);
  write_histograms(events);
  EXPECT_EQ(events.flush(), static_cast<int64_t>(golden().size()));
  EXPECT_EQ(read_bytes(path()), golden());
}

TEST_F(EventFiles, ContinuesAFileAtASize) {
  int64_t size = 0;
  {
    EventFile events(path(), 0, kTime);
    write_scalars(events);
    size = events.flush();
    events.scalar("of a run that was killed", 1, 1, kTime);
  }  // flushes
  EXPECT_GT(std::filesystem::file_size(path()), static_cast<size_t>(size));
  {
    EventFile events(path(), size);
    EXPECT_EQ(std::filesystem::file_size(path()), static_cast<size_t>(size));
    write_histograms(events);
    EXPECT_EQ(events.flush(), static_cast<int64_t>(golden().size()));
  }
  EXPECT_EQ(read_bytes(path()), golden());
}

TEST_F(EventFiles, ManyEventsNeedNoFlush) {
  EventFile events(path());
  for (int i = 0; i < 50000; ++i) events.scalar("loss", i, i, kTime);
  EXPECT_GT(std::filesystem::file_size(path()), 1000000u);
}

TEST_F(EventFiles, LeavesOutWhatIsNotFinite) {
  const double nan = std::numeric_limits<double>::quiet_NaN(),
               infinity = std::numeric_limits<double>::infinity();
  {
    EventFile events(path(), 0, kTime);
    events.histogram("h", {1, nan, 2, infinity, -infinity}, 0, 2, 4, 1, kTime);
    events.histogram("nothing", {nan}, 0, 1, 4, 1, kTime);
    events.histogram("nothing", {}, 0, 1, 4, 1, kTime);
  }
  {
    EventFile events(file("finite"), 0, kTime);
    events.histogram("h", {1, 2}, 0, 2, 4, 1, kTime);
  }
  EXPECT_EQ(read_bytes(path()), read_bytes(file("finite")));
}

TEST_F(EventFiles, AFullDiskCostsNothingThatWasFlushed) {
  std::string before;
  {
    EventFile events(path(), 0, kTime);
    write_scalars(events);
    events.flush();
    before = read_bytes(path());
    write_histograms(events);
    // A limit on the size of files fails in the middle of a write, as a full disk does.
    rlimit old{};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
    const rlimit tight{before.size() + 20, old.rlim_max};
    auto* handler = std::signal(SIGXFSZ, SIG_IGN);
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
    const auto error = error_of([&] { events.flush(); });
    const auto after = read_bytes(path());
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
    std::signal(SIGXFSZ, handler);
    EXPECT_EQ(error,
              "[EventFile] cannot write '" + path().string() + "': File too large; what was in it is intact");
    EXPECT_EQ(after, before);
    EXPECT_EQ(events.flush(), static_cast<int64_t>(golden().size()));
  }
  EXPECT_EQ(read_bytes(path()), golden());
}

TEST_F(EventFiles, ErrorsNameTheFile) {
  const auto error_opening = [&](const std::filesystem::path& path, int64_t size) {
    return error_of([&] { EventFile events(path, size); });
  };
  const auto missing = file("missing") / "events";
  EXPECT_EQ(error_opening(missing, 0),
            "[EventFile] cannot open '" + missing.string() +
                "' to write to: No such file or directory; is its folder there, and yours?");
  EXPECT_EQ(error_opening(folder_, 0), "[EventFile] cannot open '" + folder_.string() +
                                           "' to write to: Is a directory; is its folder there, and yours?");
  EXPECT_EQ(error_opening(path(), 10),
            "[EventFile] cannot open '" + path().string() +
                "' to write to: No such file or directory; to append to it it must exist");
  write_bytes(path(), "short");
  EXPECT_EQ(error_opening(path(), 10), "[EventFile] '" + path().string() +
                                           "' has 5 bytes and cannot be continued from byte 10: it was "
                                           "shortened or replaced since. Put it back, or "
                                           "begin a new one with size 0");
  EXPECT_EQ(error_opening(path(), -1),
            "[EventFile] '" + path().string() + "' cannot be cut to -1 bytes; give what flush() returned");
  EXPECT_EQ(read_bytes(path()), "short");
}

TEST_F(EventFiles, RefusesBucketsThatAreNone) {
  EventFile events(path());
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(error_of([&] { events.histogram("h", {1}, 0, 1, 0, 0, 0); }),
            "[EventFile] histogram 'h' in '" + path().string() +
                "' needs a bucket or more and finite low <= high, not 0 from 0 to 1");
  EXPECT_NE(error_of([&] { events.histogram("h", {1}, 1, 0, 4, 0, 0); }), "");
  EXPECT_NE(error_of([&] { events.histogram("h", {1}, 0, infinity, 4, 0, 0); }), "");
  EXPECT_NE(error_of([&] { events.histogram("h", {1}, infinity, infinity, 4, 0, 0); }), "");
  EXPECT_NE(error_of([&] { events.histogram("h", {1}, 0, std::nan(""), 4, 0, 0); }), "");
}

}  // namespace
}  // namespace tpgm::test_event_file
