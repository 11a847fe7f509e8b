// Mapping and atomic replacement of files, on POSIX.
#include "tpgm/io/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include "tpgm/base/hash.h"
#include "tpgm/base/numbers.h"
#include "tpgm/base/untrusted.h"

namespace tpgm {
namespace {

namespace fs = std::filesystem;

const std::string kDescriptors = "/proc/self/fd/";

// A short hash of the host's name: a process id means nothing on another one, which may share the disk.
uint32_t this_machine() {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  return static_cast<uint32_t>(fnv1a(host));
}

std::string error_text(int error) { return std::generic_category().message(error); }

}  // namespace

std::string room_text(int error, const fs::path& file, size_t needed) {
  if (error != ENOSPC && error != EDQUOT) return "";
  const std::string takes =
      needed > 0 ? "the file takes " + bytes_text(needed) : "there is no room for another file";
  if (error == EDQUOT)
    return needed > 0 ? fmt::format(" ({}, and the quota leaves less free)", takes)
                      : " (the quota is used up)";
  std::error_code failed;
  const auto space = fs::space(file.has_parent_path() ? file.parent_path() : ".", failed);
  return failed ? fmt::format(" ({})", takes)
                : fmt::format(" ({}, and the disk has {} free)", takes, bytes_text(space.available));
}

MappedFile::MappedFile(const std::filesystem::path& path) {
  const std::string shown = printable(path.string(), kMaxPath);
  // O_NONBLOCK, because opening a pipe without a writer would block.
  const int descriptor =
      uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); });
  TORCH_CHECK(descriptor >= 0, "[MappedFile] cannot open '", shown, "': ", error_text(errno));
  struct stat status {};
  const bool regular = ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  int error = 0;
  if (regular && status.st_size > 0) {
    size_ = static_cast<size_t>(status.st_size);
    // Writable but private. No swap is reserved, because pages are hardly ever written to.
    void* map = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, descriptor, 0);
    error = map == MAP_FAILED ? errno : 0;
    data_ = map == MAP_FAILED ? nullptr : static_cast<char*>(map);
  }
  ::close(descriptor);
  TORCH_CHECK(regular, "[MappedFile] '", shown, "' is not a regular file; name one that is");
  TORCH_CHECK(error == 0, "[MappedFile] cannot map '", shown, "': ", error_text(error));
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

AtomicFile::AtomicFile(std::filesystem::path path) : path_(std::move(path)), folder_(path_.parent_path()) {
  TORCH_CHECK(path_.has_filename(), "[AtomicFile] '", path_.string(), "' names no file to write; append one");
  if (folder_.empty()) folder_ = ".";
  std::error_code ignored;
  TORCH_CHECK(!std::filesystem::is_directory(path_, ignored), "[AtomicFile] cannot write '", path_.string(),
              "': it is a folder; name a file");
  // A file without a name can be given one only through /proc.
  if (::access(kDescriptors.c_str(), X_OK) == 0) {
    descriptor_ =
        uninterrupted([&] { return ::open(folder_.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666); });
  }
  if (descriptor_ < 0) {
    with_temporary_name([&](const char* name) {
      descriptor_ =
          uninterrupted([&] { return ::open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666); });
      return descriptor_ >= 0;
    });
  }
  if (descriptor_ < 0 && (errno == ENOSPC || errno == EDQUOT)) fail("write");
  TORCH_CHECK(descriptor_ >= 0, "[AtomicFile] cannot write '", path_.string(), "': ", error_text(errno),
              "; is '", folder_.string(), "' a folder you may write to?");
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

// Sets temporary_ to a name that make() could create a file under; false, with errno, if it could not.
template <typename Make>
bool AtomicFile::with_temporary_name(const Make& make) {
  static std::atomic<unsigned> counter{0};
  for (;;) {  // the name may exist, from a killed process with our id
    const auto name = folder_ / fmt::format(".tpgm-{:08x}-{}-{}.tmp", this_machine(), ::getpid(), counter++);
    if (make(name.c_str())) return temporary_ = name, true;
    if (errno != EEXIST) return false;
  }
}

void AtomicFile::reserve(size_t size) {
  needed_ = std::max(needed_, size);
  if (size == 0) return;
  const int result = uninterrupted([&] { return ::fallocate(descriptor_, 0, 0, static_cast<off_t>(size)); });
  if (result != 0 && errno != EOPNOTSUPP && errno != ENOSYS) fail("write");
}

void AtomicFile::write(const void* data, size_t size) {
  const auto* bytes = static_cast<const char*>(data);
  needed_ = std::max(needed_, static_cast<size_t>(::lseek(descriptor_, 0, SEEK_CUR)) + size);
  while (size > 0) {
    const ssize_t written = ::write(descriptor_, bytes, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write");
    bytes += written;
    size -= static_cast<size_t>(written);
  }
}

void AtomicFile::write_at(size_t offset, const void* data, size_t size) {
  if (size == 0) return;
  const auto* bytes = static_cast<const char*>(data);
  const size_t begin = offset;
  while (offset < begin + size) {
    const ssize_t written =
        ::pwrite(descriptor_, bytes + (offset - begin), begin + size - offset, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write");
    offset += static_cast<size_t>(written);
  }
  // Without this hint the kernel starts writing only when gigabytes are dirty or at the sync. Its errors come
  // back from the sync.
  ::sync_file_range(descriptor_, static_cast<off_t>(begin), static_cast<off_t>(size), SYNC_FILE_RANGE_WRITE);
}

void AtomicFile::prepare() {
  if (prepared_) return;
  if (uninterrupted([&] { return ::fsync(descriptor_); }) != 0) fail("sync");
  if (temporary_.empty()) {
    const std::string nameless = kDescriptors + std::to_string(descriptor_);
    if (!with_temporary_name([&](const char* name) {
          return ::linkat(AT_FDCWD, nameless.c_str(), AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0;
        })) {
      fail("name");
    }
  }
  // An interrupted close() has closed it.
  if (::close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR) fail("close");
  prepared_ = true;
}

void AtomicFile::commit() {
  prepare();
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("replace");
  temporary_.clear();
  // This makes the new name durable. Errors are ignored: some file systems cannot sync a folder, some folders
  // may be written but not opened, and the file is complete in any case.
  const int folder =
      uninterrupted([&] { return ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (folder < 0) return;
  const int error = uninterrupted([&] { return ::fsync(folder); }) == 0 ? 0 : errno;
  ::close(folder);
  errno = error;
  if (error != 0 && error != EINVAL && error != ENOTSUP) fail("sync the folder of", /*replaced=*/true);
}

void AtomicFile::fail(const char* what, bool replaced) const {
  const int number = errno;
  std::error_code error;
  const char* left = replaced                   ? "the file is there and intact"
                     : fs::exists(path_, error) ? "the file that was there is intact"
                                                : "no part of it was left behind";
  const std::string text = fmt::format("cannot {} '{}': {}{}; {}", what, path_.string(), error_text(number),
                                       room_text(number, path_, needed_), left);
  throw WriteError("[AtomicFile] " + text);
}

void write_file(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

std::optional<std::string> read_text(const fs::path& path) {
  // A pipe would block, and a device or a huge file would not end.
  constexpr uintmax_t kLargest = uintmax_t{1} << 30;
  std::error_code error;
  if (!fs::is_regular_file(path, error) || fs::file_size(path, error) > kLargest || error)
    return std::nullopt;
  const int descriptor =
      uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); });
  if (descriptor < 0 && errno == ENOENT) return std::nullopt;
  std::string text;
  ssize_t count = descriptor < 0 ? -1 : 1;
  for (std::string part(size_t{1} << 16, '\0'); count > 0; text.append(part, 0, std::max<ssize_t>(count, 0)))
    count = uninterrupted([&] { return ::read(descriptor, part.data(), part.size()); });
  const int reason = errno;
  if (descriptor >= 0) ::close(descriptor);
  TORCH_CHECK(count == 0, "[read_text] cannot read '", printable(path.string(), kMaxPath),
              "': ", error_text(reason));
  return text;
}

bool is_leftover(const fs::path& file) {
  const std::string name = file.filename().string();
  int process = 0, end = 0;
  unsigned machine = 0, number = 0;
  const bool ours =
      std::sscanf(name.c_str(), ".tpgm-%8x-%d-%u.tmp%n", &machine, &process, &number, &end) == 3 &&
      end == static_cast<int>(name.size()) && process > 0 && machine == this_machine();
  std::error_code error;
  return ours && fs::is_regular_file(fs::symlink_status(file, error)) && ::kill(process, 0) != 0 &&
         errno == ESRCH;
}

void remove_leftovers(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> files;
  for (fs::directory_iterator at(folder, error); !error && at != fs::directory_iterator();
       at.increment(error)) {
    if (is_leftover(at->path())) files.push_back(at->path());
  }
  for (const auto& file : files) fs::remove(file, error);
}

void with_folder(const fs::path& folder, const std::function<void()>& write) {
  std::error_code error;
  const bool fresh = fs::create_directories(folder, error);
  TORCH_CHECK(!error, "cannot make the folder '", folder.string(), "': ", error.message());
  try {
    write();
  } catch (...) {
    if (fresh) fs::remove(folder.has_filename() ? folder : folder.parent_path(), error);
    throw;
  }
}

}  // namespace tpgm
