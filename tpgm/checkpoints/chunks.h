// The streaming that all operations on checkpoints share: one pass over the tensors in chunks, on all
// threads, with at most one chunk in memory per thread. Also checks of names and outputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tpgm/io/checkpoint.h"

namespace tpgm {

/// Called with the number of bytes just processed, from several threads at once.
using Progress = std::function<void(size_t bytes)>;

/// Consecutive elements of one tensor, in row-major order.
struct Chunk {
  size_t tensor;
  int64_t begin, count;
};

/// Cuts tensors into chunks of at most a few megabytes.
std::vector<Chunk> chunks_of(const std::vector<TensorEntry>& tensors);

/// Runs body(index) for chunks 0 to n−1 on all threads, roughly in order. The first exception stops the other
/// threads and is rethrown here.
void for_each_chunk(size_t n, const std::function<void(size_t)>& body);

/// Makes the names of two checkpoints comparable: restores a wrapper prefix ("module.") that was removed from
/// one of them if they then have more names in common.
void align_names(Checkpoint& a, Checkpoint& b);

/// Throws unless both have the same names and shapes after `exclude`; the message has the first ten that
/// differ and how to exclude them. Where the type in b is floating-point or complex, that in a must convert
/// to it.
void check_same_tensors(const Checkpoint& a, const Checkpoint& b, const std::vector<std::string>& exclude);

/// Throws if `output` is not named *.safetensors, or if one of the `files` written for it belongs to an
/// input.
void check_output(const std::filesystem::path& output, const std::vector<std::filesystem::path>& files,
                  const std::vector<const Checkpoint*>& inputs);

/// True for floating-point and complex types.
bool is_number(at::ScalarType dtype);

}  // namespace tpgm
