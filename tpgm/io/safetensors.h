// The safetensors format: read without copying, once every rule is checked; written as a stream.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <torch/ordered_dict.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tpgm/io/file.h"
#include "tpgm/io/state_dict.h"

namespace tpgm {

/// What the header of a file says of one tensor.
struct SafetensorsEntry {
  at::ScalarType dtype;
  std::vector<int64_t> shape;
  size_t offset;  ///< of its first byte, from the beginning of the file
  size_t size;    ///< in bytes
};

/// A safetensors file, opened and checked. Cheap to open (only the header is read) and cheap to copy (copies
/// share the mapping). Dtypes: BOOL, U8..U64, I8..I64, F16, BF16, F32, F64, C64 and the five 8-bit floats;
/// the packed F4 and F6 types are refused.
class SafetensorsFile {
 public:
  /// Maps `path` and checks the whole header; throws c10::Error naming the file, the tensor and the broken
  /// rule when anything is wrong with it, so that what an existing object hands out lies within the file.
  /// Refused, beyond what the reference implementation refuses: duplicate names, a shape whose product
  /// overflows although one size is 0, and BOOL bytes other than 0 and 1.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const noexcept { return path_; }
  /// `__metadata__`; empty when the file has none.
  const std::map<std::string, std::string>& metadata() const noexcept { return metadata_; }
  /// By name, in the order of the data.
  const torch::OrderedDict<std::string, SafetensorsEntry>& entries() const noexcept { return entries_; }

  /// A contiguous CPU tensor over the mapping, which it keeps alive. Writing to it changes what every tensor
  /// of this name from this object shows, never the file. A tensor whose bytes are not aligned to its dtype
  /// (only in files whose writer did not pad) is a fresh copy instead. Throws when there is no such name.
  at::Tensor tensor(const std::string& name) const;
  /// All tensors, in the order of entries().
  StateDict tensors() const;

 private:
  void parse();

  std::filesystem::path path_;
  std::shared_ptr<const MappedFile> file_;
  std::map<std::string, std::string> metadata_;
  torch::OrderedDict<std::string, SafetensorsEntry> entries_{"Tensor"};
};

/// Writes `tensors` to `path`, which appears complete or not at all: on failure an earlier file of this name
/// is intact and nothing is left behind. Memory stays at one tensor's worth, and only for those that are not
/// contiguous CPU tensors already. Tensors that share storage are each written whole.
///
/// The bytes depend on names, values and metadata alone, not on the order of `tensors`: wider dtypes come
/// first, then names in byte order, as in the reference implementation, so that all data is aligned.
///
/// Throws, naming the tensor, on what the format cannot hold: undefined, sparse, quantized, nested and meta
/// tensors, other dtypes, names that are not UTF-8, and the name `__metadata__`.
void save_safetensors(const StateDict& tensors, const std::filesystem::path& path,
                      const std::map<std::string, std::string>& metadata = {});

}  // namespace tpgm
