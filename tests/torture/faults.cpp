// A library for LD_PRELOAD that counts the calls by which a program uses files, and spoils some of them.
//
//   TPGM_FAULT_FOLDER   only calls count that use files below this folder
//   TPGM_FAULT_COUNTS   a file of 4096 bytes for the counts, which the program and its children share
//   TPGM_FAULT          what to spoil: KIND:N:WHAT, or KIND:N+:WHAT from the N-th call on; several with commas
//
// A kind is a name of kKinds. WHAT is the name of an error (`ENOSPC`), `short` (half of the bytes are read or
// written), or `before` or `after` (the process kills itself before or after the call).
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>

namespace {

// `create` opens a file for writing, `unnamed` creates one without a name, `list` opens or reads a folder. `change`
// stands for all kinds from `create` to `mkdir`, which change files.
enum Kind {
  kCreate,
  kUnnamed,
  kWrite,
  kPwrite,
  kSync,
  kLink,
  kRename,
  kAllocate,
  kTruncate,
  kUnlink,
  kMkdir,
  kOpen,
  kRead,
  kList,
  kMap,
  kClose,
  kChange,
  kKindCount
};
constexpr const char* kKinds[kKindCount] = {"create", "unnamed",  "write",    "pwrite", "fsync", "link",
                                            "rename", "allocate", "truncate", "unlink", "mkdir", "open",
                                            "read",   "list",     "mmap",     "close",  "change"};
constexpr struct {
  const char* name;
  int number;
} kErrors[] = {{"EIO", EIO},       {"ENOSPC", ENOSPC}, {"EMFILE", EMFILE},         {"EINTR", EINTR},
               {"EDQUOT", EDQUOT}, {"ENOMEM", ENOMEM}, {"EOPNOTSUPP", EOPNOTSUPP}, {"EROFS", EROFS}};

enum Fate { kNothing = 0, kShort = -1, kBefore = -2, kAfter = -3 };  // or a number of an error

struct Fault {
  int kind;
  long at;
  bool onwards;
  int fate;
};

constexpr int kMostFaults = 8;
Fault faults[kMostFaults];
int fault_count = 0;
char folder[4096];
size_t folder_size = 0;
std::atomic<long>* counts = nullptr;  // by kind, then of the spoiled calls

[[noreturn]] void refuse(const char* text) {
  syscall(SYS_write, 2, text, strlen(text));
  _exit(99);
}

int fate_named(const char* name) {
  if (strcmp(name, "short") == 0) return kShort;
  if (strcmp(name, "before") == 0) return kBefore;
  if (strcmp(name, "after") == 0) return kAfter;
  for (const auto& error : kErrors) {
    if (strcmp(name, error.name) == 0) return error.number;
  }
  return kNothing;
}

void parse(const char* text) {
  for (; *text != '\0'; text += strcspn(text, ","), text += *text == ',') {
    char kind[16], at[24], what[16];
    if (fault_count == kMostFaults || sscanf(text, "%15[a-z]:%23[0-9+]:%15[A-Za-z]", kind, at, what) != 3)
      refuse("TPGM_FAULT: expected KIND:N:WHAT\n");
    Fault& fault = faults[fault_count++];
    fault = {0, atol(at), strchr(at, '+') != nullptr, fate_named(what)};
    while (fault.kind < kKindCount && strcmp(kKinds[fault.kind], kind) != 0) ++fault.kind;
    if (fault.kind == kKindCount || fault.at < 1 || fault.fate == kNothing) refuse("TPGM_FAULT: not known\n");
  }
}

__attribute__((constructor)) void begin() {
  const char *place = getenv("TPGM_FAULT_FOLDER"), *shared = getenv("TPGM_FAULT_COUNTS");
  if (place == nullptr || shared == nullptr || strlen(place) >= sizeof folder) return;
  const int file = static_cast<int>(syscall(SYS_openat, AT_FDCWD, shared, O_RDWR | O_CLOEXEC));
  const long map =
      file < 0 ? -1 : syscall(SYS_mmap, nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (map == -1) refuse("TPGM_FAULT_COUNTS cannot be mapped\n");
  syscall(SYS_close, file);
  if (const char* text = getenv("TPGM_FAULT")) parse(text);
  folder_size = strlen(strcpy(folder, place));
  counts = reinterpret_cast<std::atomic<long>*>(map);
}

bool is_below(const char* path) {
  return strncmp(path, folder, folder_size) == 0 && (path[folder_size] == '/' || path[folder_size] == '\0');
}

bool counted(int descriptor) {
  if (counts == nullptr || descriptor < 0) return false;
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const long size = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
  path[size < 0 ? 0 : size] = '\0';
  return is_below(path);
}

bool counted(const char* path, int at = AT_FDCWD) {
  if (counts == nullptr || path == nullptr) return false;
  if (path[0] == '/') return is_below(path);
  if (at != AT_FDCWD) return counted(at);
  char here[4096];
  return syscall(SYS_getcwd, here, sizeof here) > 0 && is_below(here);
}

[[noreturn]] void die() {
  syscall(SYS_kill, getpid(), SIGKILL);
  for (;;) pause();
}

// What becomes of a call, which is counted. Does not return if it kills before the call.
int fate_of(int kind) {
  const long number = ++counts[kind], change = kind <= kMkdir ? ++counts[kChange] : 0;
  for (int i = 0; i < fault_count; ++i) {
    const Fault& fault = faults[i];
    const long mine = fault.kind == kind ? number : fault.kind == kChange ? change : 0;
    if (mine < fault.at || (mine > fault.at && !fault.onwards)) continue;
    ++counts[kKindCount];
    if (fault.fate == kBefore) die();
    return fault.fate;
  }
  return kNothing;
}

// The function that one of this library hides.
template <typename Result, typename... Args>
auto hidden(const char* name, Result (*)(Args...)) {
  return reinterpret_cast<Result (*)(Args...)>(dlsym(RTLD_NEXT, name));
}

template <typename Result>
Result failed(int error) {
  errno = error;
  if constexpr (std::is_same_v<Result, void*>)
    return MAP_FAILED;
  else if constexpr (std::is_pointer_v<Result>)
    return nullptr;
  else
    return -1;
}

// Calls `real`, unless the call is counted and to fail.
template <typename Result, typename... Params, typename... Args>
Result spoil(int kind, bool counts_it, Result (*real)(Params...), Args... args) {
  const int fate = counts_it ? fate_of(kind) : kNothing;
  if (fate > 0) return failed<Result>(fate);
  const Result result = real(args...);
  if (fate == kAfter) die();
  return result;
}

// The same for bytes that are read or written.
template <typename Data, typename... Params, typename... Offset>
ssize_t transfer(int kind, ssize_t (*real)(Params...), int file, Data* data, size_t size, Offset... offset) {
  const int fate = counted(file) ? fate_of(kind) : kNothing;
  if (fate > 0) return failed<ssize_t>(fate);
  const ssize_t done = real(file, data, fate == kShort && size > 1 ? size / 2 : size, offset...);
  if (fate == kAfter) die();
  return done;
}

int kind_of_open(int flags) {
  if ((flags & O_TMPFILE) == O_TMPFILE) return kUnnamed;
  if ((flags & O_DIRECTORY) != 0) return kList;
  return (flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC)) != 0 ? kCreate : kOpen;
}
int kind_of_open(const char* mode) { return strpbrk(mode, "wa+") != nullptr ? kCreate : kOpen; }

}  // namespace

// Defines the function that programs call by `name`. The headers' own declaration, which may say `noexcept`, is not
// in its way. `real` is the function that it hides.
#define SHIM(result, name, parameters, body)                                                      \
  extern "C" __attribute__((visibility("default"))) result shim_##name parameters __asm__(#name); \
  result shim_##name parameters {                                                                 \
    static const auto real = hidden(#name, &shim_##name);                                         \
    return body;                                                                                  \
  }

// `mode` is garbage where the caller gives none, and not used there.
#define SHIM_OPEN(name)                                       \
  SHIM(int, name, (const char* path, int flags, mode_t mode), \
       spoil(kind_of_open(flags), counted(path), real, path, flags, mode))
#define SHIM_OPENAT(name)                                             \
  SHIM(int, name, (int at, const char* path, int flags, mode_t mode), \
       spoil(kind_of_open(flags), counted(path, at), real, at, path, flags, mode))
SHIM_OPEN(open)
SHIM_OPEN(open64)
SHIM_OPEN(__open_2)
SHIM_OPEN(__open64_2)
SHIM_OPENAT(openat)
SHIM_OPENAT(openat64)
SHIM_OPENAT(__openat_2)
SHIM_OPENAT(__openat64_2)
SHIM(FILE*, fopen, (const char* path, const char* mode),
     spoil(kind_of_open(mode), counted(path), real, path, mode))
SHIM(FILE*, fopen64, (const char* path, const char* mode),
     spoil(kind_of_open(mode), counted(path), real, path, mode))
SHIM(int, creat, (const char* path, mode_t mode), spoil(kCreate, counted(path), real, path, mode))

SHIM(ssize_t, read, (int file, void* data, size_t size), transfer(kRead, real, file, data, size))
SHIM(ssize_t, pread, (int file, void* data, size_t size, off_t at),
     transfer(kRead, real, file, data, size, at))
SHIM(ssize_t, pread64, (int file, void* data, size_t size, off_t at),
     transfer(kRead, real, file, data, size, at))
SHIM(ssize_t, __read_chk, (int file, void* data, size_t size, size_t room),
     transfer(kRead, real, file, data, size, room))
SHIM(ssize_t, __pread_chk, (int file, void* data, size_t size, off_t at, size_t room),
     transfer(kRead, real, file, data, size, at, room))
SHIM(ssize_t, __pread64_chk, (int file, void* data, size_t size, off_t at, size_t room),
     transfer(kRead, real, file, data, size, at, room))
SHIM(ssize_t, write, (int file, const void* data, size_t size), transfer(kWrite, real, file, data, size))
SHIM(ssize_t, writev, (int file, const iovec* parts, int count), transfer(kWrite, real, file, parts, count))
SHIM(ssize_t, pwrite, (int file, const void* data, size_t size, off_t at),
     transfer(kPwrite, real, file, data, size, at))
SHIM(ssize_t, pwrite64, (int file, const void* data, size_t size, off_t at),
     transfer(kPwrite, real, file, data, size, at))

SHIM(int, fsync, (int file), spoil(kSync, counted(file), real, file))
SHIM(int, fdatasync, (int file), spoil(kSync, counted(file), real, file))
SHIM(int, fallocate, (int file, int mode, off_t at, off_t size),
     spoil(kAllocate, counted(file), real, file, mode, at, size))
SHIM(int, fallocate64, (int file, int mode, off_t at, off_t size),
     spoil(kAllocate, counted(file), real, file, mode, at, size))
SHIM(int, ftruncate, (int file, off_t size), spoil(kTruncate, counted(file), real, file, size))
SHIM(int, ftruncate64, (int file, off_t size), spoil(kTruncate, counted(file), real, file, size))
SHIM(int, truncate, (const char* path, off_t size), spoil(kTruncate, counted(path), real, path, size))
SHIM(int, truncate64, (const char* path, off_t size), spoil(kTruncate, counted(path), real, path, size))

SHIM(int, linkat, (int from, const char* old, int to, const char* path, int flags),
     spoil(kLink, counted(path, to), real, from, old, to, path, flags))
SHIM(int, link, (const char* old, const char* path), spoil(kLink, counted(path), real, old, path))
SHIM(int, symlink, (const char* old, const char* path), spoil(kLink, counted(path), real, old, path))
SHIM(int, rename, (const char* old, const char* path), spoil(kRename, counted(path), real, old, path))
SHIM(int, renameat, (int from, const char* old, int to, const char* path),
     spoil(kRename, counted(path, to), real, from, old, to, path))
SHIM(int, renameat2, (int from, const char* old, int to, const char* path, unsigned flags),
     spoil(kRename, counted(path, to), real, from, old, to, path, flags))
SHIM(int, unlink, (const char* path), spoil(kUnlink, counted(path), real, path))
SHIM(int, remove, (const char* path), spoil(kUnlink, counted(path), real, path))
SHIM(int, rmdir, (const char* path), spoil(kUnlink, counted(path), real, path))
SHIM(int, unlinkat, (int at, const char* path, int flags),
     spoil(kUnlink, counted(path, at), real, at, path, flags))
SHIM(int, mkdir, (const char* path, mode_t mode), spoil(kMkdir, counted(path), real, path, mode))
SHIM(int, mkdirat, (int at, const char* path, mode_t mode),
     spoil(kMkdir, counted(path, at), real, at, path, mode))

SHIM(void*, mmap, (void* to, size_t size, int access, int flags, int file, off_t at),
     spoil(kMap, counted(file), real, to, size, access, flags, file, at))
SHIM(void*, mmap64, (void* to, size_t size, int access, int flags, int file, off_t at),
     spoil(kMap, counted(file), real, to, size, access, flags, file, at))
SHIM(DIR*, opendir, (const char* path), spoil(kList, counted(path), real, path))
SHIM(dirent*, readdir, (DIR * list), spoil(kList, counted(dirfd(list)), real, list))
SHIM(dirent64*, readdir64, (DIR * list), spoil(kList, counted(dirfd(list)), real, list))

// As on Linux, the descriptor is closed even if the call fails.
static int close_and_fail(int file, int (*real)(int)) {
  const int fate = counted(file) ? fate_of(kClose) : kNothing;
  const int result = real(file);
  if (fate == kAfter) die();
  return fate > 0 ? failed<int>(fate) : result;
}
SHIM(int, close, (int file), close_and_fail(file, real))
