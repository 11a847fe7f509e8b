// One checkpoint into another: any format in, safetensors out; types, names and shards as asked for.
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
  /// For floating-point tensors; others keep theirs. By default all do.
  TORCH_ARG(std::optional<at::ScalarType>, dtype) = std::nullopt;
  /// From → to, applied one after the other. A `*` in `from` stands for any text, and each `*` in `to` for
  /// the text that the one at its place stood for: {"encoder.*", "visual.*"}, {"module.*", "*"}.
 public:
  using Renames = std::vector<std::pair<std::string, std::string>>;
  TORCH_ARG(Renames, renames);
  /// Globs (of the names before renaming) of what to keep; empty keeps everything.
  TORCH_ARG(std::vector<std::string>, only);
  TORCH_ARG(std::vector<std::string>, exclude);
  /// Bytes of data per file, 0 for one file; see SafetensorsWriter.
  TORCH_ARG(int64_t, shard_size) = 0;
  /// What the output says that it was made by (keys::kCommand), if anything.
  TORCH_ARG(std::string, command);
};

struct Converted {
  std::vector<std::filesystem::path> files;
  size_t tensors = 0, bytes = 0;
  /// Names of tensors with finite values beyond the range of the new type.
  std::vector<std::string> overflowed;
};

/// Writes `input` to `output` as safetensors. A glob or rename that matches nothing and two tensors with one
/// name are errors. Memory: a few megabytes per thread. Same input and options, same bytes.
Converted convert_checkpoint(const Checkpoint& input, const std::filesystem::path& output,
                             const ConvertOptions& options, const Progress& progress = {});

/// "bf16", "bfloat16", "BF16" → kBFloat16; throws with the known names.
at::ScalarType parse_dtype(const std::string& text);

}  // namespace tpgm
