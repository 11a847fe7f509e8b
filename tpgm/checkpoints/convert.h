// Converts a checkpoint of any format to safetensors, with options for types, names and shards.
#pragma once

#include <c10/core/ScalarType.h>
#include <torch/arg.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tpgm/checkpoints/chunks.h"
#include "tpgm/io/checkpoint.h"

namespace tpgm {

struct ConvertOptions {
  /// The type of floating-point tensors. Other tensors keep theirs; by default all do.
  TORCH_ARG(std::optional<at::ScalarType>, dtype) = std::nullopt;
  /// Pairs of (from, to), applied one after the other. A `*` in `from` matches any text, and the n-th `*` in
  /// `to` is replaced by what the n-th `*` in `from` matched: {"encoder.*", "visual.*"}, {"module.*", "*"}.
 public:
  using Renames = std::vector<std::pair<std::string, std::string>>;
  TORCH_ARG(Renames, renames);
  /// Globs of the tensors to keep, and to leave out, by their names before renaming; an empty `only` keeps
  /// everything.
  TORCH_ARG(std::vector<std::string>, only);
  TORCH_ARG(std::vector<std::string>, exclude);
  /// Bytes of data per file, 0 for one file; see SafetensorsWriter.
  TORCH_ARG(int64_t, shard_size) = 0;
  /// The value of keys::kCommand in the output; empty: none.
  TORCH_ARG(std::string, command);
};

struct Converted {
  std::vector<std::filesystem::path> files;
  size_t tensors = 0, bytes = 0;
  /// Names of tensors with finite values beyond the range of the new type.
  std::vector<std::string> overflowed;
};

/// Writes `input` to `output` as safetensors. Globs and renames that match nothing are errors, as are two
/// tensors with one name. Memory: a few megabytes per thread. The same input and options give the same bytes.
Converted convert_checkpoint(const Checkpoint& input, const std::filesystem::path& output,
                             const ConvertOptions& options, const Progress& progress = {});

/// "bf16", "bfloat16", "BF16" → kBFloat16; throws with the known names.
at::ScalarType parse_dtype(const std::string& text);

}  // namespace tpgm
