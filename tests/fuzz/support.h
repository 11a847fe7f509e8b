// What the fuzz targets share: which outcomes are allowed, and what a parser owes for every entry it hands
// out.
#pragma once

#include <c10/util/Exception.h>
#include <sanitizer/allocator_interface.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "tpgm/base/untrusted.h"
#include "tpgm/io/mapped_tensor.h"

namespace tpgm::fuzz {

/// libFuzzer keeps the input of a run that aborts.
inline void demand(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

/// Aborts the run that holds more memory at once than a parser may: 64 MiB and the size of its file.
class MemoryLimit {
 public:
  explicit MemoryLimit(size_t file_size) {
    static const int installed = __sanitizer_install_malloc_and_free_hooks(allocated, freed);
    demand(installed > 0, "the allocator can be watched");
    limit_ = static_cast<int64_t>(file_size) + (int64_t{64} << 20);
    held_ = 0;
    watching_ = true;
  }
  ~MemoryLimit() { watching_ = false; }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

 private:
  static void allocated(const volatile void*, size_t size) {
    if (!watching_) return;
    const int64_t held = held_ += static_cast<int64_t>(size);
    if (held <= limit_) return;
    watching_ = false;  // what reports this allocates as well
    demand(false, "at most 64 MiB and the size of the file are allocated");
  }
  static void freed(const volatile void* pointer) {
    if (watching_) {
      held_ -= static_cast<int64_t>(__sanitizer_get_allocated_size(const_cast<const void*>(pointer)));
    }
  }

  static inline std::atomic<bool> watching_ = false;
  static inline std::atomic<int64_t> held_ = 0, limit_ = 0;
};

/// Runs `parse`, whose input is to be refused with Malformed or not at all. libFuzzer reports every other
/// exception. A refusal is put into words as for a user.
template <typename Parse>
void parse_or_refuse(size_t file_size, const Parse& parse) {
  const MemoryLimit limit(file_size);
  try {
    parse();
  } catch (const Malformed& malformed) {
    demand(!malformed.reason.empty() && !malformed.advice.empty(), "a refusal has a reason and advice");
    demand(printable(malformed.reason, 600).size() <= 603, "a refusal has a sane length");  // 600 and "…"
  }
}

/// A file with these bytes, mapped; there is one at a time.
inline std::shared_ptr<const MappedFile> mapped(std::string_view bytes) {
  static const int descriptor = ::memfd_create("fuzz", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  demand(descriptor >= 0 && ::ftruncate(descriptor, 0) == 0 &&
             ::pwrite(descriptor, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
         "the input can be put into a file");
  return std::make_shared<MappedFile>(path);
}

/// What mapped_tensor.h promises of an entry.
inline void check_entry(const TensorEntry& entry, size_t file_size) {
  demand(entry.offset <= file_size && entry.size <= file_size - entry.offset,
         "an entry lies within its file");
  demand(std::all_of(entry.shape.begin(), entry.shape.end(), [](int64_t extent) { return extent >= 0; }),
         "no size is negative");
  const auto element = static_cast<int64_t>(c10::elementSize(entry.dtype));
  demand(bytes_of_shape(entry.shape, entry.dtype) >= element, "a shape takes at least one element");
  if (entry.strides.empty()) {
    demand(entry.size == entry.nbytes(), "a contiguous entry has as many bytes as its shape takes");
    return;
  }
  demand(entry.strides.size() == entry.shape.size(), "there are as many strides as sizes");
  demand(entry.numel() > 0, "an entry without elements has no strides");
  __int128 last = 0;
  for (size_t d = 0; d < entry.shape.size(); ++d) {
    demand(entry.strides[d] >= 0, "no stride is negative");
    last += static_cast<__int128>(entry.shape[d] - 1) * entry.strides[d];
  }
  demand((last + 1) * element == static_cast<__int128>(entry.size), "an entry ends with its last element");
}

/// Reads it as tensor_at and slice_at do. Where elements are repeated a tensor can be large: then only its
/// ends are read.
inline void read_entry(const std::shared_ptr<const MappedFile>& file, const TensorEntry& entry) {
  constexpr int64_t kEnds = 1024;
  constexpr size_t kWhole = size_t{1} << 20;
  const int64_t numel = entry.numel(), some = std::min(numel, kEnds);
  try {
    const auto front = slice_at(file, entry, 0, some), back = slice_at(file, entry, numel - some, some);
    demand(front.numel() == some && back.numel() == some && front.is_contiguous(), "a slice has its size");
    if (entry.nbytes() > kWhole) return;
    const auto tensor = tensor_at(file, entry);
    demand(tensor.sizes() == at::IntArrayRef(entry.shape) && tensor.scalar_type() == entry.dtype,
           "a tensor is as its entry says");
    const auto whole = slice_at(file, entry, 0, numel), dense = tensor.contiguous();
    demand(numel == 0 || std::memcmp(whole.const_data_ptr(), dense.const_data_ptr(), entry.nbytes()) == 0,
           "a slice of everything has the tensor's values");
  } catch (const Malformed&) {
    demand(entry.dtype == at::kBool, "only a bool is refused when it is read");
  }
}

/// Checks and reads all tensors of a torch::OrderedDict<std::string, TensorEntry>.
template <typename Entries>
void check_entries(const Entries& entries, std::string_view file) {
  const auto map = mapped(file);
  for (const auto& item : entries) {
    check_entry(item.value(), file.size());
    read_entry(map, item.value());
  }
}

}  // namespace tpgm::fuzz

/// FUZZ(bytes) { ... }: what to do with one input.
#define FUZZ(bytes)                                                         \
  static void fuzz_one(std::string_view bytes);                             \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) { \
    fuzz_one(std::string_view(reinterpret_cast<const char*>(data), size));  \
    return 0;                                                               \
  }                                                                         \
  static void fuzz_one(std::string_view bytes)
