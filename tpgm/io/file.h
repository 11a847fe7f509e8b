// Files: memory-mapped for reading, replaced atomically when written.
#pragma once

#include <c10/util/Exception.h>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tpgm {

/// A file could not be written: the disk is full or broken. rethrow_from() keeps its type.
struct WriteError : c10::Error {
  using c10::Error::Error;
};

/// Repeats a system call while signals interrupt it. Some file systems interrupt open() and fsync(), too.
template <typename Call>
auto uninterrupted(const Call& call) {
  for (;;) {
    const auto result = call();
    if (result != -1 || errno != EINTR) return result;
  }
}

/// " (the file takes 2.1 MB, and the disk has 64.0 kB free)" if the errno `error` says that the disk or the quota is
/// full, and else nothing. `needed`: bytes; 0 if there is no room for any other file.
std::string room_text(int error, const std::filesystem::path& file, size_t needed);

/// A regular file mapped into memory. Pages are read at their first access. Writing to them changes only this
/// mapping, never the file.
///
/// While it is mapped, the file may be deleted or replaced by a rename (as AtomicFile does), but must not be
/// truncated: an access to a missing page kills the process with SIGBUS.
class MappedFile {
 public:
  /// Throws if `path` cannot be opened or is not a regular file. An empty file has data() == nullptr.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  /// The first byte; aligned to a page.
  char* data() const noexcept { return data_; }
  size_t size() const noexcept { return size_; }
  std::string_view bytes() const noexcept { return {data_, size_}; }

 private:
  char* data_ = nullptr;
  size_t size_ = 0;
};

/// A file that appears complete or not at all. Until commit() it is an unnamed file, or one with a temporary
/// name in the folder of `path` if the file system has no unnamed files (O_TMPFILE). commit() replaces
/// `path`, whose old content is intact until then. Several objects, threads or processes may write the same
/// `path` at once, and the last commit wins.
///
/// The result has the permissions of a new file (0666 less the umask); a symbolic link at `path` is replaced,
/// not followed. A killed process leaves nothing behind, or a file ".tpgm-*.tmp" (is_leftover()). Bytes
/// that cannot be written are a WriteError.
class AtomicFile {
 public:
  /// Throws if the folder does not exist or is not writable, or if `path` is a folder.
  explicit AtomicFile(std::filesystem::path path);
  /// Removes the temporary file unless commit() succeeded.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Allocates this much space on the disk, so that a full disk is an error before the work and not after it.
  void reserve(size_t size);
  /// Appends `size` bytes. Throws if they cannot be written, for example on a full disk. Not thread-safe.
  void write(const void* data, size_t size);
  /// Writes `size` bytes at byte `offset`, and starts writing them to the disk. Thread-safe.
  void write_at(size_t offset, const void* data, size_t size);
  /// The part of commit() that may fail and that is not visible at `path`: waits until the bytes are on the
  /// disk, and gives them a temporary name. For several files that should appear together.
  void prepare();
  /// Calls prepare() if it was not called, renames to `path` and syncs the folder. The last call on this
  /// object.
  void commit();

 private:
  [[noreturn]] void fail(const char* what, bool replaced = false) const;
  template <typename Make>
  bool with_temporary_name(const Make& make);

  std::filesystem::path path_;
  std::filesystem::path folder_;
  size_t needed_ = 0;                // bytes, as far as they are known
  std::filesystem::path temporary_;  // empty while the file is unnamed
  bool prepared_ = false;
  int descriptor_ = -1;
};

/// The content of a file; no value if there is none, if it is not a regular file, or if it has more than 1 GiB. Throws
/// if it cannot be read.
std::optional<std::string> read_text(const std::filesystem::path& path);
/// Writes `text` to `path`, complete or not at all.
void write_file(const std::filesystem::path& path, std::string_view text);

/// Whether it is a temporary file of an AtomicFile whose process, of this machine, was killed.
bool is_leftover(const std::filesystem::path& file);
/// Removes those in the folder, and nothing else.
void remove_leftovers(const std::filesystem::path& folder);

/// Creates `folder` and its parents, and calls `write`. If that throws, removes the folder if it is new and
/// empty.
void with_folder(const std::filesystem::path& folder, const std::function<void()>& write);

}  // namespace tpgm
