// Reads safetensors files without copies, after all rules of the format are checked, and writes them.
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

/// A parsed header.
struct SafetensorsHeader {
  Metadata metadata;                                               ///< `__metadata__`
  torch::OrderedDict<std::string, TensorEntry> entries{"Tensor"};  ///< in the order of the data
};

/// Reads the header, and the data of BOOL tensors. Throws Malformed with the tensor and the broken rule if
/// anything is wrong; every returned entry lies within the file. More is refused than in the reference
/// implementation: duplicate names, shapes whose product overflows although one size is 0, and BOOL bytes
/// other than 0 and 1.
SafetensorsHeader parse_safetensors(std::string_view file);
/// The same, within a budget that all files of a checkpoint share.
SafetensorsHeader parse_safetensors(std::string_view file, MemoryBudget& budget);

/// An open and checked safetensors file. Cheap to open and to copy (copies share the mapping). Dtypes:
/// BOOL, U8..U64, I8..I64, F16, BF16, F32, F64, C64 and the five 8-bit floats; the packed F4 and F6 types are
/// refused.
class SafetensorsFile {
 public:
  /// Throws c10::Error with the file, the tensor and the broken rule; see parse_safetensors.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const noexcept { return path_; }
  /// `__metadata__`; empty if the file has none.
  const Metadata& metadata() const noexcept { return header_.metadata; }
  /// By name, in the order of the data.
  const torch::OrderedDict<std::string, TensorEntry>& entries() const noexcept { return header_.entries; }

  /// A contiguous CPU tensor that is a view of the mapping and keeps it alive. Writing to it changes all
  /// tensors of this name from this object, never the file. If the bytes are not aligned to the dtype (only
  /// in files without padding), it is a copy. Throws if there is no such name.
  at::Tensor tensor(const std::string& name) const;
  /// All tensors, in the order of entries().
  NamedTensors tensors() const;

 private:
  std::filesystem::path path_;
  std::shared_ptr<const MappedFile> file_;
  SafetensorsHeader header_;
};

/// Writes `tensors` to `path`, which appears complete or not at all; see SafetensorsWriter. Copies at most
/// one tensor at a time, and only tensors that are not contiguous on the CPU. Tensors that share storage are
/// each written in full.
///
/// Throws, naming the tensor, for everything that the format cannot hold: undefined, sparse, quantized,
/// nested and meta tensors, other dtypes, names that are not UTF-8, and the name `__metadata__`.
void save_safetensors(const NamedTensors& tensors, const std::filesystem::path& path,
                      const Metadata& metadata = {});

}  // namespace tpgm
