// What all work on checkpoints shares: it goes over the tensors once, in chunks, on all threads, and holds no
// more than a chunk for each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tpgm/io/checkpoint.h"

namespace tpgm {

/// Told how many more bytes are done. Called from several threads at once.
using Progress = std::function<void(size_t bytes)>;

/// A run of elements of one tensor, in row-major order.
struct Chunk {
  size_t tensor;
  int64_t begin, count;
};

/// Cuts tensors into chunks of at most a few megabytes.
std::vector<Chunk> chunks_of(const std::vector<TensorEntry>& tensors);

/// Runs body(chunk number) for chunks 0 to n−1 on all threads, roughly in order. The first exception stops
/// the others and is thrown here.
void for_each_chunk(size_t n, const std::function<void(size_t)>& body);

/// Gives two checkpoints' names a common form: where one's wrapper prefix ("module.") was cut off and the
/// other's was not, puts it back if more names are common then.
void align_names(Checkpoint& a, Checkpoint& b);

/// Throws with the first ten names or shapes that differ, and how to exclude them, unless both have the same
/// tensors after `exclude`. Types must convert, from a's to b's, where b's is a number.
void check_same_tensors(const Checkpoint& a, const Checkpoint& b, const std::vector<std::string>& exclude);

/// Throws if `output` is not called *.safetensors, or one of the files written for it is an input's.
void check_output(const std::filesystem::path& output, const std::vector<std::filesystem::path>& files,
                  const std::vector<const Checkpoint*>& inputs);

/// True for floating-point and complex types.
bool is_number(at::ScalarType dtype);

}  // namespace tpgm
