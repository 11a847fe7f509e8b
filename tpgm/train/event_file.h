// TensorBoard's event files, written without TensorFlow.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tpgm {

/// Appends to one file; what was written before flush() survives a kill. TensorBoard looks only at files that
/// have "tfevents" in their names. Tags are UTF-8, and a '/' in one makes a group; times are seconds since
/// 1970. Not thread-safe.
class EventFile {
 public:
  /// A new file, in the place of an old one, if `size` is 0. Else the file at `path` cut to its first `size`
  /// bytes, which must be where flush() said it was, to go on from. `wall_time` is a new file's, now if there
  /// is none. Throws, naming the file, if it cannot be written or is shorter than `size`.
  explicit EventFile(const std::filesystem::path& path, int64_t size = 0,
                     std::optional<double> wall_time = std::nullopt);
  /// Flushes as far as that is possible.
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  /// Kept as float32, as TensorBoard shows it.
  void scalar(const std::string& tag, double value, int64_t step, double wall_time);
  /// The distribution of `values`, in `buckets` of equal width between `low` and `high`. Values below have a
  /// bucket of their own, and so have values above. One that is not finite is left out, and without any other
  /// nothing is written. With `low` and `high` equal the buckets reach from a half below to a half above.
  void histogram(const std::string& tag, const std::vector<double>& values, double low, double high,
                 int buckets, int64_t step, double wall_time);
  /// Hands everything to the system and returns the size so far. Throws when the disk is full and the like;
  /// then the file is as after the last flush, and the next one tries again. The calls above flush when much
  /// is waiting, and throw the same.
  int64_t flush();

 private:
  void write(const std::string& event);
  bool try_flush() noexcept;

  std::filesystem::path path_;
  std::string waiting_;  // whole records
  int64_t size_ = 0;     // without them
  int descriptor_ = -1;
};

/// The checksum of event files, CRC-32C (Castagnoli), before TensorFlow's masking.
uint32_t crc32c(std::string_view bytes);

}  // namespace tpgm
