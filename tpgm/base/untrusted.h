// What the parsers of files share: one way to refuse, one limit on memory, one cursor that stays in bounds.
//
// A file may come from anybody. Parsers throw Malformed the moment something is not as it must be, and never
// allocate what a file merely claims to need.
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

/// Why a file is refused; whoever knows its path turns this into a c10::Error with refuse().
struct Malformed {
  std::string reason;
  std::string advice = "it is damaged or incomplete: fetch or save it again";
};

template <typename... Args>
void require(bool condition, fmt::format_string<Args...> reason, Args&&... args) {
  if (!condition) throw Malformed{fmt::format(reason, std::forward<Args>(args)...)};
}

/// Throws c10::Error: "'path': reason; advice". What is quoted from the file is cut to a sane length and kept
/// to one line.
[[noreturn]] void refuse(const std::filesystem::path& path, const Malformed& malformed);

inline constexpr size_t kMaxPath = 4096;  ///< bytes of a path in a message, as many as it may have

/// `text` for an error message: on one line, at most `limit` bytes. Whatever is no UTF-8, controls a terminal
/// or turns the direction of text becomes question marks.
std::string printable(std::string_view text, size_t limit = 120);

/// What Windows' editors put in front of a text is not part of it.
inline std::string_view without_byte_order_mark(std::string_view text) {
  return text.starts_with("\xef\xbb\xbf") ? text.substr(3) : text;
}

/// Throws Malformed unless `text`, found at byte `base` of its file, can be given to the JSON parser: it
/// begins with '{', has no NUL (to the parser the end of its input), no string of more than 4 MiB and no more
/// than 1 MiB of anything else at a stretch (which the parser holds, several times when it reports an error).
void check_json_text(std::string_view text, size_t base);

/// Keeps what is read and built from a file within the size of the file + 48 MiB, so that a few bytes cannot
/// ask for gigabytes. Parsers charge it before they allocate, and for the bytes of the file that they look
/// at.
class MemoryBudget {
 public:
  explicit MemoryBudget(size_t file_size) : left_(file_size + (size_t{48} << 20)) {}
  /// Another file belongs to the same checkpoint.
  void add_file(size_t file_size) { left_ += file_size; }
  void charge(size_t bytes) {
    require(bytes <= left_, "its description takes more memory than a file of this size may need");
    left_ -= bytes;
  }

 private:
  size_t left_;
};

/// Throws Malformed when the names in a file crowd into one bucket of a hash table. Only names that are made
/// for it do, and each would take as long to look up as all before it. To be told every name before it goes
/// into a table whose hash is std::hash.
class NameGuard {
 public:
  void add(std::string_view name) {
    constexpr size_t kMostInBucket = 100;  // of a million names at random, about 10
    const size_t hash = std::hash<std::string_view>()(name);
    hashes_.insert(hash);
    require(hashes_.bucket_size(hashes_.bucket(hash)) <= kMostInBucket,
            "its names are made to slow down whoever looks them up");
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
  /// Up to the next newline, which is read as well.
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
