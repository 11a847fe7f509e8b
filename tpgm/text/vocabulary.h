// The vocabulary of CLIP's tokenizer (tokens, ids and merges), and the files that it is read from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tpgm/base/untrusted.h"

namespace tpgm {

inline constexpr const char* kStartOfText = "<|startoftext|>";
inline constexpr const char* kEndOfText = "<|endoftext|>";
inline constexpr std::string_view kWordEnd = "</w>";
inline constexpr const char* kMergeList = "bpe_simple_vocab_16e6.txt";
/// Ends the errors about files of another model.
inline constexpr const char* kAnotherModel =
    "this is another model's: give the tokenizer.json, the vocab.json with its merges.txt, or the "
    "bpe_simple_vocab_16e6.txt.gz of a CLIP model";

/// What the files say, before it is checked as a whole (by Tokenizer).
struct Vocabulary {
  struct Added {
    std::string content;
    bool normalized;  // looked for in the normalized text, not in the text as it is given
  };

  /// Throws Malformed if there is no room for it, or if it is there already.
  void add(const std::string& token, uint64_t id) {
    require(id <= std::numeric_limits<int32_t>::max(), "the token '{}' has the id {}", printable(token), id);
    budget.charge(token.size() + 100);
    names.add(token);
    require(ids.emplace(token, static_cast<int32_t>(id)).second, "it has the token '{}' twice",
            printable(token));
  }
  void add_merge(std::string_view left, std::string_view right) {
    budget.charge(left.size() + right.size() + 100);
    merges.emplace_back(left, right);
  }

  MemoryBudget budget{0};
  NameGuard names;
  std::unordered_map<std::string, int32_t> ids;
  std::vector<std::pair<std::string, std::string>> merges;  // the first is the most frequent
  std::vector<Added> added;
  bool merges_apart = false;  // it is a vocab.json, and they are in merges.txt
  bool bytes = false;         // it has none, and shall have none
};

/// A tokenizer.json, a vocab.json or a list of merges, told apart by content and packed by gzip or not; then
/// the merges.txt of a vocab.json. Throw Malformed.
Vocabulary parse_vocabulary(std::string_view file);
void parse_merges(std::string_view file, Vocabulary& vocabulary);
/// parse_vocabulary() for JSON that is not packed.
void parse_vocabulary_json(std::string_view text, Vocabulary& vocabulary);

/// parse_vocabulary of a file, and parse_merges of the one beside it. Throws c10::Error.
Vocabulary read_vocabulary(const std::filesystem::path& path);

/// The file in this folder to read first; empty if there is none. Only names are looked at.
std::filesystem::path vocabulary_in(const std::filesystem::path& folder);

/// The letter that stands for each byte in a vocabulary, in the order of their ids: those that can be seen
/// stand for themselves, the rest gets letters from U+0100 on.
std::vector<std::pair<uint8_t, std::string>> byte_letters();

}  // namespace tpgm
