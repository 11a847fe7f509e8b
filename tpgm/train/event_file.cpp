// Records of TFRecord that hold Event, Summary and HistogramProto of TensorFlow, encoded by hand: three
// messages do not earn a dependency on protobuf.
#include "tpgm/train/event_file.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <iterator>

namespace tpgm {
namespace {

constexpr size_t kMostWaiting = 1 << 20;

constexpr std::array<uint32_t, 256> kCrcTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0u);
    table[i] = crc;
  }
  return table;
}();

// TensorFlow's, so that the checksum of bytes that contain their checksum is none of the well-known ones.
uint32_t masked_crc(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xA282EAD8u; }

template <typename Number>
void put_little_endian(std::string& out, Number number) {
  for (size_t i = 0; i < sizeof(number); ++i) out += static_cast<char>((number >> (8 * i)) & 0xFF);
}

// A protobuf message. Fields come in the order of their numbers, and zeros are left out, as by protobuf's
// own writers.
class Message {
 public:
  Message& integer(int field, int64_t value) {
    if (value != 0) key(field, 0).varint(static_cast<uint64_t>(value));
    return *this;
  }
  Message& number(int field, double value) {
    const auto bits = std::bit_cast<uint64_t>(value);
    if (bits != 0) put_little_endian(key(field, 1).bytes_, bits);  // -0 is not a zero
    return *this;
  }
  // Also a zero: a field of a oneof says by being there which one it is.
  Message& float32(int field, float value) {
    put_little_endian(key(field, 5).bytes_, std::bit_cast<uint32_t>(value));
    return *this;
  }
  Message& bytes(int field, std::string_view value) {
    key(field, 2).varint(value.size()).bytes_ += value;
    return *this;
  }
  Message& numbers(int field, const std::vector<double>& values) {
    std::string packed;
    for (const double value : values) put_little_endian(packed, std::bit_cast<uint64_t>(value));
    return bytes(field, packed);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  Message& key(int field, int type) {
    return varint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(type));
  }
  Message& varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
    return *this;
  }

  std::string bytes_;
};

std::string event_of(const Message& value, int64_t step, double wall_time) {
  return Message()
      .number(1, wall_time)
      .integer(2, step)
      .bytes(5, Message().bytes(1, value.bytes()).bytes())  // a Summary
      .bytes();
}

// `buckets` + 1 limits, those of numpy's linspace.
std::vector<double> edges_of(double low, double high, int buckets) {
  std::vector<double> edges(static_cast<size_t>(buckets) + 1);
  const double step = (high - low) / buckets;
  for (size_t i = 0; i < edges.size(); ++i) edges[i] = low + static_cast<double>(i) * step;
  edges.back() = high;
  return edges;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = 0xFFFFFFFFu;
  for (const char byte : bytes) crc = (crc >> 8) ^ kCrcTable[(crc ^ static_cast<uint8_t>(byte)) & 0xFF];
  return ~crc;
}

EventFile::EventFile(const std::filesystem::path& path, int64_t size, std::optional<double> wall_time)
    : path_(path), size_(size) {
  TORCH_CHECK(size >= 0, "[EventFile] '", path.string(), "' cannot be cut to ", size,
              " bytes; give what flush() returned");
  const int flags = O_WRONLY | O_CLOEXEC | O_NONBLOCK | (size == 0 ? O_CREAT | O_TRUNC : 0);
  descriptor_ = uninterrupted([&] { return ::open(path.c_str(), flags, 0666); });
  const auto check = [&](bool good) {
    if (good) return;
    const int error = errno;
    const std::string why = std::strerror(error);
    if (descriptor_ >= 0) ::close(descriptor_);
    const std::string room = room_text(error, path, 0);
    if (!room.empty())
      throw WriteError(fmt::format("[EventFile] cannot write '{}': {}{}", path.string(), why, room));
    TORCH_CHECK(false, "[EventFile] cannot open '", path.string(), "' to write to: ", why,
                size == 0 ? "; is its folder there, and yours?" : "; to append to it it must exist");
  };
  check(descriptor_ >= 0);
  if (size == 0) {
    const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
    write(Message().number(1, wall_time.value_or(now.count())).bytes(3, "brain.Event:2").bytes());
    return;
  }
  struct stat status {};
  check(::fstat(descriptor_, &status) == 0);
  if (status.st_size < size) {
    ::close(descriptor_);
    TORCH_CHECK(false, "[EventFile] '", path.string(), "' has ", status.st_size,
                " bytes and cannot be continued from byte ", size,
                ": it was shortened or replaced since. Put it back, or begin a new one with size 0");
  }
  check(uninterrupted([&] { return ::ftruncate(descriptor_, size); }) == 0);
}

EventFile::~EventFile() {
  try_flush();
  ::close(descriptor_);
}

void EventFile::scalar(const std::string& tag, double value, int64_t step, double wall_time) {
  write(event_of(Message().bytes(1, tag).float32(2, static_cast<float>(value)), step, wall_time));
}

void EventFile::histogram(const std::string& tag, const std::vector<double>& values, double low, double high,
                          int buckets, int64_t step, double wall_time) {
  TORCH_CHECK(buckets > 0 && low <= high && std::isfinite(high - low), "[EventFile] histogram '", tag,
              "' in '", path_.string(), "' needs a bucket or more and finite low <= high, not ", buckets,
              " from ", low, " to ", high);
  std::vector<double> finite;
  std::copy_if(values.begin(), values.end(), std::back_inserter(finite),
               [](double x) { return std::isfinite(x); });
  if (finite.empty()) return;
  const auto [smallest, largest] = std::minmax_element(finite.begin(), finite.end());
  auto limits = low < high ? edges_of(low, high, buckets) : edges_of(low - 0.5, high + 0.5, buckets);
  limits.push_back(std::max(*largest, limits.back()));
  // A bucket has only its upper limit. The first one is what lies below all others, and mostly is there to
  // say where the next begins; the last is what lies above.
  std::vector<double> counts(limits.size());
  double sum = 0, squares = 0;
  for (const double value : finite) {
    const auto above = std::upper_bound(limits.begin(), limits.end() - 1, value) - limits.begin();
    ++counts[static_cast<size_t>(value == limits[static_cast<size_t>(buckets)] ? buckets : above)];
    sum += value;
    squares += value * value;
  }
  // Buckets at the ends are often empty and say nothing then.
  const auto full = [](double count) { return count > 0; };
  const auto first =
      std::max<ptrdiff_t>(std::find_if(counts.begin(), counts.end(), full) - counts.begin() - 1, 0);
  const auto last = counts.rend() - std::find_if(counts.rbegin(), counts.rend(), full);
  const auto histo = Message()
                         .number(1, *smallest)
                         .number(2, *largest)
                         .number(3, static_cast<double>(finite.size()))
                         .number(4, sum)
                         .number(5, squares)
                         .numbers(6, {limits.begin() + first, limits.begin() + last})
                         .numbers(7, {counts.begin() + first, counts.begin() + last});
  write(event_of(Message().bytes(1, tag).bytes(5, histo.bytes()), step, wall_time));
}

int64_t EventFile::flush() {
  if (!try_flush()) {
    const int error = errno;
    throw WriteError(fmt::format("[EventFile] cannot write '{}': {}{}; what was in it is intact",
                                 path_.string(), std::strerror(error),
                                 room_text(error, path_, static_cast<size_t>(size_) + waiting_.size())));
  }
  return size_;
}

void EventFile::write(const std::string& event) {
  std::string header;
  put_little_endian(header, static_cast<uint64_t>(event.size()));
  waiting_ += header;
  put_little_endian(waiting_, masked_crc(header));
  waiting_ += event;
  put_little_endian(waiting_, masked_crc(event));
  if (waiting_.size() > kMostWaiting) flush();
}

bool EventFile::try_flush() noexcept {
  for (size_t done = 0; done < waiting_.size();) {
    const ssize_t now = ::pwrite(descriptor_, waiting_.data() + done, waiting_.size() - done,
                                 size_ + static_cast<int64_t>(done));
    if (now < 0 && errno == EINTR) continue;
    if (now <= 0) {
      const int why = now < 0 ? errno : EIO;
      // A reader stops for good at a record that is cut short.
      if (::ftruncate(descriptor_, size_) != 0) { /* the first error tells more */
      }
      errno = why;
      return false;
    }
    done += static_cast<size_t>(now);
  }
  size_ += static_cast<int64_t>(waiting_.size());
  waiting_.clear();
  return true;
}

}  // namespace tpgm
