// Writes safetensors files as a stream: the tensors are declared first, and their bytes follow in pieces, in
// any order and from any thread.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tpgm/io/file.h"
#include "tpgm/io/metadata.h"

namespace tpgm {

/// A tensor to be written.
struct TensorSpec {
  std::string name;
  at::ScalarType dtype;
  std::vector<int64_t> shape;
};

/// One file, or several shards and their index.
///
/// Nothing is visible before commit(). After a failure an earlier file of the same name is intact, and
/// nothing is left behind, except that new shards without an index may exist if a rename fails. The bytes
/// depend only on names, values and metadata: within a file, tensors are sorted by dtype, wider ones first,
/// then by name, as in the reference implementation, so that all data is aligned.
class SafetensorsWriter {
 public:
  /// Allocates the space on the disk. Throws if there is not enough, if the format cannot hold a name or
  /// dtype, or if the folder is not writable.
  ///
  /// `shard_size` > 0 spreads the tensors, in the given order, over files of at most so many bytes of data (a
  /// larger tensor has a file of its own): "x.safetensors" becomes "x-00001-of-00003.safetensors" and so on,
  /// with "x.safetensors.index.json". Tensors that fit into one file are written as one, without an index.
  SafetensorsWriter(const std::filesystem::path& path, const std::vector<TensorSpec>& tensors,
                    const Metadata& metadata, int64_t shard_size = 0);
  ~SafetensorsWriter();

  /// Writes `size` bytes of a tensor (by its index in `tensors`) at its byte `offset`. Thread-safe. Every
  /// byte of every tensor must be written once.
  void write(size_t tensor, size_t offset, const void* data, size_t size);
  /// Replaces the metadata, for values that are known only at the end. The text must not be longer than that
  /// of the metadata that the constructor was given.
  void set_metadata(const Metadata& metadata);
  /// The part of commit() that is not visible: checks that no bytes are missing, writes the headers and waits
  /// until everything is on the disk. For several outputs that should appear together.
  void prepare();
  /// Calls prepare() if it was not called, and renames the shards, then their index. The last call on this
  /// object.
  void commit();

  /// The files that commit() creates.
  const std::vector<std::filesystem::path>& files() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tpgm
