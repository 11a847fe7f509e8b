// Tools for parsers of untrusted files: one type of error, a limit on memory, and a cursor that stays in
// bounds.
//
// A parser throws Malformed as soon as a file breaks a rule, and never allocates memory only because a file
// claims to need it.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

namespace tpgm {

/// The reason why a file is refused. The caller that knows the path turns it into a c10::Error with refuse().
struct Malformed {
  std::string reason;
  std::string advice = "it is damaged or incomplete: fetch or save it again";
};

template <typename... Args>
void require(bool condition, fmt::format_string<Args...> reason, Args&&... args) {
  if (!condition) throw Malformed{fmt::format(reason, std::forward<Args>(args)...)};
}

/// Throws c10::Error: "'path': reason; advice". Text quoted from the file is shortened and kept on one line.
[[noreturn]] void refuse(const std::filesystem::path& path, const Malformed& malformed);

inline constexpr size_t kMaxPath = 4096;  ///< bytes of a path in a message, as many as it may have

/// `text` for an error message: on one line, at most `limit` bytes. Invalid UTF-8 and characters that control
/// a terminal or the direction of text become question marks.
std::string printable(std::string_view text, size_t limit = 120);

/// `text` without the byte order mark that editors on Windows put in front.
inline std::string_view without_byte_order_mark(std::string_view text) {
  return text.starts_with("\xef\xbb\xbf") ? text.substr(3) : text;
}

/// Throws Malformed unless `text`, found at byte `base` of its file, is safe for the JSON parser: it begins
/// with '{', has no NUL (which ends the parser's input), no string of more than 4 MiB, and no more than 1 MiB
/// of anything else without a break (which the parser buffers, several times when it reports an error).
void check_json_text(std::string_view text, size_t base);

/// Limits the memory for parsing a file to the size of the file + 48 MiB, so that a few bytes cannot make a
/// parser allocate gigabytes. Parsers charge it before they allocate, and for the bytes of the file that they
/// read.
class MemoryBudget {
 public:
  explicit MemoryBudget(size_t file_size) : left_(file_size + (size_t{48} << 20)) {}
  /// Extends the budget for another file of the same checkpoint.
  void add_file(size_t file_size) { left_ += file_size; }
  void charge(size_t bytes) {
    require(bytes <= left_, "its description takes more memory than a file of this size may need");
    left_ -= bytes;
  }

 private:
  size_t left_;
};

/// Protects hash tables from names chosen to collide: throws Malformed if too many names of a file fall into
/// one bucket. Looking each of them up would take time linear in their number. Give it every name before
/// inserting the name into a table that uses std::hash.
class NameGuard {
 public:
  void add(std::string_view name) {
    constexpr size_t kMostInBucket = 100;  // of a million names at random, about 10
    const size_t hash = std::hash<std::string_view>()(name);
    hashes_.insert(hash);
    require(hashes_.bucket_size(hashes_.bucket(hash)) <= kMostInBucket,
            "its names are made to slow down lookups");
  }

 private:
  std::unordered_multiset<size_t> hashes_;  // grows as a table of the names does, and has the same buckets
};

/// Reads little-endian numbers and runs of bytes, never past the end.
class Cursor {
 public:
  /// `base`: where `bytes` begin in the file, for messages.
  explicit Cursor(std::string_view bytes, size_t base = 0) : bytes_(bytes), base_(base) {}

  size_t position() const noexcept { return base_ + at_; }
  size_t left() const noexcept { return bytes_.size() - at_; }

  std::string_view take(size_t size, const char* what) {
    require(size <= left(), "byte {}: expected {} ({} bytes), the data ends after {}", position(), what, size,
            left());
    const auto result = bytes_.substr(at_, size);
    at_ += size;
    return result;
  }
  template <typename T>
  T number(const char* what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }
  /// The text up to the next newline; the cursor moves past the newline.
  std::string_view line(const char* what) {
    const size_t end = bytes_.find('\n', at_);
    require(end != std::string_view::npos, "byte {}: expected {} and a newline, the data ends", position(),
            what);
    const auto result = take(end - at_, what);
    ++at_;
    return result;
  }

 private:
  std::string_view bytes_;
  size_t base_;
  size_t at_ = 0;
};

}  // namespace tpgm
