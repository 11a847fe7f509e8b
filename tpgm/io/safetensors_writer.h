// safetensors files, written as a stream: their tensors are announced first and come in pieces, in any order
// and from any thread.
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
/// Nothing is visible before commit(). On failure an earlier file of the name is intact and nothing is left
/// behind; only if a rename itself fails, new shards may be there, without an index. The bytes depend on
/// names, values and metadata alone: in a file, wider dtypes come first, then names in byte order, as in the
/// reference implementation, so that all data is aligned.
class SafetensorsWriter {
 public:
  /// Reserves the space on the disk; throws when there is not enough, when a name or dtype is one the format
  /// cannot hold, and when the folder cannot be written to.
  ///
  /// `shard_size` > 0 spreads the tensors, in the order given, over files of at most so many bytes of data
  /// (a larger tensor has a file to itself): of "x.safetensors", "x-00001-of-00003.safetensors" and so on,
  /// with "x.safetensors.index.json". What fits into one file is written as one, without an index.
  SafetensorsWriter(const std::filesystem::path& path, const std::vector<TensorSpec>& tensors,
                    const Metadata& metadata, int64_t shard_size = 0);
  ~SafetensorsWriter();

  /// `size` bytes of a tensor (by its place in `tensors`), from its byte `offset` on. Thread-safe. Every byte
  /// of every tensor has to be written once.
  void write(size_t tensor, size_t offset, const void* data, size_t size);
  /// Replaces the metadata, as long as the text is no longer than what the constructor was given: for what
  /// is known only in the end.
  void set_metadata(const Metadata& metadata);
  /// Does all of commit() that nobody sees: checks that no bytes are missing, puts the header before them and
  /// has the disk keep it all. For several outputs that should appear together.
  void prepare();
  /// Prepares, unless that is done, and renames: the shards, then their index. The last call on this object.
  void commit();

  /// The files that commit() makes.
  const std::vector<std::filesystem::path>& files() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tpgm
