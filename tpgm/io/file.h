// Files as the operating system sees them: mapped for reading, replaced as a whole when written.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace tpgm {

/// A regular file mapped into memory. Pages are read when first touched. They may be written to: the change
/// stays in this mapping and never reaches the file.
///
/// While it is mapped the file may be deleted or replaced by a rename (what AtomicFile does), but must not be
/// shortened in place: touching a page that is gone kills the process with SIGBUS.
class MappedFile {
 public:
  /// Throws when `path` cannot be opened or is not a regular file. An empty file has data() == nullptr.
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

/// A file that appears complete or not at all. Its bytes have no name, or a temporary one in the folder of
/// `path` where the file system knows no nameless files; commit() puts them in the place of `path`, whose old
/// content is intact until then. Several objects, threads or processes may write the same `path` at once, and
/// the last commit wins.
///
/// The result has the permissions of a new file (0666 less the umask); a symbolic link at `path` is replaced,
/// not followed. A process that is killed leaves nothing behind, or a file named ".tpgm-*.tmp" where the
/// bytes had a name.
class AtomicFile {
 public:
  /// Throws when the folder does not exist or cannot be written to, or when `path` is a folder.
  explicit AtomicFile(std::filesystem::path path);
  /// Removes the temporary file unless commit() succeeded.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Takes this much space on the disk now, so that a disk too small is known before the work is done.
  void reserve(size_t size);
  /// Appends `size` bytes. Throws when the disk is full and the like. Not thread-safe.
  void write(const void* data, size_t size);
  /// Writes `size` bytes from byte `offset` on, and has the disk begin with them. Thread-safe.
  void write_at(size_t offset, const void* data, size_t size);
  /// Does all of commit() that is likely to fail and that nobody sees: waits until the bytes are on the disk,
  /// and names them. For several files that should appear together.
  void prepare();
  /// Prepares, unless that is done; renames to `path`, syncs the folder. The last call on this object.
  void commit();

 private:
  [[noreturn]] void fail(const char* what) const;
  template <typename Make>
  bool with_temporary_name(const Make& make);

  std::filesystem::path path_;
  std::filesystem::path folder_;
  std::filesystem::path temporary_;  // empty while the bytes have no name
  bool prepared_ = false;
  int descriptor_ = -1;
};

/// All of a file; nothing of one that cannot be read.
std::optional<std::string> read_text(const std::filesystem::path& path);
/// Writes `text` to `path`, complete or not at all.
void write_file(const std::filesystem::path& path, std::string_view text);

/// Makes a folder for what `write` then writes, and those above it; takes it away again if that throws and it
/// is new and empty.
void with_folder(const std::filesystem::path& folder, const std::function<void()>& write);

}  // namespace tpgm
