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
#include <string>
#include <string_view>
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

/// Throws c10::Error: "[call] 'path': reason; advice". What is quoted from the file is cut to a sane length
/// and kept to one line.
[[noreturn]] void refuse(const char* call, const std::filesystem::path& path, const Malformed& malformed);

/// `text` for an error message: on one line, at most `limit` bytes.
std::string printable(std::string_view text, size_t limit = 120);

/// Throws Malformed unless `text`, found at byte `base` of its file, can be given to the JSON parser: it
/// begins with '{', has no NUL (to the parser the end of its input) and no string of more than 8 MiB (which
/// the parser holds more than once).
void check_json_text(std::string_view text, size_t base);

/// Keeps what is built from a file within the size of the file + 48 MiB, so that a few bytes cannot ask for
/// gigabytes. Parsers charge it before they allocate.
class MemoryBudget {
 public:
  explicit MemoryBudget(size_t file_size) : left_(file_size + (size_t{48} << 20)) {}
  void charge(size_t bytes) {
    require(bytes <= left_, "its description takes more memory than a file of this size may need");
    left_ -= bytes;
  }

 private:
  size_t left_;
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
