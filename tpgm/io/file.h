// Files as the operating system sees them: mapped for reading, replaced as a whole when written.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace tpgm {

/// A regular file mapped into memory. Pages are read when first touched. They may be written to: the change
/// stays in this mapping and never reaches the file.
///
/// While it is mapped the file may be deleted or replaced by a rename (what AtomicFile does), but must not be
/// shortened in place: touching a page that is gone kills the process with SIGBUS.
///
/// In both classes `call` is the function an error message blames: "[call] cannot ...".
class MappedFile {
 public:
  /// Throws when `path` cannot be opened or is not a regular file. An empty file has data() == nullptr.
  MappedFile(const std::filesystem::path& path, const std::string& call);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  /// The first byte; aligned to a page.
  char* data() const noexcept { return data_; }
  size_t size() const noexcept { return size_; }

 private:
  char* data_ = nullptr;
  size_t size_ = 0;
};

/// A file that appears complete or not at all. Bytes go to a temporary name in the folder of `path`; commit()
/// puts them in the place of `path`, whose old content is intact until then. Not thread-safe; several
/// objects, threads or processes may write the same `path` at once, and the last commit wins.
///
/// The result has the permissions of a new file (0666 less the umask); a symbolic link at `path` is replaced,
/// not followed. A process that is killed leaves a file named ".tpgm-*.tmp" behind.
class AtomicFile {
 public:
  /// Throws when the folder does not exist or cannot be written to.
  AtomicFile(std::filesystem::path path, std::string call);
  /// Removes the temporary file unless commit() succeeded.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends `size` bytes. Throws when the disk is full and the like.
  void write(const void* data, size_t size);
  /// Syncs the bytes to the disk, renames them to `path`, syncs the folder. The last call on this object.
  void commit();

 private:
  [[noreturn]] void fail(const char* what) const;

  std::filesystem::path path_;
  std::filesystem::path folder_;
  std::filesystem::path temporary_;
  std::string call_;
  int descriptor_ = -1;
};

}  // namespace tpgm
