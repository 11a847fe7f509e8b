// The vocabulary from its files, then words from text, then ids from words.
#include "tpgm/models/tokenizer.h"

#include <ATen/ops/full.h>
#include <c10/util/Exception.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <queue>
#include <unordered_map>
#include <utility>

#include "tpgm/io/file.h"
#include "tpgm/io/untrusted.h"
#include "tpgm/models/unicode.h"

namespace tpgm {
namespace {

namespace fs = std::filesystem;
using json = nlohmann::json;

constexpr const char* kCall = "Tokenizer";
constexpr const char* kStart = "<|startoftext|>";
constexpr const char* kEnd = "<|endoftext|>";
constexpr std::string_view kWordEnd = "</w>";
constexpr const char* kMergeList = "bpe_simple_vocab_16e6.txt";
constexpr size_t kMaxFile = size_t{64} << 20;
constexpr const char* kAnother =
    "this is another model's: give the tokenizer.json, the vocab.json with its merges.txt, or the "
    "bpe_simple_vocab_16e6.txt.gz of a CLIP model";

// What the files say, before it is checked as a whole.
struct Vocabulary {
  struct Added {
    std::string content;
    bool normalized;  // looked for in the normalized text, not in the text as it is given
  };

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
};

// --- JSON: vocab.json and tokenizer.json ---

// Takes tokens and merges as they come. All else that matters is small: it is kept as "path.of.keys" ->
// value.
class JsonReader final : public nlohmann::json_sax<json> {
 public:
  explicit JsonReader(Vocabulary& vocabulary) : vocabulary_(vocabulary) {}

  bool start_object(size_t) override { return open(false); }
  bool end_object() override { return levels_.pop_back(), true; }
  bool start_array(size_t) override { return open(true); }
  bool end_array() override {
    if (levels_.back().place == Place::merge) {
      require(pair_.size() == 2, "merge {} has {} parts", vocabulary_.merges.size() + 1, pair_.size());
      vocabulary_.add_merge(pair_[0], pair_[1]);
    }
    return levels_.pop_back(), true;
  }
  bool key(std::string& key) override { return key_ = key, true; }
  bool number_unsigned(uint64_t number) override {
    const Place place = levels_.back().place;
    if (place != Place::root && place != Place::tokens) return scalar(std::to_string(number));
    vocab_json |= place == Place::root;
    vocabulary_.add(key_, number);
    return true;
  }
  bool string(std::string& text) override {
    const Place place = levels_.back().place;
    if (place == Place::merge) {
      require(pair_.size() < 2, "merge {} has more than 2 parts", vocabulary_.merges.size() + 1);
      pair_.push_back(text);
    } else if (place == Place::merges) {
      const size_t space = text.find(' ');
      require(space != std::string::npos, "merge {} is '{}', not two tokens", vocabulary_.merges.size() + 1,
              printable(text));
      vocabulary_.add_merge(std::string_view(text).substr(0, space),
                            std::string_view(text).substr(space + 1));
    } else {
      return scalar(text);
    }
    return true;
  }
  bool null() override { return scalar("null"); }
  bool boolean(bool value) override { return scalar(value ? "true" : "false"); }
  bool number_integer(int64_t number) override { return scalar(std::to_string(number)); }
  bool number_float(double, const std::string& text) override { return scalar(text); }
  bool binary(json::binary_t&) override { return scalar("binary"); }
  bool parse_error(size_t position, const std::string&, const json::exception& error) override {
    throw Malformed{fmt::format("byte {}: not JSON: {}", position, printable(error.what(), 200))};
  }

  bool vocab_json = false;      // tokens at the root
  bool tokenizer_json = false;  // tokens in "model"
  std::map<std::string, std::string> fields;

 private:
  enum class Place : uint8_t { root, tokens, merges, merge, other, ignored };
  struct Level {
    Place place;
    std::string path;
    bool array;
    size_t next = 0;
  };

  // Of what comes next, within the current level.
  std::string path() {
    if (levels_.empty()) return "";
    Level& level = levels_.back();
    const std::string name = level.array ? std::to_string(level.next++) : key_;
    vocabulary_.budget.charge(level.path.size() + name.size() + 1);
    return level.path.empty() ? name : level.path + "." + name;
  }
  bool open(bool array) {
    constexpr size_t kMaxDepth = 20;
    require(levels_.size() < kMaxDepth, "it nests more than {} levels", kMaxDepth);
    if (!levels_.empty() && levels_.back().place == Place::merges) {
      require(array, "merge {} is an object", vocabulary_.merges.size() + 1);
      pair_.clear();
      levels_.push_back({Place::merge, "", true});
      return true;
    }
    const Place outer = levels_.empty() ? Place::other : levels_.back().place;
    require(outer != Place::tokens && outer != Place::merge, "expected a {}, found an {}",
            outer == Place::merge ? "token" : "number", array ? "array" : "object");
    if (outer == Place::ignored) {
      levels_.push_back({Place::ignored, "", array});
      return true;
    }
    std::string here = path();
    tokenizer_json |= here == "model";
    const bool described = here == "model" || here.starts_with("added_tokens") ||
                           here.starts_with("normalizer") || here.starts_with("pre_tokenizer");
    const Place place = levels_.empty()                   ? Place::root
                        : !array && here == "model.vocab" ? Place::tokens
                        : array && here == "model.merges" ? Place::merges
                        : described                       ? Place::other
                                                          : Place::ignored;
    levels_.push_back({place, std::move(here), array});
    return true;
  }
  bool scalar(const std::string& value) {
    const Place place = levels_.back().place;
    require(place != Place::tokens, "the id of the token '{}' is {}", printable(key_), printable(value));
    require(place != Place::merges && place != Place::merge, "merge {} contains {}",
            vocabulary_.merges.size() + 1, printable(value));
    if (place == Place::ignored) return true;
    const std::string here = path();
    vocabulary_.budget.charge(value.size() + 200);
    require(fields.emplace(here, value).second, "it has '{}' twice", printable(here));
    return true;
  }

  Vocabulary& vocabulary_;
  std::vector<Level> levels_;
  std::string key_;
  std::vector<std::string> pair_;
};

using Fields = std::map<std::string, std::string>;

// The fields whose path begins with `prefix`.
Fields part(const Fields& fields, const std::string& prefix) {
  Fields result;
  for (auto item = fields.lower_bound(prefix); item != fields.end() && item->first.starts_with(prefix);
       ++item) {
    result.insert(*item);
  }
  return result;
}

// Throws unless a tokenizer.json treats text as CLIP's does.
void check_fields(const Fields& fields) {
  const auto value = [&](const std::string& path, const std::string& otherwise) {
    const auto found = fields.find(path);
    return found == fields.end() ? otherwise : found->second;
  };
  const auto check = [](bool condition, const std::string& reason) {
    if (!condition) throw Malformed{reason, kAnother};
  };
  const std::string type = value("model.type", "of no type");
  check(type == "BPE", fmt::format("expected a model of type BPE, as CLIP's is, found {}", printable(type)));
  const std::string suffix = value("model.end_of_word_suffix", "null");
  check(suffix == kWordEnd,
        fmt::format("expected the end_of_word_suffix '</w>' of CLIP, found '{}'", printable(suffix)));
  for (const auto& [option, usual] : {std::pair<const char*, const char*>{"continuing_subword_prefix", ""},
                                      {"dropout", "null"},
                                      {"fuse_unk", "false"},
                                      {"byte_fallback", "false"},
                                      {"ignore_merges", "false"}}) {
    const std::string found = value(fmt::format("model.{}", option), usual);
    check(found == usual || found == "null",
          fmt::format("its model has {} '{}', and CLIP's has none", option, printable(found)));
  }

  check(part(fields, "normalizer") == Fields{{"normalizer.type", "Sequence"},
                                             {"normalizer.normalizers.0.type", "NFC"},
                                             {"normalizer.normalizers.1.type", "Replace"},
                                             {"normalizer.normalizers.1.pattern.Regex", "\\s+"},
                                             {"normalizer.normalizers.1.content", " "},
                                             {"normalizer.normalizers.2.type", "Lowercase"}},
        "its normalizer is not CLIP's (NFC, white space, lower case)");

  Fields words = part(fields, "pre_tokenizer");
  const std::string split = "pre_tokenizer.pretokenizers.0.", bytes = "pre_tokenizer.pretokenizers.1.";
  words.erase(bytes + "trim_offsets");
  words.emplace(bytes + "use_regex", "true");
  const std::string regex = std::exchange(words[split + "pattern.Regex"], "");
  const std::string usual = R"('s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+)";
  const std::string special = R"(<\|startoftext\|>|<\|endoftext\|>|)";
  check((regex == usual || regex == special + usual) && words == Fields{{"pre_tokenizer.type", "Sequence"},
                                                                        {split + "type", "Split"},
                                                                        {split + "pattern.Regex", ""},
                                                                        {split + "behavior", "Removed"},
                                                                        {split + "invert", "true"},
                                                                        {bytes + "type", "ByteLevel"},
                                                                        {bytes + "add_prefix_space", "false"},
                                                                        {bytes + "use_regex", "true"}},
        "its pre_tokenizer is not CLIP's (words by a regular expression, then bytes)");
}

void read_added_tokens(const Fields& fields, Vocabulary& vocabulary) {
  constexpr size_t kMaxContent = 256;
  const size_t all = part(fields, "added_tokens").size();
  for (size_t i = 0, read = 0; read < all; ++i) {
    Fields token = part(fields, fmt::format("added_tokens.{}.", i));
    read += token.size();
    const auto field = [&](const char* name) { return token[fmt::format("added_tokens.{}.{}", i, name)]; };
    const std::string content = field("content"), id = field("id");
    require(!content.empty() && content.size() <= kMaxContent, "added token {} has {} bytes", i,
            content.size());
    for (const char* option : {"single_word", "lstrip", "rstrip"}) {
      if (field(option) != "true") continue;
      throw Malformed{
          fmt::format("the added token '{}' is {}, which is not supported", printable(content), option),
          "give the tokenizer of the CLIP model itself, without that token"};
    }
    uint64_t number = 0;
    const auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), number);
    require(!id.empty() && error == std::errc() && end == id.data() + id.size(),
            "the added token '{}' has the id '{}'", printable(content), printable(id));
    const auto known = vocabulary.ids.find(content);
    if (known == vocabulary.ids.end()) {
      vocabulary.add(content, number);
    } else {
      require(static_cast<uint64_t>(known->second) == number,
              "the added token '{}' has the id {}, and {} in the vocabulary", printable(content), number,
              known->second);
    }
    vocabulary.added.push_back({content, field("normalized") == "true"});
  }
}

// --- lists of merges: merges.txt and bpe_simple_vocab_16e6.txt ---

std::string unpack(std::string_view packed) {
  z_stream stream{};
  TORCH_CHECK(inflateInit2(&stream, 16 + MAX_WBITS) == Z_OK, "[", kCall, "] out of memory");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, inflateEnd);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());  // at most kMaxFile
  std::string text;
  std::vector<char> chunk(size_t{1} << 18);
  for (int result = Z_OK; result != Z_STREAM_END;) {
    stream.next_out = reinterpret_cast<Bytef*>(chunk.data());
    stream.avail_out = static_cast<uInt>(chunk.size());
    result = inflate(&stream, Z_NO_FLUSH);
    require(result == Z_OK || result == Z_STREAM_END, "its gzip data is broken after {} bytes ({})",
            stream.total_out, stream.msg != nullptr ? stream.msg : "it ends early");
    text.append(chunk.data(), chunk.size() - stream.avail_out);
    require(text.size() <= kMaxFile, "it unpacks to more than {} MiB", kMaxFile >> 20);
  }
  return text;
}

// At most `limit` merges. The first line is a title in `titled` lists, whatever it says.
void read_merges(std::string_view text, bool titled, size_t limit, Vocabulary& vocabulary) {
  for (size_t number = 1; !text.empty() && vocabulary.merges.size() < limit; ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with("#version") || (titled && number == 1)) continue;
    const size_t space = line.find(' ');
    if (space == 0 || space == std::string_view::npos || space + 1 == line.size() ||
        line.find(' ', space + 1) != std::string_view::npos) {
      throw Malformed{fmt::format("expected CLIP's merges, two tokens on a line, found '{}' on line {}",
                                  printable(line), number),
                      kAnother};
    }
    vocabulary.add_merge(line.substr(0, space), line.substr(space + 1));
  }
}

// The letter that stands for each byte in a vocabulary, in the order of their ids: those that can be seen
// stand for themselves, the rest gets letters from U+0100 on.
std::vector<std::pair<uint8_t, std::string>> byte_letters() {
  std::vector<std::pair<uint8_t, std::string>> seen, rest;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool visible = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
    std::string letter;
    append_utf8(visible ? byte : static_cast<char32_t>(0x100 + rest.size()), letter);
    (visible ? seen : rest).emplace_back(byte, letter);
  }
  seen.insert(seen.end(), rest.begin(), rest.end());
  return seen;
}

// bpe_simple_vocab_16e6.txt has five times the merges that CLIP was trained with, and no ids: they follow
// from the order.
void read_merge_list(std::string_view text, Vocabulary& vocabulary) {
  read_merges(text, true, 49152 - 256 - 2, vocabulary);
  const auto letters = byte_letters();
  const auto next = [&] { return vocabulary.ids.size(); };
  for (const auto& item : letters) vocabulary.add(item.second, next());
  for (const auto& item : letters) vocabulary.add(item.second + std::string(kWordEnd), next());
  for (const auto& [left, right] : vocabulary.merges) vocabulary.add(left + right, next());
  vocabulary.add(kStart, next());
  vocabulary.add(kEnd, next());
}

// --- files ---

class Source {
 public:
  explicit Source(const fs::path& path) : file_(path, kCall) {
    require(file_.size() <= kMaxFile, "it has {} bytes, and a vocabulary at most {} MiB", file_.size(),
            kMaxFile >> 20);
    bytes_ = file_.bytes();
    if (!bytes_.starts_with("\x1f\x8b")) return;
    unpacked_ = unpack(bytes_);
    bytes_ = unpacked_;
  }
  std::string_view bytes() const { return bytes_; }

 private:
  MappedFile file_;
  std::string unpacked_;
  std::string_view bytes_;
};

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

// Calls `read`, and names the file if it is malformed.
template <typename Read>
void reading(const fs::path& path, const Read& read) {
  try {
    read();
  } catch (const Malformed& malformed) {
    refuse(kCall, path, malformed);
  }
}

Vocabulary read_vocabulary(const fs::path& path) {
  Vocabulary vocabulary;
  if (path.filename() == "merges.txt") {
    const fs::path other = path.parent_path() / "vocab.json";
    TORCH_CHECK(is_there(other), "[", kCall, "] '", printable(path.string(), kMaxPath),
                "': there is no vocab.json beside it; put the one of the same model there");
    return read_vocabulary(other);
  }
  bool merges_apart = false;
  reading(path, [&] {
    const Source source(path);
    vocabulary.budget.add_file(source.bytes().size());
    if (!source.bytes().starts_with('{')) return read_merge_list(source.bytes(), vocabulary);
    check_json_text(source.bytes(), 0);
    JsonReader reader(vocabulary);
    json::sax_parse(source.bytes(), &reader);
    require(!reader.vocab_json || !reader.tokenizer_json, "it has numbers beside 'model'");
    merges_apart = reader.vocab_json;
    if (reader.tokenizer_json) {
      check_fields(reader.fields);
      read_added_tokens(reader.fields, vocabulary);
    } else if (!reader.vocab_json) {
      throw Malformed{"expected the tokens and ids of CLIP, found other JSON", kAnother};
    }
  });
  if (merges_apart) {
    const fs::path other = path.parent_path() / "merges.txt";
    TORCH_CHECK(is_there(other), "[", kCall, "] '", printable(path.string(), kMaxPath),
                "': there is no merges.txt beside it; put the one of the same model there");
    reading(other, [&] {
      const Source source(other);
      vocabulary.budget.add_file(source.bytes().size());
      read_merges(source.bytes(), false, std::numeric_limits<size_t>::max(), vocabulary);
    });
  }
  return vocabulary;
}

// --- ids ---

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

  /// Calls between(text) and token(id) in the order of the text, until one of them returns false.
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
  // Of the token that `text` begins with; 0 if with none.
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
  for (const char* token : {kStart, kEnd}) {
    if (!ids.contains(token))
      throw Malformed{fmt::format("expected CLIP's tokens, '{}' is not there", token), kAnother};
  }
  start = ids.at(kStart);
  end = ids.at(kEnd);
  std::vector<bool> taken(ids.size());
  for (const auto& [token, id] : ids) {
    const auto place = static_cast<size_t>(id);
    require(place < ids.size(), "the token '{}' has the id {}, and there are {} tokens", printable(token), id,
            ids.size());
    require(!taken[place], "the token '{}' has the id {}, and so has another", printable(token), id);
    taken[place] = true;
  }
  const auto ends_word = [](const auto& merge) { return merge.second.ends_with(kWordEnd); };
  if (std::none_of(vocabulary.merges.begin(), vocabulary.merges.end(), ends_word)) {
    throw Malformed{"expected CLIP's merges, with '</w>' where a word ends, found none", kAnother};
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
    require(a && b && both, "merge {} is '{} {}', and '{}' is no token", merges.size() + 1, printable(left),
            printable(right),
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
  for (const char* token : {kStart, kEnd}) {
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
  TORCH_CHECK(text.size() <= kMaxText, "[", kCall, "] a text of ", text.size(), " bytes; the most is 1 GiB");
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
  const fs::path folder = fs::is_directory(checkpoint, ignored) ? checkpoint : checkpoint.parent_path();
  if (is_there(folder / "tokenizer.json")) return folder / "tokenizer.json";
  if (is_there(folder / "vocab.json") && is_there(folder / "merges.txt")) return folder / "vocab.json";
  for (const char* suffix : {".gz", ""}) {
    const fs::path list = folder / (std::string(kMergeList) + suffix);
    if (is_there(list)) return list;
  }
  return {};
}

Tokenizer::Tokenizer(const fs::path& path) {
  require_unicode(kCall);
  fs::path file = path;
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    file = find_vocabulary(path);
    TORCH_CHECK(!file.empty(), "[", kCall, "] '", printable(path.string(), kMaxPath),
                "': there is no tokenizer.json, no vocab.json with merges.txt and no ", kMergeList,
                ".gz in this folder; put those of the CLIP model there");
  }
  const Vocabulary vocabulary = read_vocabulary(file);
  reading(file, [&] { model_ = std::make_shared<const Model>(vocabulary); });
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
