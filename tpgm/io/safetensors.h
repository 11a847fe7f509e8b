// The safetensors format: read without copying, once every rule is checked.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/ordered_dict.h>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "tpgm/io/file.h"
#include "tpgm/io/safetensors_writer.h"
#include "tpgm/io/state_dict.h"
#include "tpgm/io/tensor_entry.h"

namespace tpgm {

class MemoryBudget;

/// What a file says of itself.
struct SafetensorsHeader {
  Metadata metadata;                                               ///< `__metadata__`
  torch::OrderedDict<std::string, TensorEntry> entries{"Tensor"};  ///< in the order of the data
};

/// Reads the header, and of the data only BOOLs. Throws Malformed naming the tensor and the broken rule when
/// anything is wrong, so that every entry lies within the file. Refused, beyond what the reference
/// implementation refuses: duplicate names, a shape whose product overflows although one size is 0, BOOL
/// bytes other than 0 and 1.
SafetensorsHeader parse_safetensors(std::string_view file);
/// The same, within a budget that other files of the checkpoint use as well.
SafetensorsHeader parse_safetensors(std::string_view file, MemoryBudget& budget);

/// A safetensors file, opened and checked. Cheap to open and to copy (copies share the mapping). Dtypes:
/// BOOL, U8..U64, I8..I64, F16, BF16, F32, F64, C64 and the five 8-bit floats; the packed F4 and F6 types are
/// refused.
class SafetensorsFile {
 public:
  /// Throws c10::Error with the file, the tensor and the broken rule; see parse_safetensors.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const noexcept { return path_; }
  /// `__metadata__`; empty when the file has none.
  const Metadata& metadata() const noexcept { return header_.metadata; }
  /// By name, in the order of the data.
  const torch::OrderedDict<std::string, TensorEntry>& entries() const noexcept { return header_.entries; }

  /// A contiguous CPU tensor over the mapping, which it keeps alive. Writing to it changes what every tensor
  /// of this name from this object shows, never the file. A tensor whose bytes are not aligned to its dtype
  /// (only in files whose writer did not pad) is a fresh copy instead. Throws when there is no such name.
  at::Tensor tensor(const std::string& name) const;
  /// All tensors, in the order of entries().
  NamedTensors tensors() const;

 private:
  std::filesystem::path path_;
  std::shared_ptr<const MappedFile> file_;
  SafetensorsHeader header_;
};

/// Writes `tensors` to `path`, which appears complete or not at all; see SafetensorsWriter. Memory stays at
/// one tensor's worth, and only for those that are not contiguous CPU tensors already. Tensors that share
/// storage are each written whole.
///
/// Throws, naming the tensor, on what the format cannot hold: undefined, sparse, quantized, nested and meta
/// tensors, other dtypes, names that are not UTF-8, and the name `__metadata__`.
void save_safetensors(const NamedTensors& tensors, const std::filesystem::path& path,
                      const Metadata& metadata = {});

}  // namespace tpgm
