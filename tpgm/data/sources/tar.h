// Tar shards as WebDataset has them, and tars of class folders.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tpgm/data/samples.h"
#include "tpgm/data/sources/tar_reader.h"

namespace tpgm {

/// Files that follow each other and share a key (the path up to the first dot of its last part) are a sample:
/// key.jpg, .jpeg or .png with key.cls (a number, or a class's name) or key.json ("label", "cls" or "class").
/// The key's folders name the part ("train/000001.jpg"), or, where it has none, the file's name up to a
/// number behind a hyphen ("real_train-000004.tar"). If nothing has a label, the last folder of the key is
/// its class: PART/CLASS/x.png, or in train.tar CLASS/x.png. Otherwise a class list is taken from classes.txt
/// or classnames.txt beside the first shard, and labels without one are their own names.
///
/// Reads the headers of all shards, and later any image by itself: shards need not be read in order, so
/// batches are shuffled over all of them. Throws c10::Error.
std::vector<Samples> read_tar_shards(const std::vector<std::filesystem::path>& shards);

/// What a shard holds, for read_tar_shards: samples in order.
struct ShardSample {
  std::string key, encoded;  // "train/000001", "train/000001.jpg"
  std::string label;         // empty if there is none
  uint64_t offset = 0, size = 0;
};
/// Throws Malformed.
std::vector<ShardSample> index_shard(TarReader& tar);

}  // namespace tpgm
