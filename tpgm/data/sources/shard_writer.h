// A data set packed into tar shards.
#pragma once

#include <torch/arg.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "tpgm/data/dataset.h"
#include "tpgm/data/formats/encoded_image.h"

namespace tpgm {

struct ShardOptions {
  /// A new shard is begun when one has this many bytes.
  TORCH_ARG(int64_t, shard_bytes) = 512 << 20;
  TORCH_ARG(int64_t, max_pixels) = kMaxPixels;
};

/// Writes `folder`/PART-000000.tar and on, with NUMBER_NAME.jpg (or the suffix of its format) and
/// NUMBER_NAME.cls for every image, and classes.txt: what tar.h reads, and WebDataset. Bytes are those of
/// the files. `progress` is told 1 for each image. The folder appears when all is in it; throws c10::Error,
/// naming the file, for one that cannot be read or is no image.
void write_shards(const Dataset& data, const std::vector<Dataset::Part>& parts,
                  const std::filesystem::path& folder, const ShardOptions& options = {},
                  const std::function<void(size_t)>& progress = {});

}  // namespace tpgm
