// Packs a data set into tar shards.
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
  /// A shard is closed when it has this many bytes.
  TORCH_ARG(int64_t, shard_bytes) = 512 << 20;
  TORCH_ARG(int64_t, max_pixels) = kMaxPixels;
};

/// Writes `folder`/PART-000000.tar, PART-000001.tar, … and classes.txt, which tar.h and WebDataset can read.
/// A shard has NUMBER_NAME.jpg (or the suffix of another format), with the bytes of the file, and
/// NUMBER_NAME.cls for every image. Calls `progress(1)` after each image. The folder appears only when it is
/// complete. Throws c10::Error with the name of the file if one cannot be read or is not an image.
void write_shards(const Dataset& data, const std::vector<Dataset::Part>& parts,
                  const std::filesystem::path& folder, const ShardOptions& options = {},
                  const std::function<void(size_t)>& progress = {});

}  // namespace tpgm
