// Reads checkpoints of all supported formats, files and folders, through one class. Opening one reads no
// tensors, except bools, which are checked.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/ordered_dict.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tpgm/io/file.h"
#include "tpgm/io/safetensors_writer.h"
#include "tpgm/io/state_dict.h"
#include "tpgm/io/tensor_entry.h"

namespace tpgm {

/// An open checkpoint: names, types and shapes are known, and tensors are read on request. The format follows
/// from the content, not from the suffix:
///   - safetensors, in one file or in shards (the *.safetensors.index.json)
///   - PyTorch's files (.pt, .pth, .bin) of all versions, in one file or in shards; no code in them is run
///   - TorchScript archives (their state dict)
///   - a folder: a Hugging Face folder, a run folder (its best checkpoint, or else its last), or any folder with
///     one checkpoint in it
///
/// A prefix that all names share and that a wrapper added ("module." of DataParallel, "_orig_mod." of
/// torch.compile, "backbone.") is removed; "_orig_mod." also within names.
///
/// Cheap to copy; copies share the mapping. Errors name the file, the tensor and what was expected.
class Checkpoint {
 public:
  /// `key` selects an entry of a nested checkpoint ("state_dict_ema"). By default the usual ones are tried.
  explicit Checkpoint(const std::filesystem::path& path, const std::string& key = "");

  const std::filesystem::path& path() const noexcept { return path_; }
  /// "safetensors", "PyTorch archive, 3 shards", ...
  const std::string& format() const noexcept { return format_; }
  /// What was unwrapped, removed, ignored or chosen: a sentence each, for the user.
  const std::vector<std::string>& notes() const noexcept { return notes_; }
  /// The metadata of safetensors files; that of the first shard. Empty for other formats.
  const Metadata& metadata() const noexcept { return metadata_; }
  /// As given to the constructor.
  const std::string& key() const noexcept { return key_; }
  /// All files of the checkpoint, including the index of shards, and their mappings.
  const std::vector<std::filesystem::path>& files() const noexcept { return files_; }
  const std::vector<std::shared_ptr<const MappedFile>>& mappings() const noexcept { return mappings_; }

  const std::vector<std::string>& names() const noexcept { return names_; }
  bool contains(const std::string& name) const { return places_.contains(name); }
  /// Throws if there is no such name, like the next two functions.
  const TensorEntry& entry(const std::string& name) const;
  /// See tensor_at: a view of the file, strided as it was saved.
  at::Tensor tensor(const std::string& name) const;
  /// Elements [begin, begin + count) in row-major order, as a vector; see slice_at.
  at::Tensor slice(const std::string& name, int64_t begin, int64_t count) const;
  NamedTensors tensors() const;

  /// Replaces all tensors and their names, by those of another layout, say. The files and the metadata stay.
  void set_tensors(const NamedTensors& tensors);

  /// The prefix that was removed from all names, or empty.
  const std::string& prefix() const noexcept { return prefix_; }
  /// Puts the prefix back, or its last `length` bytes, for models whose own names have it.
  void restore_prefix(size_t length = std::string::npos);

 private:
  struct Place {
    size_t file;  // in mappings_
    TensorEntry entry;
    at::Tensor tensor = {};  // in place of the file's, after set_tensors(): contiguous
  };

  struct Reading;  // shared by all files of a checkpoint while they are read

  void open(const std::filesystem::path& file, const std::string& key, Reading& reading);
  void open_shards(const std::filesystem::path& index, const std::string& key, Reading& reading);
  void add(const std::string& name, TensorEntry entry, Reading& reading);
  void rename_all(const std::vector<std::string>& names);
  void cut_prefixes();
  const Place& place(const std::string& name) const;

  std::filesystem::path path_;
  std::string key_;
  std::string format_;
  std::string prefix_;
  std::vector<std::string> notes_;
  Metadata metadata_;
  std::vector<std::filesystem::path> files_;
  std::vector<std::shared_ptr<const MappedFile>> mappings_;  // of files_
  std::vector<std::string> names_;
  std::unordered_map<std::string, Place> places_;
};

}  // namespace tpgm
