// TensorBoard's event files, written without TensorFlow.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tpgm {

/// Appends to one file; what was written before flush() survives a kill. TensorBoard reads only files with
/// "tfevents" in their names. Tags are UTF-8, and the part before a '/' is a group. Times are seconds since
/// 1970. Not thread-safe.
class EventFile {
 public:
  /// With size = 0 creates the file, replacing an old one; `wall_time` is the time in its header (default:
  /// now). Otherwise truncates the existing file to `size`, a value that flush() returned, and appends.
  /// Throws, naming the file, if it cannot be written or is shorter than `size`.
  explicit EventFile(const std::filesystem::path& path, int64_t size = 0,
                     std::optional<double> wall_time = std::nullopt);
  /// Flushes, without an error if that fails.
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  /// Stored as float32, as TensorBoard shows it.
  void scalar(const std::string& tag, double value, int64_t step, double wall_time);
  /// A histogram of the finite `values` with `buckets` of equal width between `low` and `high`, and one more
  /// on each side for values outside. With low = high the buckets reach from low − 0.5 to high + 0.5. Writes
  /// nothing if no value is finite.
  void histogram(const std::string& tag, const std::vector<double>& values, double low, double high,
                 int buckets, int64_t step, double wall_time);
  /// Writes everything to the file and returns its size. Throws if that fails, for example on a full disk;
  /// the file then is as after the last flush, and the next flush tries again. scalar() and histogram() flush
  /// when the buffer is full, and throw likewise.
  int64_t flush();

 private:
  void write(const std::string& event);
  bool try_flush() noexcept;

  std::filesystem::path path_;
  std::string waiting_;  // whole records that are not in the file yet
  int64_t size_ = 0;     // of the file
  int descriptor_ = -1;
};

/// The checksum of event files, CRC-32C (Castagnoli), before TensorFlow's masking.
uint32_t crc32c(std::string_view bytes);

}  // namespace tpgm
