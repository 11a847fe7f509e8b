// Reads tar shards in the format of WebDataset, and tars of class folders.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tpgm/data/formats/format.h"
#include "tpgm/data/samples.h"
#include "tpgm/data/sources/tar_reader.h"

namespace tpgm {

/// Consecutive files with the same key (the path up to the first dot of its last component) are one sample:
/// key.jpg (or another suffix of formats/format.h) with key.cls (a number or a class name) or key.json
/// ("label", "cls" or "class"). The folders of the key name the part ("train/000001.jpg"); without folders it
/// is the name of the tar, up to a hyphen and a number ("real_train-000004.tar"). If no sample has a label,
/// the last folder of the key is its class: PART/CLASS/x.png, or CLASS/x.png in train.tar. Otherwise the
/// class names are those in classes.txt or classnames.txt beside the first shard, and without such a file the
/// labels are the class names.
///
/// Reads the headers of all shards; after that any image can be read by itself, so batches are shuffled over
/// all shards. Adds images of other formats, which are left out, to `unread`. Throws c10::Error.
std::vector<Samples> read_tar_shards(const std::vector<std::filesystem::path>& shards,
                                     UnreadFiles* unread = nullptr);

/// A sample in a shard.
struct ShardSample {
  std::string key, encoded;  // "train/000001", and the name of the image: "train/000001.jpg"
  std::string label;         // empty if there is none
  uint64_t offset = 0, size = 0;
};
/// Lists the samples of a shard in their order, and adds images of other formats to `unread`. Throws
/// Malformed.
std::vector<ShardSample> index_shard(TarReader& tar, UnreadFiles* unread = nullptr);

}  // namespace tpgm
