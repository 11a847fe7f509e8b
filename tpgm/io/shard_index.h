// The index of a checkpoint in shards (*.index.json): which file holds which tensor.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

namespace tpgm {

class MemoryBudget;

/// Tensor name → file name, from an index as Hugging Face writes it. Throws Malformed unless every file name
/// is without a folder: an index must not refer to files outside of its own.
std::unordered_map<std::string, std::string> parse_shard_index(std::string_view text);
/// The same, within a budget that all files of a checkpoint share.
std::unordered_map<std::string, std::string> parse_shard_index(std::string_view text, MemoryBudget& budget);

}  // namespace tpgm
