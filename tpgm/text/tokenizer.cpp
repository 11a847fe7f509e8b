// Splits text into words, and encodes words as ids.
#include "tpgm/text/tokenizer.h"

#include <ATen/ops/full.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <queue>
#include <unordered_map>
#include <utility>

#include "tpgm/base/call.h"
#include "tpgm/base/untrusted.h"
#include "tpgm/text/unicode.h"
#include "tpgm/text/vocabulary.h"

namespace tpgm {
namespace {

namespace fs = std::filesystem;

// Tokens that are looked for in text as a whole: the leftmost first, of those the longest.
class AddedTokens {
 public:
  void add(const std::u32string& content, int32_t id) {
    if (content.empty()) return;
    ids_.emplace(content, id);
    const size_t size = content.size();
    const auto place = std::lower_bound(sizes_.begin(), sizes_.end(), size, std::greater<>());
    if (place == sizes_.end() || *place != size) sizes_.insert(place, size);
    const auto first = std::lower_bound(first_.begin(), first_.end(), content.front());
    if (first == first_.end() || *first != content.front()) first_.insert(first, content.front());
  }

  // Calls between(text) and token(id) in the order of the text, until one of them returns false.
  template <typename Between, typename Token>
  bool split(std::u32string_view text, const Between& between, const Token& token) const {
    size_t begin = 0;
    for (size_t i = 0; i < text.size();) {
      const size_t size = size_at(text.substr(i));
      if (size == 0) {
        ++i;
        continue;
      }
      if (i > begin && !between(text.substr(begin, i - begin))) return false;
      if (!token(ids_.find(text.substr(i, size))->second)) return false;
      begin = i += size;
    }
    return begin == text.size() || between(text.substr(begin));
  }

 private:
  // The size of the token that `text` begins with; 0 if it begins with none.
  size_t size_at(std::u32string_view text) const {
    if (!std::binary_search(first_.begin(), first_.end(), text.front())) return 0;
    const auto size = std::find_if(sizes_.begin(), sizes_.end(), [&](size_t size) {
      return size <= text.size() && ids_.find(text.substr(0, size)) != ids_.end();
    });
    return size == sizes_.end() ? 0 : *size;
  }

  std::map<std::u32string, int32_t, std::less<>> ids_;
  std::vector<size_t> sizes_;  // of the keys, the largest first
  std::u32string first_;       // characters of the keys, in order
};

std::u32string normalize(std::u32string_view text) {
  std::u32string result;
  result.reserve(text.size());
  bool after_space = false;
  for (const char32_t character : compose(text)) {
    const bool space = classify(character) == CharacterClass::space;
    if (!space) {
      append_lowercase(character, result);
    } else if (!after_space) {
      result += U' ';
    }
    after_space = space;
  }
  return result;
}

// The size of the word that `text`, which is normalized, begins with; 0 if it begins with a space.
size_t word_size(std::u32string_view text) {
  if (text.front() == U'\'') {
    for (const std::u32string_view ending : {U"'s", U"'t", U"'re", U"'ve", U"'m", U"'ll", U"'d"}) {
      if (text.starts_with(ending)) return ending.size();
    }
  }
  const CharacterClass first = classify(text.front());
  if (first == CharacterClass::space) return 0;
  if (first == CharacterClass::number) return 1;
  size_t size = 1;
  while (size < text.size() && classify(text[size]) == first) ++size;
  return size;
}

// Calls word(text) for each word of normalized text, until it returns false.
template <typename Word>
bool split_words(std::u32string_view text, const Word& word) {
  constexpr std::array<std::u32string_view, 2> kNames{U"<|startoftext|>", U"<|endoftext|>"};
  while (!text.empty()) {
    // A name that only lower case made: not the special token but three words, whatever follows.
    const auto name =
        std::find_if(kNames.begin(), kNames.end(), [&](auto name) { return text.starts_with(name); });
    if (name != kNames.end()) {
      for (const size_t size : {size_t{2}, name->size() - 4, size_t{2}}) {
        if (!word(text.substr(0, size))) return false;
        text.remove_prefix(size);
      }
      continue;
    }
    const size_t size = word_size(text);
    if (size > 0 && !word(text.substr(0, size))) return false;
    text.remove_prefix(std::max<size_t>(size, 1));
  }
  return true;
}

}  // namespace

struct Tokenizer::Model {
  struct Merge {
    int32_t left, right;
    uint32_t rank;
    int32_t result;
  };
  using Cache = std::unordered_map<std::string, std::vector<int64_t>>;

  explicit Model(const Vocabulary& vocabulary);
  const Merge* find_merge(int32_t left, int32_t right) const;
  void merge_word(std::string_view word, std::vector<int64_t>& ids) const;
  void encode(std::string_view text, size_t limit, Cache& cache, std::vector<int64_t>& ids) const;

  int64_t size = 0;
  int32_t start = 0, end = 0;
  std::array<int32_t, 256> inner{}, last{};  // ids of bytes: within a word, at its end
  std::vector<Merge> merges;                 // by left, then right
  std::vector<size_t> first_merge;           // of each left token; one more at the end
  AddedTokens raw, normalized;
};

Tokenizer::Model::Model(const Vocabulary& vocabulary) : size(static_cast<int64_t>(vocabulary.ids.size())) {
  const auto& ids = vocabulary.ids;
  for (const char* token : {kStartOfText, kEndOfText}) {
    if (!ids.contains(token))
      throw Malformed{fmt::format("expected CLIP's tokens, '{}' is not there", token), kAnotherModel};
  }
  start = ids.at(kStartOfText);
  end = ids.at(kEndOfText);
  std::vector<bool> taken(ids.size());
  for (const auto& [token, id] : ids) {
    const auto place = static_cast<size_t>(id);
    require(place < ids.size(), "the token '{}' has the id {}, and there are {} tokens", printable(token), id,
            ids.size());
    require(!taken[place], "the token '{}' has the id {}, and so has another", printable(token), id);
    taken[place] = true;
  }
  const auto ends_word = [](const auto& merge) { return merge.second.ends_with(kWordEnd); };
  if (!vocabulary.bytes && std::none_of(vocabulary.merges.begin(), vocabulary.merges.end(), ends_word)) {
    throw Malformed{"expected CLIP's merges, with '</w>' where a word ends, found none", kAnotherModel};
  }

  const auto find = [&](const std::string& token) {
    const auto found = ids.find(token);
    return found == ids.end() ? std::nullopt : std::optional<int32_t>(found->second);
  };
  for (const auto& [byte, letter] : byte_letters()) {
    inner[byte] = find(letter).value_or(end);
    last[byte] = find(letter + std::string(kWordEnd)).value_or(end);
  }
  for (const auto& [left, right] : vocabulary.merges) {
    const auto a = find(left), b = find(right), both = find(left + right);
    require(a && b && both, "merge {} is '{} {}', and '{}' is not a token", merges.size() + 1,
            printable(left), printable(right),
            printable(!a   ? left
                      : !b ? right
                           : left + right));
    merges.push_back({*a, *b, static_cast<uint32_t>(merges.size()), *both});
  }
  const auto pair = [](const Merge& merge) { return std::pair(merge.left, merge.right); };
  std::sort(merges.begin(), merges.end(), [&](const Merge& a, const Merge& b) { return pair(a) < pair(b); });
  const auto twice = std::adjacent_find(merges.begin(), merges.end(),
                                        [&](const Merge& a, const Merge& b) { return pair(a) == pair(b); });
  require(twice == merges.end(), "it has merge {} twice", twice == merges.end() ? 0 : twice->rank + 1);
  first_merge.resize(ids.size() + 1);
  for (const Merge& merge : merges) ++first_merge[static_cast<size_t>(merge.left) + 1];
  for (size_t i = 1; i < first_merge.size(); ++i) first_merge[i] += first_merge[i - 1];

  for (const auto& [content, is_normalized] : vocabulary.added) {
    const std::u32string characters = decode_utf8(content);
    if (is_normalized) {
      normalized.add(normalize(characters), ids.at(content));
    } else {
      raw.add(characters, ids.at(content));
    }
  }
  for (const char* token : {kStartOfText, kEndOfText}) {
    const auto is_token = [&](const Vocabulary::Added& added) { return added.content == token; };
    if (std::none_of(vocabulary.added.begin(), vocabulary.added.end(), is_token)) {
      raw.add(decode_utf8(token), ids.at(token));
    }
  }
}

const Tokenizer::Model::Merge* Tokenizer::Model::find_merge(int32_t left, int32_t right) const {
  const Merge* begin = merges.data() + first_merge[static_cast<size_t>(left)];
  const Merge* stop = merges.data() + first_merge[static_cast<size_t>(left) + 1];
  begin =
      std::lower_bound(begin, stop, right, [](const Merge& merge, int32_t id) { return merge.right < id; });
  return begin != stop && begin->right == right ? begin : nullptr;
}

// The merge of lowest rank first, and of equals the leftmost, from a heap: n log n, however long the word.
void Tokenizer::Model::merge_word(std::string_view word, std::vector<int64_t>& ids) const {
  constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
  struct Symbol {
    int32_t id;  // -1: merged into the one before
    uint32_t before, after;
  };
  using Candidate = std::pair<std::pair<uint32_t, uint32_t>, int32_t>;  // rank, place of the left one; result
  std::vector<Symbol> symbols(word.size());
  std::vector<Candidate> storage;
  storage.reserve(word.size());
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates(std::greater<>(),
                                                                                    std::move(storage));
  const auto consider = [&](uint32_t left) {
    const uint32_t right = left == kNone ? kNone : symbols[left].after;
    if (right == kNone) return;
    const Merge* merge = find_merge(symbols[left].id, symbols[right].id);
    if (merge != nullptr) candidates.push({{merge->rank, left}, merge->result});
  };
  for (uint32_t i = 0; i < symbols.size(); ++i) {
    const bool is_last = i + 1 == symbols.size();
    symbols[i] = {(is_last ? last : inner)[static_cast<uint8_t>(word[i])], i == 0 ? kNone : i - 1,
                  is_last ? kNone : i + 1};
  }
  for (uint32_t i = 0; i < symbols.size(); ++i) consider(i);
  while (!candidates.empty()) {
    const auto [order, result] = candidates.top();
    candidates.pop();
    Symbol& left = symbols[order.second];
    if (left.id < 0 || left.after == kNone) continue;
    Symbol& right = symbols[left.after];
    const Merge* merge = find_merge(left.id, right.id);
    if (merge == nullptr || merge->result != result)
      continue;  // one of them was merged with another meanwhile
    left.id = result;
    left.after = right.after;
    right.id = -1;
    if (left.after != kNone) symbols[left.after].before = order.second;
    consider(left.before);
    consider(order.second);
  }
  for (uint32_t i = symbols.empty() ? kNone : 0; i != kNone; i = symbols[i].after)
    ids.push_back(symbols[i].id);
}

// Stops when there are `limit` ids or a few more.
void Tokenizer::Model::encode(std::string_view text, size_t limit, Cache& cache,
                              std::vector<int64_t>& ids) const {
  constexpr size_t kMaxText = size_t{1} << 30, kMaxCached = 256, kMaxCache = 1 << 16;
  TORCH_CHECK(text.size() <= kMaxText, "[Tokenizer] a text of ", text.size(), " bytes; the most is 1 GiB");
  std::string bytes;
  const auto word = [&](std::u32string_view characters) {
    bytes.clear();
    for (const char32_t character : characters) append_utf8(character, bytes);
    const auto known = cache.find(bytes);
    if (known != cache.end()) {
      ids.insert(ids.end(), known->second.begin(), known->second.end());
    } else {
      const auto before = static_cast<std::ptrdiff_t>(ids.size());
      merge_word(bytes, ids);
      if (bytes.size() <= kMaxCached && cache.size() < kMaxCache) {
        cache.emplace(bytes, std::vector<int64_t>(ids.begin() + before, ids.end()));
      }
    }
    return ids.size() < limit;
  };
  const auto token = [&](int32_t id) {
    ids.push_back(id);
    return ids.size() < limit;
  };
  raw.split(
      decode_utf8(text),
      [&](std::u32string_view part) {
        return normalized.split(
            normalize(part), [&](std::u32string_view rest) { return split_words(rest, word); }, token);
      },
      token);
}

fs::path find_vocabulary(const fs::path& checkpoint) {
  std::error_code ignored;
  return vocabulary_in(fs::is_directory(checkpoint, ignored) ? checkpoint : checkpoint.parent_path());
}

Tokenizer::Tokenizer(const fs::path& path) try {
  require_unicode();
  fs::path file = path;
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    file = vocabulary_in(path);
    TORCH_CHECK(!file.empty(), "'", printable(path.string(), kMaxPath),
                "': there is no tokenizer.json, no vocab.json with merges.txt and no ", kMergeList,
                ".gz in this folder; put those of the CLIP model there");
  }
  const Vocabulary vocabulary = read_vocabulary(file);
  try {
    *this = Tokenizer(vocabulary);
  } catch (const Malformed& malformed) {
    refuse(file, malformed);
  }
} catch (...) {
  rethrow_from("Tokenizer");
}

Tokenizer::Tokenizer(const Vocabulary& vocabulary) : model_(std::make_shared<const Model>(vocabulary)) {}

Tokenizer Tokenizer::bytes() {
  require_unicode();
  Vocabulary vocabulary;
  vocabulary.budget.add_file(size_t{1} << 20);
  vocabulary.bytes = true;
  for (const auto& end : {std::string(), std::string(kWordEnd)}) {
    for (const auto& [byte, letter] : byte_letters()) vocabulary.add(letter + end, vocabulary.ids.size());
  }
  for (const char* token : {kStartOfText, kEndOfText}) vocabulary.add(token, vocabulary.ids.size());
  return Tokenizer(vocabulary);
}

int64_t Tokenizer::vocab_size() const { return model_->size; }
int64_t Tokenizer::start_of_text() const { return model_->start; }
int64_t Tokenizer::end_of_text() const { return model_->end; }

std::vector<int64_t> Tokenizer::encode(std::string_view text) const {
  Model::Cache cache;
  std::vector<int64_t> ids;
  model_->encode(text, std::numeric_limits<size_t>::max(), cache, ids);
  return ids;
}

at::Tensor Tokenizer::encode_batch(const std::vector<std::string>& texts, int64_t context) const {
  TORCH_CHECK(context >= 2, "[Tokenizer::encode_batch] context is ", context,
              "; give at least 2, for the start and the end of text");
  at::Tensor batch = at::full({static_cast<int64_t>(texts.size()), context}, model_->end, at::kLong);
  auto* row = batch.mutable_data_ptr<int64_t>();
  const auto room = static_cast<size_t>(context - 2);
  Model::Cache cache;
  std::vector<int64_t> ids;
  for (const std::string& text : texts) {
    ids.clear();
    model_->encode(text, room, cache, ids);
    row[0] = model_->start;
    std::copy_n(ids.begin(), std::min(ids.size(), room), row + 1);
    row += context;
  }
  return batch;
}

}  // namespace tpgm
